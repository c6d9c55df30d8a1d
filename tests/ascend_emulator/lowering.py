"""Say which kernels a logged launch stands for: the test-only table behind the stand-in msprof.

Written from the project's fact sheets of the operators, apart from the bindings (decision 16): it is an assumption
about CANN, not CANN. Nothing in perfcollect imports it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from operands import (
    ABSENT,
    DTYPE_BYTES,
    Argument,
    Kernel,
    Slot,
    dims_text,
    dtype_of,
    kernel,
    numel,
    optional_slot,
    slot,
    tensors,
    vector,
    zero_dimensional,
)

__all__ = ["Kernel", "Slot", "lower"]

Record = Mapping[str, Any]

# A2 and A3 copy up to this size without a kernel.
_LARGEST_MEMORY_COPY_BYTES = 400_000
_HELPER_NS = 800


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
    inputs = tuple(slot(tensor) for tensor in record["args"])
    outputs = tuple(slot(tensor) for tensor in record["outputs"])
    return (kernel(name, inputs, outputs),)


def _collective_type(name: str) -> str:
    word = name.removeprefix("Hccl")
    special = {"AlltoAllV": "alltoallv", "AlltoAll": "alltoall", "AlltoAllVC": "alltoallvc"}
    return f"hcom_{special.get(word, word[:1].lower() + word[1:])}_"


Rule = Callable[[str, Sequence[Argument]], tuple[Kernel, ...]]


def _default(name: str, arguments: Sequence[Argument]) -> tuple[Kernel, ...]:
    """Take the last tensor for the output and the API's own name for the type."""
    given = tensors(arguments)
    op_type = name.removeprefix("aclnn").removeprefix("Inplace").removeprefix("Atb")
    slots = [slot(tensor) for tensor in given]
    inplace = "Inplace" in name
    inputs, outputs = (slots, slots[:1]) if inplace else (slots[:-1], slots[-1:])
    return (kernel(op_type, inputs, outputs),)


def _plain(
    op_type: str, inputs: Sequence[int], outputs: Sequence[int], *, stored: Sequence[int] = ()
) -> Rule:
    """Return the rule of an API whose operands stand at fixed places; ``stored`` ones print as they lie in memory."""

    def rule(name: str, arguments: Sequence[Argument]) -> tuple[Kernel, ...]:
        slots = [slot(arguments[at], stored=at in stored) for at in inputs]
        return (kernel(op_type, slots, [slot(arguments[at]) for at in outputs]),)

    return rule


def _matmul(name: str, arguments: Sequence[Argument]) -> tuple[Kernel, ...]:
    left, right, result = arguments[:3]
    wide = result["dtype"] == 0 and left["dtype"] != 0
    slots = [slot(left, stored=True), slot(right, stored=True)]
    return (kernel("MatMulV3" if wide else "MatMulV2", slots, [slot(result)]),)


def _addmm(name: str, arguments: Sequence[Argument]) -> tuple[Kernel, ...]:
    bias, left, right = arguments[:3]
    slots = [slot(left, stored=True), slot(right, stored=True), slot(bias)]
    return (kernel("MatMulV2", slots, [slot(tensors(arguments)[-1])]),)


def _scalar_add(name: str, arguments: Sequence[Argument]) -> tuple[Kernel, ...]:
    """The scalar comes first here, and the tensor second."""
    other, result = tensors(arguments)
    operand = slot(other)
    return (kernel("Add", [zero_dimensional(operand.dtype), operand], [slot(result)]),)


def _adds(name: str, arguments: Sequence[Argument]) -> tuple[Kernel, ...]:
    operand = slot(arguments[0])
    return (kernel("Add", [operand, zero_dimensional(operand.dtype)], [slot(arguments[-1])]),)


def _gather(name: str, arguments: Sequence[Argument]) -> tuple[Kernel, ...]:
    table, indices, result = tensors(arguments)
    return (kernel("GatherV2", [slot(table), slot(indices), vector(1)], [slot(result)]),)


def _index(name: str, arguments: Sequence[Argument]) -> tuple[Kernel, ...]:
    source, indices, result = arguments[:3]
    given = [slot(tensor) for tensor in indices["tensors"] if tensor]
    metadata = [vector(len(indices["tensors"])), vector(len(result["view"]))]
    return (kernel("Index", [slot(source), *metadata, *given], [slot(result)]),)


