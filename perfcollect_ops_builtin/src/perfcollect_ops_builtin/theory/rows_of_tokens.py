"""Theory rows of kernels that work on tokens by width: element-wise, norms, quantisation, activation, copies."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from perfcollect_core import Axis, GridRequest, OperatorSpec, Row, Signature
from perfcollect_core.grid.axes import HEADS, TOKENS, dim
from perfcollect_core.grid.projections import (
    activation_widths,
    gemm_pairs_of,
    hidden_widths,
    model_heads,
    vocabulary_slices,
)
from perfcollect_core.grid.rules import token_width_axes, tokens_by_width, tokens_of
from perfcollect_core.grid.theory import TheoryRow, find_forms, form, models_of, values_of
from perfcollect_core.tensors import DTYPE_BYTES

TOKEN_AXES = token_width_axes()
#: Small copies are a memcpy and no kernel: a bucket begins where its copies are large enough.
MOVE_AXES = token_width_axes(own_range=True, low=16)
ROPE_AXES = (
    Axis("tokens", dim("I", 0, 0), standard="elementwise_tokens"),
    Axis("heads", dim("I", 0, 1), standard="heads"),
)

_TWO = form("DT_BF16;DT_BF16", "DT_BF16")
_ONE = form("DT_BF16", "DT_BF16")
_LEAST_MOVED = 262_144
_MEMCPY_BYTES = 400_000
_ROPE_WIDTH = 64


def _two_axes(signature: Signature) -> bool:
    return len(signature.input(0).shape or ()) == 2


def _second_kind(signature: Signature) -> str | None:
    """Say how the second operand of a sum stands to the first."""
    x, y = signature.input(0).shape or (), signature.input(1).shape
    if len(x) != 2 or signature.output().shape != x:
        return None
    kinds: dict[tuple[int, ...] | None, str] = {
        None: "scalar",
        x[1:]: "vector",
        (1, x[1]): "row",
        (x[0], 1): "column",
        x: "",
    }
    return kinds.get(y)


def add_rows(spec: OperatorSpec, templates: Sequence[Row], request: GridRequest) -> Iterator[TheoryRow]:
    """Yield sums of two tensors, or of what the table's rows broadcast."""
    kinds: dict[str, Callable[[int, int], tuple[int, ...]]] = {
        "": lambda t, d: (t, d),
        "column": lambda t, d: (t, 1),
        "row": lambda t, d: (1, d),
        "vector": lambda t, d: (d,),
        "scalar": lambda t, d: (),
    }
    yield from tokens_by_width(
        request,
        find_forms(templates, _TWO, _second_kind),
        lambda t, d, one: (((t, d), kinds[one.kind](t, d)), ((t, d),)),
        rule="elementwise",
        asked=hidden_widths(request),
    )


def masked_fill_rows(
    spec: OperatorSpec, templates: Sequence[Row], request: GridRequest
) -> Iterator[TheoryRow]:
    """Yield the masking of tokens outside a vocabulary shard, and of logits where a row has a full mask."""

    def kind(signature: Signature) -> str | None:
        x, mask = signature.input(0).shape or (), signature.input(1).shape
        known: dict[tuple[int, ...], str] = (
            {(*x[:1], 1): "", x: "full"} if len(x) == 2 and signature.input(2).shape is None else {}
        )
        return known.get(mask or ())

    yield from tokens_by_width(
        request,
        find_forms(templates, form("DT_BF16;BOOL;DT_BF16", "DT_BF16"), kind),
        lambda t, d, one: (((t, d), (t, d) if one.kind else (t, 1), ()), ((t, d),)),
        rule="masked_fill",
        asked=hidden_widths(request),
    )


def swiglu_rows(spec: OperatorSpec, templates: Sequence[Row], request: GridRequest) -> Iterator[TheoryRow]:
    """Yield activations of gate and up side by side."""

    def kind(signature: Signature) -> str | None:
        x, out = signature.input(0).shape or (), signature.output().shape or ()
        return "" if len(x) == 2 == len(out) and x[1] == 2 * out[1] else None

    yield from tokens_by_width(
        request,
        find_forms(templates, _ONE, kind),
        lambda t, d, one: (((t, 2 * d),), ((t, d),)),
        rule="swiglu",
        asked=activation_widths(request),
    )


def softmax_rows(spec: OperatorSpec, templates: Sequence[Row], request: GridRequest) -> Iterator[TheoryRow]:
    """Yield softmax over router scores and logits."""
    experts = {model.experts for model in models_of(request)}
    yield from tokens_by_width(
        request,
        find_forms(templates, form("FLOAT", "FLOAT"), lambda s: "" if _two_axes(s) else None),
        lambda t, d, one: (((t, d),), ((t, d),)),
        rule="softmax",
        asked=experts | vocabulary_slices(request),
    )


