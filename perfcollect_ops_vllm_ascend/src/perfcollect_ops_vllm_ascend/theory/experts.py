"""Theory rows of the fused expert layer over expert-parallel ranks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from perfcollect_core import Axis, GridRequest, OperatorSpec, Row, Signature
from perfcollect_core.grid.axes import MOE_TOKENS, column, dim
from perfcollect_core.grid.projections import tp_degrees
from perfcollect_core.grid.rules import tokens_of
from perfcollect_core.grid.theory import TheoryRow, find_forms, form, models_of
from perfcollect_core.tensors import NZ

AXES = (
    # Tokens x hidden x top-k have a limit: how far a bucket reaches depends on its model.
    Axis("tokens", dim("I", 0, 0), standard="moe_tokens", high=1024, own_range=True),
    Axis("experts", dim("I", 1, 0), continuous=False),
    Axis("hidden", dim("I", 0, 1), continuous=False),
    Axis("inner", dim("I", 2, 1), continuous=False),
    Axis("EP Size", column("EP Size"), continuous=False),
)

_MOST_ELEMENTS = 58 * 2**20
_CARDS = (8, 16, 32, 64)
_MOST_LOCAL = 17
_DEFAULT = form("DT_BF16;INT8;INT8;INT32;INT64;INT64;FLOAT", "DT_BF16;INT32", f"ND;{NZ};{NZ};ND;ND;ND;ND")


def _local_experts(experts: int, request: GridRequest) -> list[int]:
    """Return how many experts one rank may have: a share of a card's, up to what the kernel takes."""
    if request.ep:
        counts = {experts // ep for ep in request.ep if experts % ep == 0}
    else:
        per_card = {experts // cards for cards in _CARDS if cards <= experts}
        counts = {p // ep for p in per_card for ep in range(1, p + 1) if p % ep == 0}
    return sorted(c for c in counts if 1 <= c <= _MOST_LOCAL)


def _kind(signature: Signature) -> str | None:
    weight = signature.input(1)
    logical = len(weight.shape or ()) == 3 and not weight.is_nz_storage
    return "" if logical and weight.dtype == "INT8" and len(signature.input(0).shape or ()) == 2 else None


def fused_rows(spec: OperatorSpec, templates: Sequence[Row], request: GridRequest) -> Iterator[TheoryRow]:
    """Yield the layers of the models for every number of experts a rank may have."""
    for one in find_forms(templates, _DEFAULT, _kind):
        seen: set[tuple[int, ...]] = set()
        for model in models_of(request):
            if not model.experts:
                continue
            h, k = model.hidden, model.top_k
            for e in _local_experts(model.experts, request):
                for tp in tp_degrees(model, request):
                    inner = model.expert_intermediate // tp
                    key = (h, k, e, inner, model.experts)
                    if model.expert_intermediate % tp or key in seen:
                        continue
                    seen.add(key)
                    cells = {
                        "EP Size": str(model.experts // e),
                        "Runtime routing_pattern": "balanced",
                        "Runtime max_output_size": "65536",
                    }
                    rule = f"dispatch_ffn_combine {model.name} tp {tp} experts {e}"
                    for m in tokens_of(request, MOE_TOKENS):
                        if m * h * k > _MOST_ELEMENTS:
                            continue
                        inputs = (
                            (m, h),
                            (e, h, 2 * inner),
                            (e, inner, h),
                            (m, k),
                            (e, 2 * inner),
                            (e, h),
                            (m, k),
                        )
                        at = (m, e, h, inner, model.experts // e)
                        yield TheoryRow(inputs, ((m, h), (e,)), one, rule, at, cells)
