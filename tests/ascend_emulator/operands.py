"""Operands of a logged launch as a profiler prints them: slots, and the kernel they belong to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

__all__ = [
    "ABSENT",
    "DTYPE_BYTES",
    "Argument",
    "Kernel",
    "Slot",
    "dims_text",
    "dtype_of",
    "is_tensor",
    "kernel",
    "numel",
    "optional_slot",
    "slot",
    "tensors",
    "vector",
    "zero_dimensional",
]

Argument = Any

_DTYPES = {
    0: "FLOAT",
    1: "FLOAT16",
    2: "INT8",
    3: "INT32",
    4: "UINT8",
    6: "INT16",
    7: "UINT16",
    8: "UINT32",
    9: "INT64",
    10: "UINT64",
    11: "DOUBLE",
    12: "BOOL",
    16: "COMPLEX64",
    27: "DT_BF16",
    29: "INT4",
    34: "DT_HIFLOAT8",
    35: "DT_FLOAT8_E5M2",
    36: "DT_FLOAT8_E4M3FN",
}
DTYPE_BYTES = {0: 4, 1: 2, 3: 4, 6: 2, 7: 2, 8: 4, 9: 8, 10: 8, 11: 8, 16: 8, 27: 2}
_FRACTAL_NZ = 29
_CUBE = frozenset({"MatMulV2", "MatMulV3", "BatchMatMulV2", "TransposeBatchMatMul", "QuantBatchMatmulV3"})
_MIXED = frozenset(
    {
        "FusedInferAttentionScore",
        "GroupedMatmul",
        "GroupedMatmulSwigluQuant",
        "LightningIndexer",
        "LightningIndexerVllm",
        "SparseFlashAttention",
        "DispatchFFNCombine",
        "RINGMLAPrefillBF16Kernel",
    }
)


@dataclass(frozen=True)
class Slot:
    """One operand as a profiler prints it; an absent one has no shape and ``DT_UNDEFINED``."""

    shape: str
    dtype: str
    format: str


@dataclass(frozen=True)
class Kernel:
    """One row of op_summary that a launch causes; ``duration_ns`` ``None`` means the launch's own."""

    op_type: str
    inputs: tuple[Slot, ...]
    outputs: tuple[Slot, ...]
    task_type: str = "AI_VECTOR_CORE"
    duration_ns: int | None = None


ABSENT = Slot("", "DT_UNDEFINED", "NULL")


def kernel(
    op_type: str, inputs: Sequence[Slot], outputs: Sequence[Slot], duration_ns: int | None = None
) -> Kernel:
    task_type = "AI_CORE" if op_type in _CUBE else "MIX_AIC" if op_type in _MIXED else "AI_VECTOR_CORE"
    return Kernel(op_type, _trimmed(inputs), tuple(outputs), task_type, duration_ns)


def _trimmed(slots: Sequence[Slot]) -> tuple[Slot, ...]:
    kept = list(slots)
    while kept and kept[-1] == ABSENT:
        kept.pop()
    return tuple(kept)


def is_tensor(argument: Argument) -> bool:
    return isinstance(argument, dict) and "view" in argument


def numel(dims: Sequence[int]) -> int:
    total = 1
    for dim in dims:
        total *= dim
    return total


def slot(argument: Argument, *, stored: bool = False, dtype: str | None = None) -> Slot:
    """Return the slot of a tensor (or of a list's first); ``stored`` prints a transposed view as it lies in memory."""
    if isinstance(argument, dict) and "tensors" in argument:
        argument = argument["tensors"][0] if argument["tensors"] else None
    if not is_tensor(argument):
        return ABSENT
    dims = list(argument["view"])
    if argument["format"] == _FRACTAL_NZ:
        return Slot(
            dims_text(argument["storage"]), dtype or _DTYPES.get(argument["dtype"], "?"), "FRACTAL_NZ"
        )
    if stored and _is_transposed(argument):
        dims[-2:] = dims[-1], dims[-2]
    return Slot(dims_text(dims), dtype or _DTYPES.get(argument["dtype"], "?"), "ND")


def optional_slot(argument: Argument) -> Slot:
    """Return the slot of an operand that an empty tensor stands in for when it is absent."""
    if is_tensor(argument) and numel(argument["view"]) == 0:
        return ABSENT
    return slot(argument)


def dims_text(dims: Sequence[int]) -> str:
    return ",".join(map(str, dims))


def _is_transposed(tensor: Mapping[str, Any]) -> bool:
    strides, view = tensor.get("strides"), tensor["view"]
    return strides is not None and len(view) >= 2 and strides[-2] == 1 and strides[-1] == view[-2]


def vector(length: int) -> Slot:
    return Slot(str(length), "INT64", "ND")


def zero_dimensional(dtype: str) -> Slot:
    return Slot("", dtype, "ND")


def dtype_of(argument: Argument) -> str:
    return slot(argument).dtype


def tensors(arguments: Sequence[Argument]) -> list[Argument]:
    return [argument for argument in arguments if is_tensor(argument)]
