"""Run cases on one device: the process that owns torch (``python -m perfcollect_core.runner.worker``).

It connects to the socket its environment names, says hello with token and rank, loads the device family and then
serves cases until it is told to exit, its parent is gone, or a case left it unfit to serve another.
"""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import importlib
import os
import select
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, cast

import attrs

from perfcollect_core.checking import difference
from perfcollect_core.errors import MissingEnvironmentError
from perfcollect_core.host import OperatorHost, compose
from perfcollect_core.loading import LoadedPlugin

from .channel import Channel, ChannelClosed, connect
from .failures import ClassifiedFailure, classify
from .processes import die_with_parent, forbid_core_dumps, limit_memory, raise_oom_score
from .protocol import (
    ENV_SOCKET,
    ENV_TOKEN,
    Message,
    PluginRef,
    Setup,
    decode_case,
    decode_plan,
    decode_setup,
    encode_samples,
)
from .spool import Spool

if TYPE_CHECKING:
    from perfcollect_core.cases import Case
    from perfcollect_core.environment import Device, DeviceFamily
    from perfcollect_core.measurements import Samples

__all__ = ["main"]


def main() -> NoReturn:
    """Serve cases until told to stop; never returns."""
    faulthandler.enable()
    raise_oom_score()
    forbid_core_dumps()
    rank = int(os.environ.get("RANK", "0"))
    channel = connect(Path(os.environ[ENV_SOCKET]))
    die_with_parent()
    _exit_on_hangup(channel)
    channel.send({"kind": "hello", "token": os.environ[ENV_TOKEN], "rank": rank, "pid": os.getpid()})
    with contextlib.suppress(ChannelClosed):
        _serve(channel)
    _leave(0)


def _leave(status: int) -> NoReturn:
    # Not sys.exit: a lost device can hang in the destructors of its context.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def _exit_on_hangup(channel: Channel) -> None:
    """End this process as soon as the run's end of the socket is closed, a hung kernel notwithstanding."""
    poll = select.poll()
    # No POLLIN: the thread sleeps until the other end is gone and disturbs no measurement.
    poll.register(channel.fileno(), getattr(select, "POLLRDHUP", 0) | select.POLLHUP)

    def watch() -> None:
        while True:
            for _, events in poll.poll():
                if events:
                    os._exit(1)

    threading.Thread(target=watch, daemon=True, name="hangup").start()


def _serve(channel: Channel) -> None:
    setup = decode_setup(channel.receive())
    sys.path.extend(entry for entry in setup.path if entry not in sys.path)
    try:
        bench = _Bench.open(setup)
        facts = bench.environment()
    except Exception as error:
        failure = classify(error, on_host=False)
        channel.send({"kind": "refused", "failure": failure.failure, "reason": failure.reason})
        return
    channel.send({"kind": "ready", "environment": facts, "core": bench.device.core})
    gc.collect()
    gc.freeze()
    spool = Spool(Path(setup.run_dir), os.environ[ENV_TOKEN])
    served = 0
    while True:
        message = channel.receive()
        if message["kind"] == "exit":
            return
        if not served:
            # Tells a case that ends the process from a process that never came to it. Later cases need no such
            # word: in a process that has served others nothing is blamed.
            channel.send({"kind": "begin", "id": message["id"]})
        served += 1
        result, poisoned = bench.run(message)
        if poisoned:
            result["final"] = True
        elif result.get("samples", {}).get("us") and setup.ranks == 1:
            spool.keep(message["case"]["row"], result, bench.device.core)
        channel.send(result)
        if poisoned:
            return


def _import(ref: PluginRef) -> LoadedPlugin:
    # The run has loaded and checked this plugin already; reading metadata again would cost every start.
    module, _, attribute = ref.value.partition(":")
    plugin: object = importlib.import_module(module.strip())
    for part in filter(None, attribute.partition("[")[0].strip().split(".")):
        plugin = getattr(plugin, part)
    return LoadedPlugin(ref.name, plugin, ref.provider)


@attrs.define(eq=False)
class _Bench:
    """An opened device and the operators composed on it so far."""

    setup: Setup
    family: LoadedPlugin
    wrappers: tuple[LoadedPlugin, ...]
    device: Device
    hosts: dict[str, OperatorHost] = attrs.field(factory=dict)

    @classmethod
    def open(cls, setup: Setup) -> _Bench:
        family = _import(setup.family)
        wrappers = tuple(map(_import, setup.wrappers))
        device = cast("DeviceFamily", family.plugin).device(setup.device)
        if device.torch_device == "cpu" and setup.memory_bytes:
            limit_memory(setup.memory_bytes)
        return cls(setup, family, wrappers, device)

    @property
    def on_host(self) -> bool:
        return self.device.torch_device == "cpu"

    def environment(self) -> dict[str, str]:
        family = cast("DeviceFamily", self.family.plugin)
        return {name: str(value) for name, value in family.environment(self.device).items()}

    def run(self, message: Message) -> tuple[Message, bool]:
        """Run one case; every exception ends here. Returns the result and whether this process must end."""
        result: Message = {"kind": "result", "id": message["id"]}
        try:
            case = decode_case(message["case"])
            self._measure(case, message, result)
        except Exception as error:
            failure = classify(error, on_host=self.on_host)
        except SystemExit as error:
            failure = ClassifiedFailure("worker_crashed", f"called exit({error.code!r})", True)
        else:
            return result, False
        result["failure"], result["reason"] = failure.failure, failure.reason
        return result, failure.poisoned

    def _host(self, operator: str) -> OperatorHost:
        host = self.hosts.get(operator)
        if host is None:
            host = compose(_import(self.setup.operators[operator]), self.family, self.wrappers)
            self.hosts[operator] = host
        return host

    def _measure(self, case: Case, message: Message, result: Message) -> None:
        host = self._host(message.get("as", case.operator))
        inputs = host.make_inputs(case, self.device)
        reference = host.reference(case, inputs, self.device) if message["check"] else None
        kernel = host.bind_kernel(case, inputs, self.device)
        if kernel.reset is None and inputs.reset is not None:
            kernel = attrs.evolve(kernel, reset=inputs.reset)
        if reference is not None:
            outputs = kernel.outputs(kernel.call())
            host.family.synchronize(self.device)
            wrong = difference(outputs, reference)
            del outputs
            result["checked"] = True
            if wrong is not None:
                result["failure"], result["reason"] = "wrong_result", wrong
                return
        samples: Samples = host.measure(case, kernel, decode_plan(message["plan"]), self.device)
        result["samples"] = encode_samples(samples)


def _missing(name: str) -> MissingEnvironmentError:
    return MissingEnvironmentError(
        f"environment variable {name} is not set: a worker is started by a run", variables=(name,)
    )


if __name__ == "__main__":
    for variable in (ENV_SOCKET, ENV_TOKEN):
        if variable not in os.environ:
            sys.exit(f"error: {_missing(variable)}")
    main()
