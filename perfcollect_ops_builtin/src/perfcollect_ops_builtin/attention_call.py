"""Turn a fused attention row into the call it describes: lengths, mask, scale and the tensors that are built."""

from __future__ import annotations

import math
from collections.abc import Iterable

import attrs

from perfcollect_core import OperatorSpec, Row, Signature, TensorSpec
from perfcollect_core.lengths import integer_column

from .attention_geometry import Geometry, find_geometry
from .attention_layout import name_slot
from .attention_lengths import key_lengths, query_tokens, sequence_count

__all__ = ["UNBOUNDED", "AttentionCall", "resolve_call", "visible_pairs"]

UNBOUNDED = 2147483647
_COMPRESSED = (2048, 2048)


def _counts(values: Iterable[int]) -> tuple[int, ...]:
    return tuple(values)


@attrs.frozen(kw_only=True)
class AttentionCall:
    """Everything a binding needs besides tensors; its fields travel as ``Case.params``.

    ``q_lengths`` and ``kv_lengths`` count the tokens of each sequence, whatever the API wants. ``explicit_mask``:
    slot 4 holds one entry for each query and key, not the compressed triangle. ``q_listed`` and ``kv_listed``: the
    recorded call was given the lengths, needed or not.
    """

    geometry: Geometry
    q_lengths: tuple[int, ...] = attrs.field(converter=_counts)
    kv_lengths: tuple[int, ...] = attrs.field(converter=_counts)
    scale: float
    sparse_mode: int
    pre_tokens: int = UNBOUNDED
    next_tokens: int = UNBOUNDED
    explicit_mask: bool = False
    lse: bool = False
    prefix: int = 0
    q_listed: bool = False
    kv_listed: bool = False


def visible_pairs(call: AttentionCall) -> int:
    """Count the (query, key) pairs of one head that are not masked."""
    pairs = 0
    for q, kv in zip(call.q_lengths, call.kv_lengths, strict=True):
        if call.sparse_mode == 3 or call.explicit_mask:
            pairs += q * kv - q * (q - 1) // 2
        elif call.sparse_mode in (2, 4) or call.pre_tokens < UNBOUNDED:
            shift = 0 if call.sparse_mode == 2 else kv - q
            behind = UNBOUNDED if call.sparse_mode == 2 else call.pre_tokens
            ahead = 0 if call.sparse_mode == 2 else call.next_tokens
            pairs += sum(
                max(0, min(kv, i + shift + ahead + 1) - max(0, i + shift - behind)) for i in range(q)
            )
        else:
            pairs += q * kv
    return pairs + call.prefix * sum(call.q_lengths)


def resolve_call(
    spec: OperatorSpec, row: Row, signature: Signature, assumptions: list[str]
) -> tuple[AttentionCall, dict[str, TensorSpec]]:
    """Resolve the call and the tensors it needs; what had to be assumed is added to *assumptions*.

    Raises:
        ValueError: No such call can be made; ``NotRecorded``: the row does not say which.
    """
    geometry = find_geometry(signature, row, assumptions)
    count = sequence_count(geometry, signature, row)
    queries = query_tokens(geometry, row, count, assumptions)
    keys = key_lengths(spec, geometry, signature, row, queries, assumptions)
    sparse_mode, explicit = _mask(geometry, signature, row, assumptions)
    if sparse_mode == 3:
        for index, (q, kv) in enumerate(zip(queries, keys, strict=True)):
            if kv < q:
                raise ValueError(
                    f"sequence {index} has {kv} keys for {q} causal queries, expected as many or more"
                )
    bounds = {}
    for name in ("pre_tokens", "next_tokens"):
        recorded = integer_column(row, f"Runtime {name}")
        if recorded is not None:
            bounds[name] = recorded
        elif sparse_mode == 4:
            bounds[name] = 0 if name == "next_tokens" else UNBOUNDED
            assumptions.append(f"{name}={bounds[name]} (band width not recorded)")
    prefix = signature.input(21)
    lse = signature.output(1)
    call = AttentionCall(
        geometry=geometry,
        q_lengths=queries,
        kv_lengths=keys,
        scale=_scale(geometry),
        sparse_mode=sparse_mode,
        explicit_mask=explicit,
        lse=lse.shape is not None and lse.numel >= geometry.heads * geometry.queries,
        prefix=_prefix_length(geometry, prefix),
        q_listed=not signature.input(5).is_absent,
        kv_listed=not signature.input(6).is_absent,
        **bounds,
    )
    return call, _tensors(call, signature, assumptions)


