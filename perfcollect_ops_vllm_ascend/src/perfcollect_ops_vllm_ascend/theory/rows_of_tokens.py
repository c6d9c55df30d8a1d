"""Theory rows of fused norms."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from perfcollect_core import Axis, GridRequest, OperatorSpec, Row, Signature
from perfcollect_core.grid.axes import TOKENS, dim
from perfcollect_core.grid.projections import heads_of, hidden_widths
from perfcollect_core.grid.rules import token_width_axes, tokens_by_width, tokens_of
from perfcollect_core.grid.theory import TheoryRow, find_forms, form, models_of

ADD_NORM_AXES = token_width_axes()
SPLIT_AXES = (
    Axis("tokens", dim("I", 0, 0), standard="elementwise_tokens"),
    Axis("q", dim("O", 0, 1), continuous=False),
    Axis("kv", dim("O", 1, 1), continuous=False),
    Axis("d", dim("I", 1, 0), continuous=False),
)
_DECODE = 256


def add_norm_rows(spec: OperatorSpec, templates: Sequence[Row], request: GridRequest) -> Iterator[TheoryRow]:
    """Yield residual sums with their norm, with a bias where the table's rows have one."""

    def kind(signature: Signature) -> str | None:
        return "" if len(signature.input(0).shape or ()) == 2 else None

    outputs = "DT_BF16;FLOAT;DT_BF16"
    default = form("DT_BF16;DT_BF16;DT_BF16;DT_BF16", outputs)
    forms = find_forms(templates, default, kind, likes=(form("DT_BF16;DT_BF16;DT_BF16", outputs),))
    yield from tokens_by_width(
        request,
        forms,
        lambda t, d, one: (
            ((t, d), (t, d), (d,), *(((d,) if one.has(3) else (),) if len(one.input_dtypes) > 3 else ())),
            ((t, d), (t, 1), (t, d)),
        ),
        rule="add_rmsnorm_bias",
        asked=hidden_widths(request),
    )


def split_rows(spec: OperatorSpec, templates: Sequence[Row], request: GridRequest) -> Iterator[TheoryRow]:
    """Yield the split of a merged QKV projection on one rank; the rotary width is the head's."""
    one = form("DT_BF16;DT_BF16", "DT_BF16;DT_BF16;DT_BF16")
    seen: set[tuple[int, int, int]] = set()
    for model in models_of(request):
        for heads in () if model.latent else heads_of(model, request):
            d = model.head_dim
            q, kv = heads.query * d, heads.key * d
            if (q, kv, d) in seen:
                continue
            seen.add((q, kv, d))
            for t in tokens_of(request, TOKENS):
                cells = {
                    "Runtime head_dim": str(d),
                    "Runtime rope_dim": str(d),
                    "Runtime max_positions": str(max(40960, t)),
                    "Runtime qk_bias": "false",
                    "Runtime epsilon": "1e-06",
                    "Runtime phase": "decode" if t <= _DECODE else "prefill",
                }
                inputs, outputs = ((t, q + 2 * kv), (d,)), ((t, q), (t, kv), (t, kv))
                yield TheoryRow(inputs, outputs, one, f"split_qkv {model.name}", (t, q, kv, d), cells)