def move_rows(spec: OperatorSpec, templates: Sequence[Row], request: GridRequest) -> Iterator[TheoryRow]:
    """Yield copies that are large enough to be a kernel."""
    yield from tokens_by_width(
        request,
        find_forms(templates, _ONE, lambda s: "" if _two_axes(s) else None),
        lambda t, d, one: (((t, d),), ((t, d),)),
        rule="tensor_move",
        asked=hidden_widths(request),
        keep=lambda t, d, one: (
            t * d >= _LEAST_MOVED and t * d * DTYPE_BYTES.get(one.input_dtype(0), 2) > _MEMCPY_BYTES
        ),
    )


def rms_norm_rows(spec: OperatorSpec, templates: Sequence[Row], request: GridRequest) -> Iterator[TheoryRow]:
    """Yield norms of tokens."""
    yield from tokens_by_width(
        request,
        find_forms(
            templates, form("DT_BF16;DT_BF16", "DT_BF16;FLOAT"), lambda s: "" if _two_axes(s) else None
        ),
        lambda t, d, one: (((t, d), (d,)), ((t, d), (t, 1))),
        rule="rmsnorm",
        asked=hidden_widths(request, normalised=True),
    )


def _product_widths(request: GridRequest) -> set[int]:
    """Return the inner sizes of the models' products: what is quantised in front of them."""
    return {k for _, k in gemm_pairs_of(request)}


def quantise_rows(spec: OperatorSpec, templates: Sequence[Row], request: GridRequest) -> Iterator[TheoryRow]:
    """Yield quantisation with a scale (and an offset) for each channel, to INT8."""

    def kind(signature: Signature) -> str | None:
        x, scale = signature.input(0).shape or (), signature.input(1).shape or ()
        fits = len(x) == 2 and scale in (x[1:], (1,)) and signature.output().dtype == "INT8"
        return ("tensor" if scale == (1,) != x[1:] else "") if fits else None

    forms = find_forms(
        templates,
        form("DT_BF16;DT_BF16;DT_BF16", "INT8"),
        kind,
        likes=(form("DT_BF16;DT_BF16", "INT8"),),
    )
    for one in forms:
        slots = 2 if one.has(2) else 1
        blank = ((),) * (len(one.input_dtypes) - 1 - slots)
        yield from tokens_by_width(
            request,
            (one,),
            lambda t, d, one, slots=slots, blank=blank: (  # type: ignore[misc]  # bound per form
                ((t, d), *(((1,) if one.kind else (d,)),) * slots, *blank),
                ((t, d),),
            ),
            rule="quant",
            asked=_product_widths(request),
        )


def dynamic_quant_rows(
    spec: OperatorSpec, templates: Sequence[Row], request: GridRequest
) -> Iterator[TheoryRow]:
    """Yield quantisation with a scale found for each token, smoothed where the table's rows are."""

    def kind(signature: Signature) -> str | None:
        x, y, scale = signature.input(0).shape or (), signature.output(0), signature.output(1)
        smooth = signature.input(1).shape
        plain = len(x) == 2 and y.dtype == "INT8" and scale.shape == x[:1] and smooth in (None, x[1:])
        return "" if plain else None

    forms = find_forms(
        templates, form("DT_BF16", "INT8;FLOAT"), kind, likes=(form("DT_BF16;DT_BF16", "INT8;FLOAT"),)
    )
    yield from tokens_by_width(
        request,
        forms,
        lambda t, d, one: (((t, d), (d,)) if one.has(1) else ((t, d),), ((t, d), (t,))),
        rule="dynamic_quant",
        asked=_product_widths(request),
    )


def rope_rows(spec: OperatorSpec, templates: Sequence[Row], request: GridRequest) -> Iterator[TheoryRow]:
    """Yield the rotation of the rotary parts of latent attention, 64 wide, of every head count and of the shared key."""

    def kind(signature: Signature) -> str | None:
        x, cos = signature.input(0).shape or (), signature.input(1).shape or ()
        return "" if len(x) == 4 and x[2:] == (1, _ROPE_WIDTH) and cos == (x[0], 1, 1, _ROPE_WIDTH) else None

    latent = [model for model in models_of(request) if model.rope == _ROPE_WIDTH]
    asked = model_heads(latent, request) | ({1} if latent else set())
    heads = values_of(request, HEADS, asked)
    default = form("DT_BF16;DT_BF16;DT_BF16", "DT_BF16")
    for one in find_forms(templates, default, kind):
        for t in tokens_of(request, TOKENS):
            table = (t, 1, 1, _ROPE_WIDTH)
            for h in heads:
                x = (t, h, 1, _ROPE_WIDTH)
                yield TheoryRow((x, table, table), (x,), one, "interleave_rope", (t, h))