def _scale(geometry: Geometry) -> float:
    # Absorbed MLA keeps the scale of the 128 + 64 wide heads it was trained with.
    width = 128 + geometry.rope_dim if geometry.absorbed else geometry.head_dim + geometry.rope_dim
    return float(width**-0.5)


def _mask(geometry: Geometry, signature: Signature, row: Row, assumptions: list[str]) -> tuple[int, bool]:
    mask = signature.input(4)
    mode = integer_column(row, "Runtime sparse_mode")
    if mode is not None and mode not in (0, 1, 2, 3, 4):
        raise ValueError(f"column 'Runtime sparse_mode' is {mode}, expected 0 to 4")
    if mask.shape is None:
        if (
            mode is None
            and row.get("Seq Len")
            and signature.input(3).is_absent
            and len(signature.inputs) == 3
        ):
            assumptions.append("sparse_mode=3 (three recorded slots: causal context attention)")
            mode = 3
        if mode in (2, 3, 4):
            assumptions.append(f"atten_mask=2048,2048 (sparse mode {mode} needs it, slot 4 records none)")
        return mode or 0, False
    if mask.shape == _COMPRESSED and mode in (None, 2, 3, 4):
        if mode is None:
            assumptions.append("sparse_mode=3 (slot 4 holds the compressed 2048 x 2048 mask)")
        return 3 if mode is None else mode, False
    if mode in (2, 3, 4):
        raise ValueError(f"{name_slot(4, mask)}, expected 2048,2048 with sparse mode {mode}")
    wanted = (geometry.queries, geometry.keys or mask.shape[-1])
    if geometry.packed or mask.shape[-2:] != wanted or math.prod(mask.shape[:-2]) not in (1, geometry.batch):
        raise ValueError(
            f"{name_slot(4, mask)}, expected 2048,2048 or the {geometry.queries} queries by the keys of each sequence"
        )
    return mode or 0, True


def _prefix_length(geometry: Geometry, prefix: TensorSpec) -> int:
    if prefix.shape is None:
        return 0
    if geometry.packed or len(prefix.shape) != (3 if geometry.layout == "BSH" else 4) or prefix.shape[0] != 1:
        shape = ",".join(map(str, prefix.shape))
        raise ValueError(
            f"slot 21 (key_shared_prefix) holds {shape}, expected one sequence in layout {geometry.layout}"
        )
    return prefix.shape[2 if geometry.layout.startswith("BNSD") else 1]


def _tensors(call: AttentionCall, signature: Signature, assumptions: list[str]) -> dict[str, TensorSpec]:
    geometry = call.geometry
    names = {
        "query": 0,
        "key": 1,
        "value": 2,
        "atten_mask": 4,
        "block_table": 14,
        "key_antiquant_scale": 17,
        "key_antiquant_offset": 18,
        "value_antiquant_scale": 19,
        "value_antiquant_offset": 20,
        "key_shared_prefix": 21,
        "value_shared_prefix": 22,
        "query_rope": 24,
        "key_rope": 25,
        "learnable_sink": 28,
    }
    tensors = {
        name: signature.input(index) for name, index in names.items() if not signature.input(index).is_absent
    }
    if call.sparse_mode in (2, 3, 4):
        tensors.setdefault("atten_mask", TensorSpec(_COMPRESSED, "INT8", "ND"))
    if geometry.absorbed and geometry.cache and signature.input(2).shape == signature.input(1).shape:
        # One latent cache is passed twice: two buffers would double its memory traffic.
        del tensors["value"]
        assumptions.append("value=key (absorbed MLA: one latent cache)")
    query, key = tensors["query"], tensors["key"]
    for index, name in ((0, "query"), (1, "key"), (2, "value")):
        tensor = signature.input(index)
        wanted = (query.dtype,) if index == 0 else (query.dtype, "INT8")
        if tensor.dtype not in wanted or not tensor.dtype:
            raise ValueError(
                f"slot {index} ({name}) has dtype {tensor.dtype!r}, expected {' or '.join(wanted)!r}"
            )
    if key.dtype == "INT8":
        channels = geometry.kv_heads * geometry.head_dim
        for index, name in ((17, "key_antiquant_scale"), (19, "value_antiquant_scale")):
            if signature.input(index).numel not in (1, channels):
                raise ValueError(
                    f"slot {index} ({name}) holds {signature.input(index).numel} values, expected 1 or {channels} for "
                    "an int8 cache"
                )
    return tensors
