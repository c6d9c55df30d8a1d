"""Theory rows of kernels that no operator replays: data for a consumer, generated only where they are named."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import product

import attrs

from perfcollect_core.cases import Row
from perfcollect_core.specs import Axis, GridRequest, OperatorSpec

from .axes import (
    ATTENTION_BATCHES,
    GEMM_TOKENS,
    HEAD_DIMS,
    HEADS,
    KV_HEADS,
    SAMPLING_BATCHES,
    TOKENS,
    VOCABULARIES,
    WIDTHS,
    dim,
    doubling,
)
from .rules import cache_blocks, tokens_of
from .theory import Form, Shape, TheoryRow, find_forms, form

__all__ = ["DATA_ONLY", "DataOnlyRule", "data_only_rule", "is_data_only"]

Shapes = tuple[tuple[Shape, ...], tuple[Shape, ...]]
_NOTE = "(not replayable)"
_BF16 = "DT_BF16"
_SMALL = doubling(1, 64)


@attrs.frozen(eq=False)
class DataOnlyRule:
    """A Cartesian product of axes and the shapes at each of its points; called like an operator's rule.

    The first axis is the tokens of a workload where ``asks_tokens``.
    """

    name: str
    default: Form
    values: tuple[tuple[int, ...], ...]
    axes: tuple[Axis, ...]
    shapes: Callable[..., Shapes]
    asks_tokens: bool = True

    def __call__(
        self, spec: OperatorSpec, templates: Sequence[Row], request: GridRequest
    ) -> Iterator[TheoryRow]:
        first = tokens_of(request, self.values[0]) if self.asks_tokens else self.values[0]
        rule = f"{self.name} {_NOTE}"
        for one in find_forms(templates, self.default, self._fits):
            for at in product(first, *self.values[1:]):
                inputs, outputs = self.shapes(*at)
                yield TheoryRow(inputs, outputs, one, rule, at)

    def _fits(self, signature: object) -> str | None:
        """Refuse a row whose ranks are not the rule's."""
        inputs, _outputs = self.shapes(*(values[-1] for values in self.values))
        found = [len(t.shape or ()) for t in getattr(signature, "inputs", ())]
        ranks = [len(shape) for shape in inputs]
        return "" if found[: len(ranks)] == ranks[: len(found)] else None


def _axis(name: str, side: str, slot: int, index: int, standard: str = "") -> Axis:
    return Axis(name, dim(side, slot, index), standard=standard, continuous=bool(standard))


_TOKENS, _D = _axis("tokens", "O", 0, 0, "elementwise_tokens"), _axis("D", "O", 0, 1, "width")
_OUT = (_TOKENS, _D)
_IN = (_axis("tokens", "I", 0, 0, "elementwise_tokens"), _axis("D", "I", 0, 1, "width"))


def _by_width(name: str, words: str, outputs: str, shapes: Callable[[int, int], Shapes]) -> DataOnlyRule:
    return DataOnlyRule(name, form(words, outputs), (TOKENS, WIDTHS), _OUT, shapes)


