"""What the layers of a model compute on one rank: widths of its products, heads, experts (serving's sharding)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import attrs

from perfcollect_core.specs import GridRequest

from .models import ModelShapes
from .theory import models_of

__all__ = [
    "Experts", "Heads", "activation_widths", "expert_layers", "gemm_pairs", "gemm_pairs_of", "heads_of", "hidden_widths",
    "local_heads", "model_heads", "tp_degrees", "vocabulary_slices",
]  # fmt: skip

#: Serving pads the vocabulary to a multiple of this before it shards it.
_VOCABULARY_PAD = 64


def tp_degrees(model: ModelShapes, request: GridRequest) -> tuple[int, ...]:
    """Return the tensor-parallel degrees to cover."""
    return tuple(sorted(request.tp)) or model.tp


def _even(total: int, parts: int) -> int:
    """Return the share of one part, 0 where it does not come out even: such a degree cannot be served."""
    return total // parts if total % parts == 0 else 0


@attrs.frozen
class Heads:
    """Query and key heads of one rank."""

    query: int
    key: int


def local_heads(model: ModelShapes, tp: int) -> Heads | None:
    """Return the heads of one rank, ``None`` where *tp* does not divide them; key heads are replicated past their number."""
    query = _even(model.heads, tp)
    if model.latent:
        return Heads(query, 1) if query else None
    key = _even(model.kv_heads, tp) or (1 if tp % model.kv_heads == 0 else 0)
    return Heads(query, key) if query and key else None


def gemm_pairs(model: ModelShapes, tp: int) -> dict[str, tuple[int, int]]:
    """Return (N, K) of each projection of one rank by role; a role whose width *tp* does not divide is left out."""
    h, pairs = model.hidden, {}
    heads = local_heads(model, tp)
    if heads and model.latent:
        kv_a = model.kv_lora + model.rope
        if model.q_lora:
            pairs["fused_q_a_kv_a"] = (model.q_lora + kv_a, h)
            pairs["q_a"] = (model.q_lora, h)
        pairs["kv_a"] = (kv_a, h)
        pairs["q_b" if model.q_lora else "q"] = (heads.query * model.query_dim, model.q_lora or h)
        pairs["kv_b"] = (heads.query * (model.nope + model.value_dim), model.kv_lora)
        pairs["o"] = (h, heads.query * model.value_dim)
    elif heads:
        pairs["qkv"] = ((heads.query + 2 * heads.key) * model.head_dim, h)
        pairs["o"] = (h, heads.query * model.head_dim)
    if model.index_heads:
        pairs["index_q"] = (model.index_heads * model.index_dim, model.q_lora or h)
        pairs["index_k"] = (model.index_dim, h)
        pairs["index_weights"] = (model.index_heads, h)
    for prefix, total in (
        ("dense_" if model.experts else "", model.intermediate if model.dense else 0),
        ("shared_", model.shared_intermediate),
    ):
        inner = _even(total, tp)
        if inner:
            pairs[f"{prefix}gate_up"] = (2 * inner, h)
            pairs[f"{prefix}down"] = (h, inner)
    if model.experts:
        pairs["router"] = (model.experts, h)
    vocabulary = _vocabulary(model, tp)
    if vocabulary:
        pairs["lm_head"] = (vocabulary, h)
    return pairs


def _vocabulary(model: ModelShapes, tp: int) -> int:
    padded = -(-model.vocabulary // _VOCABULARY_PAD) * _VOCABULARY_PAD
    return _even(padded, tp)


def gemm_pairs_of(request: GridRequest) -> dict[tuple[int, int], str]:
    """Return the (N, K) pairs of a request's models, each with the projections it belongs to, in descending order."""
    roles: dict[tuple[int, int], dict[str, list[int]]] = {}
    for model in models_of(request):
        for tp in tp_degrees(model, request):
            for role, pair in gemm_pairs(model, tp).items():
                roles.setdefault(pair, {}).setdefault(f"{model.name} {role}", []).append(tp)
    return {
        pair: " + ".join(f"{role} tp {' '.join(map(str, tps))}" for role, tps in roles[pair].items())
        for pair in sorted(roles, reverse=True)
    }


def hidden_widths(request: GridRequest, *, normalised: bool = False) -> set[int]:
    """Return the hidden sizes of the models, with *normalised* also the latent widths that have a norm of their own."""
    found = {model.hidden for model in models_of(request)}
    if normalised:
        found |= {width for model in models_of(request) for width in (model.q_lora, model.kv_lora) if width}
    return found


def activation_widths(request: GridRequest) -> set[int]:
    """Return the inner sizes of one rank's feed-forwards: what an activation puts out."""
    found = set()
    for model in models_of(request):
        for tp in tp_degrees(model, request):
            for total in (model.intermediate, model.shared_intermediate, model.expert_intermediate):
                found.add(_even(total, tp))
        found.add(model.expert_intermediate)
    return found - {0}


def vocabulary_slices(request: GridRequest) -> set[int]:
    """Return the vocabularies of the models, whole and of one rank."""
    slices = {
        _vocabulary(model, tp) for model in models_of(request) for tp in (1, *tp_degrees(model, request))
    }
    return slices - {0}


def heads_of(model: ModelShapes, request: GridRequest) -> Iterator[Heads]:
    """Yield the distinct local heads of a model."""
    found = (local_heads(model, tp) for tp in tp_degrees(model, request))
    yield from dict.fromkeys(heads for heads in found if heads)


def model_heads(models: Iterable[ModelShapes], request: GridRequest) -> set[int]:
    """Return the query heads of one rank of *models*."""
    return {heads.query for model in models for heads in heads_of(model, request)}


@attrs.frozen
class Experts:
    """One product of a rank's routed experts: *count* matrices (K, N), chosen by *top_k* of *total*."""

    role: str
    count: int
    k: int
    n: int
    top_k: int
    total: int
    origin: str


def expert_layers(request: GridRequest) -> tuple[Experts, ...]:
    """Return the distinct expert products: with expert parallelism whole matrices, without it sharded by TP."""
    found: dict[tuple[str, int, int, int, int, int], str] = {}
    for model in models_of(request):
        if not model.experts:
            continue
        for ep in sorted(request.ep) or model.ep:
            count = _even(model.experts, ep)
            for tp in tp_degrees(model, request) if ep == 1 else (1,):
                inner = _even(model.expert_intermediate, tp)
                if not (count and inner):
                    continue
                for role, k, n in (("gate_up", model.hidden, 2 * inner), ("down", inner, model.hidden)):
                    key = (role, count, k, n, model.top_k, model.experts)
                    found.setdefault(key, f"{model.name} experts {role} tp {tp} ep {ep}")
    return tuple(Experts(*key, origin) for key, origin in sorted(found.items(), reverse=True))
