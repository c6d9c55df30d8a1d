"""The messages between a run and its workers: JSON objects, one a line, and the values inside them.

The converters are kept by hand: they are on the path of every case, and a field that is not listed here does not
travel by accident. Parent to worker: ``setup``, ``case``, ``exit``. Worker to parent: ``hello``, ``ready``,
``refused``, ``begin``, ``result``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from perfcollect_core.cases import Case, Param, RowRef
from perfcollect_core.measurements import Plan, Samples
from perfcollect_core.tensors import Signature, TensorSpec

__all__ = [
    "ENV_PARENT",
    "ENV_SOCKET",
    "ENV_TOKEN",
    "Message",
    "PluginRef",
    "Setup",
    "decode_case",
    "decode_plan",
    "decode_row",
    "decode_samples",
    "decode_setup",
    "encode_case",
    "encode_plan",
    "encode_row",
    "encode_samples",
    "encode_setup",
]

#: Where a worker finds the socket of its run.
ENV_SOCKET = "PERFCOLLECT_SOCKET"
#: What a worker shows in its ``hello``; every process of its tree inherits it, and is found by it.
ENV_TOKEN = "PERFCOLLECT_TOKEN"
#: Process id of the run, by which the next one knows what a killed run left behind.
ENV_PARENT = "PERFCOLLECT_PARENT"

Message = dict[str, Any]


@attrs.frozen
class PluginRef:
    """Where a worker imports a plugin from: the entry point's value (``module:attribute``) and who provides it."""

    name: str
    value: str
    provider: str


@attrs.frozen
class Setup:
    """What a worker needs to know once, before its first case."""

    family: PluginRef
    device: int
    ranks: int = 1
    operators: Mapping[str, PluginRef] = attrs.field(factory=dict)
    wrappers: tuple[PluginRef, ...] = ()
    path: tuple[str, ...] = ()
    memory_bytes: int = 0
    run_dir: str = ""


def encode_setup(setup: Setup) -> Message:
    """Write a setup as a message."""
    return {
        "kind": "setup",
        "family": attrs.astuple(setup.family),
        "device": setup.device,
        "ranks": setup.ranks,
        "operators": {name: attrs.astuple(ref) for name, ref in setup.operators.items()},
        "wrappers": [attrs.astuple(ref) for ref in setup.wrappers],
        "path": list(setup.path),
        "memory_bytes": setup.memory_bytes,
        "run_dir": setup.run_dir,
    }


def decode_setup(message: Message) -> Setup:
    """Read a setup; the inverse of ``encode_setup``."""
    return Setup(
        family=PluginRef(*message["family"]),
        device=message["device"],
        ranks=message["ranks"],
        operators={name: PluginRef(*ref) for name, ref in message["operators"].items()},
        wrappers=tuple(PluginRef(*ref) for ref in message["wrappers"]),
        path=tuple(message["path"]),
        memory_bytes=message["memory_bytes"],
        run_dir=message["run_dir"],
    )


def encode_row(row: RowRef) -> list[Any]:
    """Write a row reference as ``[table, key, occurrence]``."""
    return [row.table, list(row.key), row.occurrence]


def decode_row(value: list[Any]) -> RowRef:
    """Read a row reference; the inverse of ``encode_row``."""
    return RowRef(value[0], tuple(value[1]), value[2])


def _encode_tensor(tensor: TensorSpec) -> list[Any]:
    shape = None if tensor.shape is None else list(tensor.shape)
    return [shape, tensor.dtype, tensor.format, tensor.shape_text, tensor.dtype_text, tensor.format_text]


def _decode_tensor(value: list[Any]) -> TensorSpec:
    shape = None if value[0] is None else tuple(value[0])
    return TensorSpec(shape, value[1], value[2], value[3], value[4], value[5])


def _decode_param(value: Any) -> Param:
    # JSON has no tuples; params hold nothing else that is a list.
    return tuple(map(_decode_param, value)) if isinstance(value, list) else value


def encode_case(case: Case) -> Message:
    """Write a case as JSON values."""
    return {
        "operator": case.operator,
        "row": None if case.row is None else encode_row(case.row),
        "inputs": [_encode_tensor(t) for t in case.signature.inputs],
        "outputs": [_encode_tensor(t) for t in case.signature.outputs],
        "tensors": {name: _encode_tensor(t) for name, t in case.tensors.items()},
        "params": dict(case.params),
        "assumptions": list(case.assumptions),
        "ranks": case.ranks,
        "seed": case.seed,
    }


def decode_case(value: Message) -> Case:
    """Read a case; the inverse of ``encode_case``."""
    return Case(
        operator=value["operator"],
        row=None if value["row"] is None else decode_row(value["row"]),
        signature=Signature(
            tuple(map(_decode_tensor, value["inputs"])), tuple(map(_decode_tensor, value["outputs"]))
        ),
        tensors={name: _decode_tensor(t) for name, t in value["tensors"].items()},
        params={name: _decode_param(p) for name, p in value["params"].items()},
        assumptions=tuple(value["assumptions"]),
        ranks=value["ranks"],
        seed=value["seed"],
    )


def encode_plan(plan: Plan) -> list[Any]:
    """Write a plan as a list, in the order of its fields."""
    return [plan.repeat, plan.warmup, plan.precision, plan.max_seconds, plan.cache, plan.passes]


def decode_plan(value: list[Any]) -> Plan:
    """Read a plan; the inverse of ``encode_plan``."""
    return Plan(*value)


def encode_samples(samples: Samples) -> Message:
    """Write samples; durations keep a tenth of a nanosecond, entries at their default are left out."""
    value: Message = {"us": [round(d, 4) for d in samples.durations_us], "stop": samples.stop}
    if samples.inner != 1:
        value["inner"] = samples.inner
    if samples.warmup_us:
        value["warmup_us"] = [round(d, 4) for d in samples.warmup_us]
    if samples.counters:
        value["counters"] = {
            name: list(entry) if isinstance(entry, tuple) else entry
            for name, entry in samples.counters.items()
        }
    if samples.cache != "warm":
        value["cache"] = samples.cache
    if samples.flags:
        value["flags"] = list(samples.flags)
    if samples.window_ns is not None:
        value["window_ns"] = list(samples.window_ns)
    if samples.launches:
        value["launches"] = samples.launches
    if samples.brackets_ns:
        value["brackets_ns"] = [list(bracket) for bracket in samples.brackets_ns]
    return value


def decode_samples(value: Message) -> Samples:
    """Read samples; the inverse of ``encode_samples`` up to its rounding."""
    window = value.get("window_ns")
    counters = value.get("counters", {})
    return Samples(
        durations_us=tuple(value["us"]),
        stop=value["stop"],
        inner=value.get("inner", 1),
        warmup_us=tuple(value.get("warmup_us", ())),
        counters={
            name: tuple(entry) if isinstance(entry, list) else entry for name, entry in counters.items()
        },
        cache=value.get("cache", "warm"),
        flags=tuple(value.get("flags", ())),
        window_ns=None if window is None else (window[0], window[1]),
        launches=value.get("launches", 0),
        brackets_ns=tuple((start, end) for start, end in value.get("brackets_ns", ())),
    )