_BINARY = _by_width("elementwise_binary", f"{_BF16};{_BF16}", _BF16, lambda t, d: (((t, d),) * 2, ((t, d),)))
_COMPARE = _by_width(
    "elementwise_binary", f"{_BF16};{_BF16}", "BOOL", lambda t, d: (((t, d),) * 2, ((t, d),))
)
_LOGICAL = _by_width("elementwise_binary", "BOOL;BOOL", "BOOL", lambda t, d: (((t, d),) * 2, ((t, d),)))
_INTEGER = _by_width("elementwise_binary", "INT64;INT64", "INT64", lambda t, d: (((t, d),) * 2, ((t, d),)))
_UNARY = _by_width("elementwise_unary", _BF16, _BF16, lambda t, d: (((t, d),), ((t, d),)))
_CAST = _by_width("elementwise_unary", _BF16, "FLOAT", lambda t, d: (((t, d),), ((t, d),)))
_NOT = _by_width("elementwise_unary", "BOOL", "BOOL", lambda t, d: (((t, d),), ((t, d),)))
_ADD_NORM = _by_width(
    "add_rmsnorm", ";".join([_BF16] * 3), f"{_BF16};FLOAT;{_BF16}",
    lambda t, d: (((t, d), (t, d), (d,)), ((t, d), (t, 1), (t, d))),
)  # fmt: skip
_ADD_NORM_QUANT = _by_width(
    "add_rmsnorm_dynamic_quant", ";".join([_BF16] * 4), f"INT8;INT8;{_BF16};FLOAT;FLOAT",
    lambda t, d: (((t, d), (t, d), (d,), (d,)), ((t, d), (t, d), (t, d), (t,), (t,))),
)  # fmt: skip
_QUANT = _by_width(
    "quant", ";".join([_BF16] * 3), "INT8", lambda t, d: (((t, d), (d,), (d,)), ((t, d),))
)  # fmt: skip
_BROADCAST = _by_width("broadcast_to", f"{_BF16};INT64", _BF16, lambda t, d: (((1, d), (2,)), ((t, d),)))
_REDUCE = DataOnlyRule(
    "reduce_sum", form(f"{_BF16};INT64", _BF16), (TOKENS, WIDTHS), _IN, lambda t, d: (((t, d), (1,)), ((t,),))
)
_TRANSPOSE = DataOnlyRule(
    "transpose",
    form(f"{_BF16};INT64", _BF16),
    (TOKENS, WIDTHS),
    _IN,
    lambda t, d: (((t, d), (2,)), ((d, t),)),
)
_SLICE = DataOnlyRule(
    "slice", form(f"{_BF16};INT64;INT64", _BF16), (TOKENS[1:], WIDTHS),
    (attrs.evolve(_IN[0], low=4), _IN[1]), lambda t, d: (((t, d), (2,), (2,)), ((t // 2, d),)),
)  # fmt: skip
_TILE = DataOnlyRule(
    "tile", form(f"{_BF16};INT64", _BF16), (TOKENS, doubling(64, 2048)),
    (_IN[0], _axis("D", "I", 0, 1, "tile.D")), lambda t, d: (((t, d), (2,)), ((t, 2 * d),)),
)  # fmt: skip
_CONCAT = DataOnlyRule(
    "concat", form(f"{_BF16};{_BF16}", _BF16), (TOKENS, doubling(64, 4096)),
    (_IN[0], _axis("D", "I", 0, 1, "concat.D")), lambda t, d: (((t, d), (t, d)), ((t, 2 * d),)),
)  # fmt: skip
_AS_STRIDED = DataOnlyRule(
    "as_strided", form(f"{_BF16};INT64;INT64;INT64", _BF16), (_SMALL, (1, 4, 8, 16, 32, 64, 128), HEAD_DIMS),
    (
        _axis("batch", "O", 0, 0, "as_strided.batch"),
        _axis("heads", "O", 0, 1, "as_strided.heads"),
        _axis("dim", "O", 0, 2, "head_dim"),
    ),
    lambda b, h, d: (((2 * b * h * d,), (3,), (3,), (1,)), ((b, h, d),)), asks_tokens=False,
)  # fmt: skip
_GATHER = DataOnlyRule(
    "gather_v3", form(f"{_BF16};INT64;INT64", _BF16), (TOKENS, TOKENS, WIDTHS),
    (
        _axis("indices", "I", 1, 0, "elementwise_tokens"),
        _axis("rows", "I", 0, 0, "elementwise_tokens"),
        _axis("D", "I", 0, 1, "width"),
    ),
    lambda t, rows, d: (((rows, d), (t,), (1,)), ((t, d),)),
)  # fmt: skip
_ROPE = DataOnlyRule(
    "triton_rope", form(";".join([_BF16] * 3), f"{_BF16};{_BF16}"), (TOKENS, HEADS, (64, 128)),
    (_IN[0], _axis("heads", "I", 0, 1, "heads"), _axis("width", "I", 0, 2)),
    lambda t, h, r: (((t, h, r), (t, 1, r), (max(t, 2048), r)), ((t, h, r), (t, 1, r))),
)  # fmt: skip
_TOP_P = DataOnlyRule(
    "apply_topk_top_p", form("FLOAT;FLOAT;INT32;FLOAT", "FLOAT"), (SAMPLING_BATCHES, VOCABULARIES),
    (_axis("batch", "I", 0, 0, "sampling.batch"), _axis("vocabulary", "I", 0, 1, "sampling.vocab")),
    lambda b, v: (((b, v), (b, v), (b,), (b,)), ((b, v),)), asks_tokens=False,
)  # fmt: skip
_UPDATE = DataOnlyRule(
    "attention_update", form(";".join([_BF16] * 4), f"{_BF16};{_BF16}"), (ATTENTION_BATCHES, HEADS, HEAD_DIMS),
    (
        _axis("batch", "I", 0, 0, "attention_batch"),
        _axis("heads", "I", 0, 1, "heads"),
        _axis("dim", "I", 0, 3, "head_dim"),
    ),
    lambda b, h, d: (((b, h, 1, d),) * 4, ((b, h, 1, d),) * 2), asks_tokens=False,
)  # fmt: skip
_GATING = DataOnlyRule(
    # The bias has one value for each expert, and so has the third output.
    "moe_gating_topk", form("FLOAT;FLOAT", "FLOAT;INT32;FLOAT"), (TOKENS, (64, 128, 256), (2, 4, 8)),
    (
        _IN[0],
        _axis("experts", "I", 0, 1, "moe_gating_topk.experts"),
        _axis("topk", "O", 0, 1, "moe_gating_topk.topk"),
    ),
    lambda t, e, k: (((t, e), (e,)), ((t, k), (t, k), (t, e))),
)  # fmt: skip
_CACHE = DataOnlyRule(
    "reshape_and_cache", form(";".join([_BF16] * 4) + ";INT32", f"{_BF16};{_BF16}"), (TOKENS, KV_HEADS, HEAD_DIMS),
    (_IN[0], _axis("key heads", "I", 0, 1, "kv_heads"), _axis("head dim", "I", 0, 2, "head_dim")),
    lambda t, h, d: (
        ((t, h, d), (t, h, d), (cache_blocks(t), 128, h, d), (cache_blocks(t), 128, h, d), (t,)),
        ((cache_blocks(t), 128, h, d),) * 2,
    ),
)  # fmt: skip
_LOAD = DataOnlyRule(
    "paged_cache_load", form(f"{_BF16};{_BF16};INT32;INT32;{_BF16};{_BF16};INT32", f"{_BF16};{_BF16}"),
    (TOKENS, HEAD_DIMS, _SMALL),
    (
        _axis("tokens", "I", 4, 0, "elementwise_tokens"),
        _axis("dim", "I", 0, 3, "head_dim"),
        _axis("batch", "I", 3, 0, "paged_cache_load.batch"),
    ),
    lambda t, d, b: (
        (
            (cache_blocks(t), 128, 1, d), (cache_blocks(t), 128, 1, 64), (b, -(-t // (128 * b))), (b,), (t, 1, d),
            (t, 1, 64), (b,),
        ),
        ((t, 1, d), (t, 1, 64)),
    ),
)  # fmt: skip
_PRODUCT = DataOnlyRule(
    "matmul", form(f"{_BF16};{_BF16}", _BF16), (GEMM_TOKENS, WIDTHS, WIDTHS),
    (_axis("M", "O", 0, 0, "gemm_tokens"), _axis("N", "O", 0, 1, "width"), _axis("K", "I", 0, 1, "width")),
    lambda m, n, k: (((m, k), (n, k)), ((m, n),)),
)  # fmt: skip
_BATCHED = DataOnlyRule(
    "batch_matmul_nd", form(f"{_BF16};{_BF16}", _BF16),
    (GEMM_TOKENS, (1, 2, 4, 8, 16, 32), (64, 128, 256, 512, 1024), (64, 128, 256, 512, 1024)),
    (
        _axis("M", "I", 0, 1, "gemm_tokens"),
        _axis("batch", "I", 0, 0, "batch_matmul_nd.batch"),
        _axis("K", "I", 0, 2, "batch_matmul_nd.K"),
        _axis("N", "O", 0, 2, "batch_matmul_nd.N"),
    ),
    lambda m, b, k, n: (((b, m, k), (b, k, n)), ((b, m, n),)),
)  # fmt: skip

#: The rule of each kernel type that is data only.
DATA_ONLY: dict[str, DataOnlyRule] = {
    **dict.fromkeys(
        ("AddAiCore", "Mul", "MulAiCore", "Sub", "SubAiCore", "RealDiv", "muls_add_kernel"), _BINARY
    ),
    **dict.fromkeys(("Less", "LessAiCore", "Equal", "GreaterEqual", "NotEqual"), _COMPARE),
    **dict.fromkeys(("LogicalAnd", "LogicalAndAiCore"), _LOGICAL),
    **dict.fromkeys(("FloorDiv", "FloorMod"), _INTEGER),
    **dict.fromkeys(("ZerosLike", "Fill", "Log", "Muls", "Neg", "Cumsum"), _UNARY),
    **dict.fromkeys(("Cast", "CastAiCore"), _CAST),
    **dict.fromkeys(("LogicalNot", "LogicalNotAiCore"), _NOT),
    **dict.fromkeys(("AddRmsNorm", "InplaceAddRmsNorm"), _ADD_NORM),
    **dict.fromkeys(("AddRmsNormDynamicQuant", "AddRmsNormDynamicQuantAiCore"), _ADD_NORM_QUANT),
    "AscendQuantV2Aicore": _QUANT,
    "BroadcastTo": _BROADCAST,
    "ReduceSum": _REDUCE,
    "TransposeAiCore": _TRANSPOSE,
    "SliceAiCore": _SLICE,
    "Tile": _TILE,
    "ConcatD": _CONCAT,
    **dict.fromkeys(("AsStrided", "AsStridedAiCore"), _AS_STRIDED),
    **dict.fromkeys(("GatherV3",), _GATHER),
    "_triton_rope": _ROPE,
    **dict.fromkeys(("ApplyTopKTopPCustom", "ApplyTopKTopPWithSorted"), _TOP_P),
    "AttentionUpdate": _UPDATE,
    "MoeGatingTopK": _GATING,
    "reshape_and_cache_200000000": _CACHE,
    "PagedCacheLoadNdKernel": _LOAD,
    "MatMul": _PRODUCT,
    "BatchMatMulNd": _BATCHED,
}


def is_data_only(kernel: str) -> bool:
    """Tell whether *kernel* has a rule here."""
    return kernel in DATA_ONLY


def data_only_rule(kernel: str) -> DataOnlyRule:
    """Return the rule of *kernel*."""
    return DATA_ONLY[kernel]
