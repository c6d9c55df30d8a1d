"""Replay the cases of one operator without measuring them (``python -m perfcollect_core.runner.replay_worker ORDERS``).

Also called in the caller's own process (``--execution-mode inprocess``), to debug an operator or to put a profiler of
one's own around it: the one place where a parent may come to import torch.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, cast

import attrs

from perfcollect_core.host import OperatorHost, compose
from perfcollect_core.loading import LoadedPlugin

from .failures import classify
from .protocol import Message, PluginRef, decode_case, encode_case

if TYPE_CHECKING:
    from perfcollect_core.cases import Case
    from perfcollect_core.environment import DeviceFamily

__all__ = ["ReplayOrders", "ReplayedCase", "main", "replay_cases"]


@attrs.frozen
class ReplayOrders:
    """Which cases of one operator to launch how often, and where the result goes."""

    operator: PluginRef
    family: PluginRef
    wrappers: tuple[PluginRef, ...]
    device: int
    repeat: int
    cases: tuple[Case, ...]
    path: tuple[str, ...] = ()

    def to_json(self) -> Message:
        """Return the orders as JSON values."""
        return {
            "operator": attrs.astuple(self.operator),
            "family": attrs.astuple(self.family),
            "wrappers": [attrs.astuple(ref) for ref in self.wrappers],
            "device": self.device,
            "repeat": self.repeat,
            "cases": [encode_case(case) for case in self.cases],
            "path": list(self.path),
        }

    @classmethod
    def from_json(cls, value: Message) -> ReplayOrders:
        """Read orders; the inverse of ``to_json``."""
        return cls(
            operator=PluginRef(*value["operator"]),
            family=PluginRef(*value["family"]),
            wrappers=tuple(PluginRef(*ref) for ref in value["wrappers"]),
            device=value["device"],
            repeat=value["repeat"],
            cases=tuple(map(decode_case, value["cases"])),
            path=tuple(value["path"]),
        )


@attrs.frozen
class ReplayedCase:
    """How the replay of one case ended: ``reason`` is empty where every launch returned."""

    index: int
    failure: str = ""
    reason: str = ""


def replay_cases(orders: ReplayOrders) -> Iterator[ReplayedCase]:
    """Launch each case ``orders.repeat`` times, in order; a failure ends that case alone."""
    family = _import(orders.family)
    host = compose(_import(orders.operator), family, [_import(ref) for ref in orders.wrappers])
    device_family = cast("DeviceFamily", family.plugin)
    device = device_family.device(orders.device)
    for index, case in enumerate(orders.cases):
        try:
            _replay(host, case, device, orders.repeat)
        except Exception as error:  # the boundary around one case
            failed = classify(error, on_host=device.torch_device == "cpu")
            yield ReplayedCase(index, failed.failure, failed.reason)
        else:
            yield ReplayedCase(index)


def _replay(host: OperatorHost, case: Case, device: object, repeat: int) -> None:
    from perfcollect_core.environment import Device

    assert isinstance(device, Device)
    inputs = host.make_inputs(case, device)
    kernel = host.bind_kernel(case, inputs, device)
    reset = kernel.reset or inputs.reset
    for _ in range(repeat):
        if reset is not None:
            reset()
        kernel.call()
    # An asynchronous device reports a failed launch here at the latest.
    host.family.synchronize(device)


def _import(ref: PluginRef) -> LoadedPlugin:
    module, _, attribute = ref.value.partition(":")
    plugin: object = importlib.import_module(module.strip())
    for part in filter(None, attribute.partition("[")[0].strip().split(".")):
        plugin = getattr(plugin, part)
    return LoadedPlugin(ref.name, plugin, ref.provider)


def main(arguments: Sequence[str]) -> int:
    """Replay the orders in the file named; each result is one line of ``<orders>.<rank>.results``, as it comes."""
    path = Path(arguments[0])
    orders = ReplayOrders.from_json(json.loads(path.read_text(encoding="utf-8")))
    sys.path.extend(entry for entry in orders.path if entry not in sys.path)
    results = path.with_name(f"{path.name}.{os.environ.get('RANK', '0')}.results")
    failed = False
    with results.open("w", encoding="utf-8") as stream:
        for replayed in replay_cases(orders):
            failed = failed or bool(replayed.failure)
            stream.write(json.dumps(attrs.astuple(replayed)) + "\n")
            stream.flush()
    return 1 if failed else 0


if __name__ == "__main__":
    # Not sys.exit: a lost device can hang in the destructors of its context.
    status = main(sys.argv[1:])
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)