def _scatter(name: str, arguments: Sequence[Argument]) -> tuple[Kernel, ...]:
    slots = [slot(argument) for argument in arguments[:3]]
    return (kernel("ScatterNdUpdate", slots, slots[:1]),)


def _masked_fill(name: str, arguments: Sequence[Argument]) -> tuple[Kernel, ...]:
    target, mask = slot(arguments[0]), slot(arguments[1])
    return (kernel("MaskedFill", [target, mask, zero_dimensional(target.dtype)], [target]),)


def _pad(name: str, arguments: Sequence[Argument]) -> tuple[Kernel, ...]:
    source, result = slot(arguments[0]), slot(arguments[-1])
    paddings = vector(2 * len(arguments[0]["view"]))
    return (kernel("PadV3", [source, paddings, zero_dimensional(source.dtype)], [result]),)


def _sort(name: str, arguments: Sequence[Argument]) -> tuple[Kernel, ...]:
    source, values, indices = tensors(arguments)
    narrow, wide = slot(indices, dtype="INT32"), slot(indices)
    return (
        kernel("Sort", [slot(source)], [slot(values), narrow]),
        kernel("Cast", [narrow], [wide], _HELPER_NS),
    )


def _arg_max(name: str, arguments: Sequence[Argument]) -> tuple[Kernel, ...]:
    source, indices = tensors(arguments)
    narrow, wide = slot(indices, dtype="INT32"), slot(indices)
    return (
        kernel("ArgMaxV2", [slot(source), zero_dimensional("INT64")], [narrow]),
        kernel("Cast", [narrow], [wide], _HELPER_NS),
    )


def _copy(name: str, arguments: Sequence[Argument]) -> tuple[Kernel, ...]:
    """A copy is a Cast, a Transpose, a Slice or a TensorMove: dtype and strides of the source tell."""
    target, source = arguments[:2]
    result = slot(target)
    if target["dtype"] != source["dtype"]:
        return (kernel("Cast", [slot(source)], [result]),)
    if "strides" in source:
        return (_strided_copy(source, result),)
    if numel(source["view"]) * DTYPE_BYTES.get(source["dtype"], 1) <= _LARGEST_MEMORY_COPY_BYTES:
        return ()
    return (kernel("TensorMove", [slot(source)], [result]),)


