"""Say which kernels a logged launch stands for: the test-only table behind the stand-in msprof.

Written from the project's fact sheets of the operators, apart from the bindings (decision 16): it is an assumption
about CANN, not CANN. Nothing in perfcollect imports it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["Kernel", "Slot", "lower"]

Argument = Any
Record = Mapping[str, Any]

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
_DTYPE_BYTES = {0: 4, 1: 2, 3: 4, 6: 2, 7: 2, 8: 4, 9: 8, 10: 8, 11: 8, 16: 8, 27: 2}
_FRACTAL_NZ = 29
# A2 and A3 copy up to this size without a kernel.
_LARGEST_MEMORY_COPY_BYTES = 400_000
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
_HELPER_NS = 800


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


_ABSENT = Slot("", "DT_UNDEFINED", "NULL")


def lower(record: Record) -> tuple[Kernel, ...]:
    """Return the kernels of one logged task, the main one first; none for a copy by the memory engine."""
    kind, name = record["kind"], record["name"]
    if kind == "hccl":
        return (Kernel(_collective_type(name), (), (), "COMMUNICATION"),)
    if kind == "aclop":
        return _lower_aclop(record)
    if kind not in {"aclnn", "atb"}:
        return ()
    rule = _RULES.get(name, _default)
    return rule(name, record["args"])


def _lower_aclop(record: Record) -> tuple[Kernel, ...]:
    name: str = record["name"]
    name = {"Identity": "TransData", "BatchMatMul": "BatchMatMulV2"}.get(name, name)
    inputs = tuple(_slot(tensor) for tensor in record["args"])
    outputs = tuple(_slot(tensor) for tensor in record["outputs"])
    return (_kernel(name, inputs, outputs),)


def _collective_type(name: str) -> str:
    word = name.removeprefix("Hccl")
    special = {"AlltoAllV": "alltoallv", "AlltoAll": "alltoall", "AlltoAllVC": "alltoallvc"}
    return f"hcom_{special.get(word, word[:1].lower() + word[1:])}_"


def _kernel(
    op_type: str, inputs: Sequence[Slot], outputs: Sequence[Slot], duration_ns: int | None = None
) -> Kernel:
    task_type = "AI_CORE" if op_type in _CUBE else "MIX_AIC" if op_type in _MIXED else "AI_VECTOR_CORE"
    return Kernel(op_type, _trimmed(inputs), tuple(outputs), task_type, duration_ns)


def _trimmed(slots: Sequence[Slot]) -> tuple[Slot, ...]:
    kept = list(slots)
    while kept and kept[-1] == _ABSENT:
        kept.pop()
    return tuple(kept)


def _is_tensor(argument: Argument) -> bool:
    return isinstance(argument, dict) and "view" in argument


def _numel(dims: Sequence[int]) -> int:
    total = 1
    for dim in dims:
        total *= dim
    return total


def _slot(argument: Argument, *, stored: bool = False, dtype: str | None = None) -> Slot:
    """Return the slot of a tensor (or of a list's first); ``stored`` prints a transposed view as it lies in memory."""
    if isinstance(argument, dict) and "tensors" in argument:
        argument = argument["tensors"][0] if argument["tensors"] else None
    if not _is_tensor(argument):
        return _ABSENT
    dims = list(argument["view"])
    if argument["format"] == _FRACTAL_NZ:
        return Slot(_text(argument["storage"]), dtype or _DTYPES.get(argument["dtype"], "?"), "FRACTAL_NZ")
    if stored and _is_transposed(argument):
        dims[-2:] = dims[-1], dims[-2]
    return Slot(_text(dims), dtype or _DTYPES.get(argument["dtype"], "?"), "ND")


def _optional(argument: Argument) -> Slot:
    """Return the slot of an operand that an empty tensor stands in for when it is absent."""
    if _is_tensor(argument) and _numel(argument["view"]) == 0:
        return _ABSENT
    return _slot(argument)


def _text(dims: Sequence[int]) -> str:
    return ",".join(map(str, dims))


def _is_transposed(tensor: Mapping[str, Any]) -> bool:
    strides, view = tensor.get("strides"), tensor["view"]
    return strides is not None and len(view) >= 2 and strides[-2] == 1 and strides[-1] == view[-2]


def _vector(length: int) -> Slot:
    return Slot(str(length), "INT64", "ND")


def _zero_dimensional(dtype: str) -> Slot:
    return Slot("", dtype, "ND")


def _dtype_of(argument: Argument) -> str:
    return _slot(argument).dtype


def _tensors(arguments: Sequence[Argument]) -> list[Argument]:
    return [argument for argument in arguments if _is_tensor(argument)]


Rule = Callable[[str, Sequence[Argument]], tuple[Kernel, ...]]


def _default(name: str, arguments: Sequence[Argument]) -> tuple[Kernel, ...]:
    """Take the last tensor for the output and the API's own name for the type."""
    tensors = _tensors(arguments)
    op_type = name.removeprefix("aclnn").removeprefix("Inplace").removeprefix("Atb")
    slots = [_slot(tensor) for tensor in tensors]
    inplace = "Inplace" in name
    inputs, outputs = (slots, slots[:1]) if inplace else (slots[:-1], slots[-1:])
    return (_kernel(op_type, inputs, outputs),)


def _plain(
    op_type: str, inputs: Sequence[int], outputs: Sequence[int], *, stored: Sequence[int] = ()
) -> Rule:
    """Return the rule of an API whose operands stand at fixed places; ``stored`` ones print as they lie in memory."""

    def rule(name: str, arguments: Sequence[Argument]) -> tuple[Kernel, ...]:
        slots = [_slot(arguments[at], stored=at in stored) for at in inputs]
        return (_kernel(op_type, slots, [_slot(arguments[at]) for at in outputs]),)

    return rule


def _matmul(name: str, arguments: Sequence[Argument]) -> tuple[Kernel, ...]:
    left, right, result = arguments[:3]
    wide = result["dtype"] == 0 and left["dtype"] != 0
    slots = [_slot(left, stored=True), _slot(right, stored=True)]
    return (_kernel("MatMulV3" if wide else "MatMulV2", slots, [_slot(result)]),)


def _addmm(name: str, arguments: Sequence[Argument]) -> tuple[Kernel, ...]:
    bias, left, right = arguments[:3]
    slots = [_slot(left, stored=True), _slot(right, stored=True), _slot(bias)]
    return (_kernel("MatMulV2", slots, [_slot(_tensors(arguments)[-1])]),)


def _scalar_add(name: str, arguments: Sequence[Argument]) -> tuple[Kernel, ...]:
    """The scalar comes first here, and the tensor second."""
    other, result = _tensors(arguments)
    slot = _slot(other)
    return (_kernel("Add", [_zero_dimensional(slot.dtype), slot], [_slot(result)]),)


def _adds(name: str, arguments: Sequence[Argument]) -> tuple[Kernel, ...]:
    slot = _slot(arguments[0])
    return (_kernel("Add", [slot, _zero_dimensional(slot.dtype)], [_slot(arguments[-1])]),)


def _gather(name: str, arguments: Sequence[Argument]) -> tuple[Kernel, ...]:
    table, indices, result = _tensors(arguments)
    return (_kernel("GatherV2", [_slot(table), _slot(indices), _vector(1)], [_slot(result)]),)


def _index(name: str, arguments: Sequence[Argument]) -> tuple[Kernel, ...]:
    source, indices, result = arguments[:3]
    given = [_slot(tensor) for tensor in indices["tensors"] if tensor]
    metadata = [_vector(len(indices["tensors"])), _vector(len(result["view"]))]
    return (_kernel("Index", [_slot(source), *metadata, *given], [_slot(result)]),)


def _scatter(name: str, arguments: Sequence[Argument]) -> tuple[Kernel, ...]:
    slots = [_slot(argument) for argument in arguments[:3]]
    return (_kernel("ScatterNdUpdate", slots, slots[:1]),)


def _masked_fill(name: str, arguments: Sequence[Argument]) -> tuple[Kernel, ...]:
    target, mask = _slot(arguments[0]), _slot(arguments[1])
    return (_kernel("MaskedFill", [target, mask, _zero_dimensional(target.dtype)], [target]),)


def _pad(name: str, arguments: Sequence[Argument]) -> tuple[Kernel, ...]:
    source, result = _slot(arguments[0]), _slot(arguments[-1])
    paddings = _vector(2 * len(arguments[0]["view"]))
    return (_kernel("PadV3", [source, paddings, _zero_dimensional(source.dtype)], [result]),)


def _sort(name: str, arguments: Sequence[Argument]) -> tuple[Kernel, ...]:
    source, values, indices = _tensors(arguments)
    narrow, wide = _slot(indices, dtype="INT32"), _slot(indices)
    return (
        _kernel("Sort", [_slot(source)], [_slot(values), narrow]),
        _kernel("Cast", [narrow], [wide], _HELPER_NS),
    )


def _arg_max(name: str, arguments: Sequence[Argument]) -> tuple[Kernel, ...]:
    source, indices = _tensors(arguments)
    narrow, wide = _slot(indices, dtype="INT32"), _slot(indices)
    return (
        _kernel("ArgMaxV2", [_slot(source), _zero_dimensional("INT64")], [narrow]),
        _kernel("Cast", [narrow], [wide], _HELPER_NS),
    )


def _copy(name: str, arguments: Sequence[Argument]) -> tuple[Kernel, ...]:
    """A copy is a Cast, a Transpose, a Slice or a TensorMove: dtype and strides of the source tell."""
    target, source = arguments[:2]
    result = _slot(target)
    if target["dtype"] != source["dtype"]:
        return (_kernel("Cast", [_slot(source)], [result]),)
    if "strides" in source:
        return (_strided_copy(source, result),)
    if _numel(source["view"]) * _DTYPE_BYTES.get(source["dtype"], 1) <= _LARGEST_MEMORY_COPY_BYTES:
        return ()
    return (_kernel("TensorMove", [_slot(source)], [result]),)


def _strided_copy(source: Mapping[str, Any], result: Slot) -> Kernel:
    view, strides = source["view"], source["strides"]
    order = sorted(range(len(view)), key=lambda axis: -strides[axis])
    dims, expected, dense = [view[axis] for axis in order], 1, True
    for axis in reversed(order):
        dense = dense and (view[axis] == 1 or strides[axis] == expected)
        expected *= view[axis]
    dtype = _dtype_of(source)
    if dense:
        return _kernel("Transpose", [Slot(_text(dims), dtype, "ND"), _vector(len(view))], [result])
    outer = [_numel(source["storage"]), *(strides[axis] for axis in order)]
    whole = [outer[at] // outer[at + 1] if outer[at + 1] else 1 for at in range(len(order))]
    parameters = [_vector(len(view)), _vector(len(view))]
    return _kernel("Slice", [Slot(_text(whole), dtype, "ND"), *parameters], [result])


def _dynamic_quant(name: str, arguments: Sequence[Argument]) -> tuple[Kernel, ...]:
    inputs = [_slot(argument) for argument in arguments[:3]]
    return (_kernel("DynamicQuant", inputs, [_slot(tensor) for tensor in _tensors(arguments[3:])]),)


def _attention(name: str, arguments: Sequence[Argument]) -> tuple[Kernel, ...]:
    """31 slots in definition order; the two lists of lengths show their count."""
    inputs = 27 if name.endswith("V3") else 29
    slots = []
    for argument in arguments[:inputs]:
        lengths = isinstance(argument, dict) and "ints" in argument
        slots.append(_vector(len(argument["ints"])) if lengths else _slot(argument))
    slots += [_ABSENT] * (31 - len(slots))
    result, lse = _tensors(arguments)[-2:]
    second = _zero_dimensional("FLOAT") if _numel(lse["view"]) <= 1 else _slot(lse)
    return (Kernel("FusedInferAttentionScore", tuple(slots), (_slot(result), second), "MIX_AIC"),)


def _grouped_matmul(name: str, arguments: Sequence[Argument]) -> tuple[Kernel, ...]:
    order = (0, 1, 2, 3, 4, 5, 6, 8, 7)
    slots = [_slot(arguments[at], stored=at == 1) for at in order]
    lists = [argument for argument in arguments[9:] if isinstance(argument, dict) and "tensors" in argument]
    return (_kernel("GroupedMatmul", slots, [_slot(lists[0])]),)


def _quant_matmul(name: str, arguments: Sequence[Argument]) -> tuple[Kernel, ...]:
    slots = [_slot(arguments[0], stored=True), _slot(arguments[1], stored=True)]
    slots += [_optional(arguments[at]) for at in (3, 6, 8, 2)]
    return (_kernel("QuantBatchMatmulV3", slots, [_slot(_tensors(arguments)[-1])]),)


def _kv_cache(name: str, arguments: Sequence[Argument]) -> tuple[Kernel, ...]:
    outputs = [
        _slot(arguments[5]),
        _slot(arguments[6]),
        *(_slot(tensor) for tensor in _tensors(arguments)[-2:]),
    ]
    slots = tuple(_slot(argument) for argument in arguments[:11])
    return (Kernel("KvRmsNormRopeCache", (*slots, _ABSENT), tuple(outputs)),)


def _trailing(op_type: str, inputs: int, outputs: int) -> Rule:
    """Return the rule of an API whose first tensors are the inputs and whose last are the outputs."""

    def rule(name: str, arguments: Sequence[Argument]) -> tuple[Kernel, ...]:
        results = [_slot(tensor) for tensor in _tensors(arguments)[-outputs:]]
        return (_kernel(op_type, [_slot(argument) for argument in arguments[:inputs]], results),)

    return rule


def _not_collected(op_type: str) -> Rule:
    """Return the rule of a runtime helper, whose shapes the profiler does not collect."""

    def rule(name: str, arguments: Sequence[Argument]) -> tuple[Kernel, ...]:
        return (Kernel(op_type, (Slot("N/A", "N/A", "N/A"),), (Slot("N/A", "N/A", "N/A"),)),)

    return rule


def _reshape_and_cache(name: str, arguments: Sequence[Argument]) -> tuple[Kernel, ...]:
    slots = [_slot(argument) for argument in arguments[:5]]
    return (_kernel("ReshapeAndCacheNdKernel", slots, slots[2:4]),)


def _ring(name: str, arguments: Sequence[Argument]) -> tuple[Kernel, ...]:
    """15 slots: five operands, the mask, seven empty ones, the earlier partial result and its log-sum-exp."""
    slots = [_slot(argument) for argument in arguments[:6]]
    slots += [*[_ABSENT] * 7, _slot(arguments[7]), _slot(arguments[8])]
    results = [_slot(tensor) for tensor in _tensors(arguments)[-2:]]
    return (Kernel("RINGMLAPrefillBF16Kernel", tuple(slots), tuple(results), "MIX_AIC"),)


_RULES: dict[str, Rule] = {
    "aclnnMm": _matmul,
    "aclnnMatmul": _matmul,
    "aclnnMatmulWeightNz": _matmul,
    "aclnnAddmm": _addmm,
    "aclnnAddmmWeightNz": _addmm,
    "aclnnBatchMatMul": _plain("BatchMatMulV2", (0, 1), (2,), stored=(0, 1)),
    "aclnnBatchMatMulWeightNz": _plain("BatchMatMulV2", (0, 1), (2,)),
    "aclnnTransposeBatchMatMul": _trailing("TransposeBatchMatMul", 4, 1),
    "aclnnTransposeBatchMatMulWeightNz": _trailing("TransposeBatchMatMul", 4, 1),
    "aclnnAdd": _plain("Add", (0, 1), (3,)),
    "aclnnAdds": _adds,
    "aclnnAddV3": _scalar_add,
    "aclnnRmsNorm": _plain("RmsNorm", (0, 1), (2, 3)),
    "aclnnAddRmsNorm": _plain("AddRmsNorm", (0, 1, 2), (3, 4, 5)),
    "aclnnAddRmsNormBias": _trailing("AddRmsNormBias", 4, 3),
    "aclnnSwiGlu": _plain("SwiGlu", (0,), (2,)),
    "aclnnSoftmax": _plain("SoftmaxV2", (0,), (2,)),
    **dict.fromkeys(("aclnnDynamicQuantV2", "aclnnDynamicQuantV3", "aclnnDynamicQuantV4"), _dynamic_quant),
    "aclnnAscendQuantV3": _trailing("AscendQuantV2", 3, 1),
    "aclnnInterleaveRope": _plain("InterleaveRope", (0, 1, 2), (3,)),
    "aclnnEmbedding": _gather,
    "aclnnIndexSelect": _gather,
    "aclnnIndex": _index,
    "aclnnScatterNdUpdate": _scatter,
    "aclnnInplaceMaskedFillScalar": _masked_fill,
    "aclnnInplaceMaskedFillTensor": _masked_fill,
    "aclnnMoeTokenPermute": _trailing("MoeTokenPermute", 2, 2),
    "aclnnMoeTokenUnpermute": _trailing("MoeTokenUnpermute", 3, 1),
    "aclnnInplaceCopy": _copy,
    "aclnnCast": _trailing("Cast", 1, 1),
    "aclnnConstantPadNd": _pad,
    "aclnnSort": _sort,
    "aclnnArgMax": _arg_max,
    "aclnnFusedInferAttentionScoreV3": _attention,
    "aclnnFusedInferAttentionScoreV4": _attention,
    "aclnnFusedInferAttentionScoreV5": _attention,
    "aclnnGroupedMatmulV5": _grouped_matmul,
    "aclnnGroupedMatmulV4": _grouped_matmul,
    "aclnnGroupedMatmulWeightNz": _grouped_matmul,
    "aclnnGroupedMatmulSwigluQuantWeightNZ": _plain("GroupedMatmulSwigluQuant", (0, 1, 4, 5, 6), (7, 8)),
    "aclnnQuantMatmulV5": _quant_matmul,
    "aclnnQuantMatmulWeightNz": _quant_matmul,
    "aclnnKvRmsNormRopeCache": _kv_cache,
    "aclnnLightningIndexer": _trailing("LightningIndexer", 6, 2),
    "aclnnLightningIndexerVllm": _trailing("LightningIndexerVllm", 6, 1),
    "aclnnSparseFlashAttention": _trailing("SparseFlashAttention", 9, 3),
    "AtbRingMLA": _ring,
    "ReshapeAndCacheOperation": _reshape_and_cache,
    "aclnnInplaceZero": _not_collected("MemSet"),
    "aclnnInplaceNormal": _not_collected("DSARandomNormal"),
    "aclnnInplaceUniform": _not_collected("DSARandomUniform"),
    "aclnnInplaceRandom": _not_collected("DSARandomUniform"),
}
