"""Theory rows of routed experts: grouped products, and moving tokens to their experts and back."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from perfcollect_core import Axis, GridRequest, OperatorSpec, Row, Signature
from perfcollect_core.grid.axes import MOE_TOKENS, dim
from perfcollect_core.grid.projections import Experts, expert_layers
from perfcollect_core.grid.rules import tokens_of
from perfcollect_core.grid.theory import Form, Shape, TheoryRow, find_forms, form, models_of
from perfcollect_core.tensors import NZ, nz_storage_shape

GROUPED_AXES = (
    Axis("tokens", dim("I", 0, 0), standard="moe_tokens"),
    Axis("experts", dim("I", 1, 0), continuous=False),
    Axis("K", dim("I", 0, 1), continuous=False),
    Axis("N", dim("O", 0, 1), continuous=False),
)
PERMUTE_AXES = (
    Axis("tokens", dim("I", 0, 0), standard="moe_tokens"),
    Axis("hidden", dim("I", 0, 1), continuous=False),
    Axis("top k", dim("I", 1, 1), continuous=False),
)
UNPERMUTE_AXES = (
    Axis("tokens", dim("O", 0, 0), standard="moe_tokens"),
    Axis("hidden", dim("O", 0, 1), continuous=False),
    Axis("top k", dim("I", 2, 1), continuous=False),
)

_PLAIN = form("DT_BF16;DT_BF16;;;;;;INT64;", "DT_BF16")
_SCALED = form("INT8;INT8;;DT_BF16;;;;INT64;FLOAT", "DT_BF16")
_COUNTED = form("INT8;INT8;;;;;;INT64;", "INT32")
_SWIGLU = form("INT8;INT8;FLOAT;FLOAT;INT64", "INT8;FLOAT", f"ND;{NZ};ND;ND;ND")
#: Limits of the fused kernel.
_SWIGLU_N, _SWIGLU_K = 10240, 65536
#: Pairs of token and expert that one call can move.
_MOST_PAIRS = 16_777_214
_GROUPS = {"Runtime group_list_type": "0", "Runtime group_distribution": "multinomial"}


def _weight(one: Form, layer: Experts) -> Shape:
    if one.input_format(1) == NZ:
        return nz_storage_shape((layer.count, layer.k, layer.n), one.input_dtype(1))
    return (layer.count, layer.k, layer.n)


def _serves(request: GridRequest, tokens: int, layer: Experts) -> int:
    """Return the rows a rank's experts get for *tokens* asked exactly: its share of all chosen pairs."""
    return max(1, tokens * layer.top_k * layer.count // layer.total) if request.workloads else tokens


def grouped_rows(spec: OperatorSpec, templates: Sequence[Row], request: GridRequest) -> Iterator[TheoryRow]:
    """Yield both projections of a rank's experts: hidden is never sharded, gate and up are merged."""

    def kind(signature: Signature) -> str | None:
        weight, listed = signature.input(1), signature.input(7)
        fits = len(weight.shape or ()) == (5 if weight.is_nz_storage else 3) and len(listed.shape or ()) == 1
        bits = weight.dtype in ("BF16", "FLOAT16", "INT8") or not weight.is_nz_storage
        return "" if fits and bits else None

    for one in find_forms(templates, _PLAIN, kind, likes=(_SCALED, _COUNTED)):
        scaled, by_token = one.has(3), one.has(8)
        for layer in expert_layers(request):
            weight, rule = _weight(one, layer), f"grouped {layer.origin}"
            scale = (layer.count, layer.n) if scaled else ()
            for asked in tokens_of(request, MOE_TOKENS):
                t = _serves(request, asked, layer)
                slots: tuple[Shape, ...] = (
                    (t, layer.k),
                    weight,
                    (),
                    scale,
                    (),
                    (),
                    (),
                    (layer.count,),
                    (t,) if by_token else (),
                )
                inputs = slots[: max(8, len(one.input_dtypes))]
                at = (t, layer.count, layer.k, layer.n)
                yield TheoryRow(inputs, ((t, layer.n),), one, rule, at, _GROUPS)


def swiglu_quant_rows(
    spec: OperatorSpec, templates: Sequence[Row], request: GridRequest
) -> Iterator[TheoryRow]:
    """Yield gate and up of a rank's experts with their activation, within the kernel's limits."""

    def kind(signature: Signature) -> str | None:
        weight = signature.input(1)
        return "" if len(weight.shape or ()) == (5 if weight.is_nz_storage else 3) else None

    for one in find_forms(templates, _SWIGLU, kind):
        for layer in expert_layers(request):
            if layer.role != "gate_up" or layer.n > _SWIGLU_N or layer.k >= _SWIGLU_K:
                continue
            weight, rule = _weight(one, layer), f"grouped swiglu {layer.origin}"
            for asked in tokens_of(request, MOE_TOKENS):
                t, e, n = _serves(request, asked, layer), layer.count, layer.n
                yield TheoryRow(
                    ((t, layer.k), weight, (e, n), (t,), (e,)),
                    ((t, n // 2), (t,)),
                    one,
                    rule,
                    (t, e, layer.k, n // 2),
                    _GROUPS,
                )


def _routers(request: GridRequest) -> Iterator[tuple[int, int, int, str]]:
    """Yield (hidden, top k, experts) of the models that route."""
    found: dict[tuple[int, int, int], str] = {}
    for model in models_of(request):
        if model.experts:
            found.setdefault((model.hidden, model.top_k, model.experts), model.name)
    for key, name in sorted(found.items()):
        yield (*key, name)


def permute_rows(spec: OperatorSpec, templates: Sequence[Row], request: GridRequest) -> Iterator[TheoryRow]:
    """Yield tokens copied once for each of their experts."""

    def kind(signature: Signature) -> str | None:
        return "" if len(signature.input(1).shape or ()) == 2 else None

    default = form("DT_BF16;INT32", "DT_BF16;INT32")
    for one in find_forms(templates, default, kind):
        for hidden, k, experts, name in _routers(request):
            for t in tokens_of(request, MOE_TOKENS):
                if t * k <= _MOST_PAIRS:
                    extra = {"Num Experts": str(experts)}
                    outputs = ((t * k, hidden), (t * k,))
                    rule = f"permute {name}"
                    yield TheoryRow(((t, hidden), (t, k)), outputs, one, rule, (t, hidden, k), extra)


def unpermute_rows(spec: OperatorSpec, templates: Sequence[Row], request: GridRequest) -> Iterator[TheoryRow]:
    """Yield the weighted sum of each token's experts."""

    def kind(signature: Signature) -> str | None:
        return "" if len(signature.input(2).shape or ()) == 2 else None

    default = form("DT_BF16;INT32;DT_BF16", "DT_BF16")
    for one in find_forms(templates, default, kind):
        for hidden, k, _, name in _routers(request):
            for t in tokens_of(request, MOE_TOKENS):
                if t * k <= _MOST_PAIRS:
                    inputs = ((t * k, hidden), (t * k,), (t, k))
                    yield TheoryRow(inputs, ((t, hidden),), one, f"unpermute {name}", (t, hidden, k))