def _strided_copy(source: Mapping[str, Any], result: Slot) -> Kernel:
    view, strides = source["view"], source["strides"]
    order = sorted(range(len(view)), key=lambda axis: -strides[axis])
    dims, expected, dense = [view[axis] for axis in order], 1, True
    for axis in reversed(order):
        dense = dense and (view[axis] == 1 or strides[axis] == expected)
        expected *= view[axis]
    dtype = dtype_of(source)
    if dense:
        return kernel("Transpose", [Slot(dims_text(dims), dtype, "ND"), vector(len(view))], [result])
    outer = [numel(source["storage"]), *(strides[axis] for axis in order)]
    whole = [outer[at] // outer[at + 1] if outer[at + 1] else 1 for at in range(len(order))]
    parameters = [vector(len(view)), vector(len(view))]
    return kernel("Slice", [Slot(dims_text(whole), dtype, "ND"), *parameters], [result])


def _dynamic_quant(name: str, arguments: Sequence[Argument]) -> tuple[Kernel, ...]:
    inputs = [slot(argument) for argument in arguments[:3]]
    return (kernel("DynamicQuant", inputs, [slot(tensor) for tensor in tensors(arguments[3:])]),)


def _attention(name: str, arguments: Sequence[Argument]) -> tuple[Kernel, ...]:
    """31 slots in definition order; the two lists of lengths show their count."""
    inputs = 27 if name.endswith("V3") else 29
    slots = []
    for argument in arguments[:inputs]:
        lengths = isinstance(argument, dict) and "ints" in argument
        slots.append(vector(len(argument["ints"])) if lengths else slot(argument))
    slots += [ABSENT] * (31 - len(slots))
    result, lse = tensors(arguments)[-2:]
    second = zero_dimensional("FLOAT") if numel(lse["view"]) <= 1 else slot(lse)
    return (Kernel("FusedInferAttentionScore", tuple(slots), (slot(result), second), "MIX_AIC"),)


def _grouped_matmul(name: str, arguments: Sequence[Argument]) -> tuple[Kernel, ...]:
    order = (0, 1, 2, 3, 4, 5, 6, 8, 7)
    slots = [slot(arguments[at], stored=at == 1) for at in order]
    lists = [argument for argument in arguments[9:] if isinstance(argument, dict) and "tensors" in argument]
    return (kernel("GroupedMatmul", slots, [slot(lists[0])]),)


def _quant_matmul(name: str, arguments: Sequence[Argument]) -> tuple[Kernel, ...]:
    slots = [slot(arguments[0], stored=True), slot(arguments[1], stored=True)]
    slots += [optional_slot(arguments[at]) for at in (3, 6, 8, 2)]
    return (kernel("QuantBatchMatmulV3", slots, [slot(tensors(arguments)[-1])]),)


def _kv_cache(name: str, arguments: Sequence[Argument]) -> tuple[Kernel, ...]:
    outputs = [
        slot(arguments[5]),
        slot(arguments[6]),
        *(slot(tensor) for tensor in tensors(arguments)[-2:]),
    ]
    slots = tuple(slot(argument) for argument in arguments[:11])
    return (Kernel("KvRmsNormRopeCache", (*slots, ABSENT), tuple(outputs)),)


def _trailing(op_type: str, inputs: int, outputs: int) -> Rule:
    """Return the rule of an API whose first tensors are the inputs and whose last are the outputs."""

    def rule(name: str, arguments: Sequence[Argument]) -> tuple[Kernel, ...]:
        results = [slot(tensor) for tensor in tensors(arguments)[-outputs:]]
        return (kernel(op_type, [slot(argument) for argument in arguments[:inputs]], results),)

    return rule


def _not_collected(op_type: str) -> Rule:
    """Return the rule of a runtime helper, whose shapes the profiler does not collect."""

    def rule(name: str, arguments: Sequence[Argument]) -> tuple[Kernel, ...]:
        return (Kernel(op_type, (Slot("N/A", "N/A", "N/A"),), (Slot("N/A", "N/A", "N/A"),)),)

    return rule


def _expert_layer(name: str, arguments: Sequence[Argument]) -> tuple[Kernel, ...]:
    """Its weights lie tiled but show their logical shape."""
    slots = [slot(argument) for argument in arguments[:7]]
    for at in (1, 2):
        weights = arguments[at]["tensors"]
        view = weights[0]["view"] if len(weights) == 1 else [len(weights), *weights[0]["view"]]
        slots[at] = Slot(dims_text(view), slots[at].dtype, slots[at].format)
    results = [slot(tensor) for tensor in tensors(arguments)[-2:]]
    return (kernel(name.removeprefix("aclnn"), slots, results),)


def _reshape_and_cache(name: str, arguments: Sequence[Argument]) -> tuple[Kernel, ...]:
    slots = [slot(argument) for argument in arguments[:5]]
    return (kernel("ReshapeAndCacheNdKernel", slots, slots[2:4]),)


def _ring(name: str, arguments: Sequence[Argument]) -> tuple[Kernel, ...]:
    """15 slots: five operands, the mask, seven empty ones, the earlier partial result and its log-sum-exp."""
    slots = [slot(argument) for argument in arguments[:6]]
    slots += [*[ABSENT] * 7, slot(arguments[7]), slot(arguments[8])]
    results = [slot(tensor) for tensor in tensors(arguments)[-2:]]
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
    "aclnnDispatchFFNCombine": _expert_layer,
    "aclnnDispatchFFNCombineBF16": _expert_layer,
    "AtbRingMLA": _ring,
    "ReshapeAndCacheOperation": _reshape_and_cache,
    "aclnnInplaceZero": _not_collected("MemSet"),
    "aclnnInplaceNormal": _not_collected("DSARandomNormal"),
    "aclnnInplaceUniform": _not_collected("DSARandomUniform"),
    "aclnnInplaceRandom": _not_collected("DSARandomUniform"),
}
