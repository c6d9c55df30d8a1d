"""Fused attention unfused: pages gathered and ``scaled_dot_product_attention`` sequence by sequence (worker)."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from itertools import accumulate
from typing import TYPE_CHECKING

from perfcollect_core import Inputs, Kernel

from .attention_call import UNBOUNDED, AttentionCall
from .attention_views import output_shape, page_tokens, tokens_of

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["bind_torch"]

#: Query rows attended at once where torch has no flash kernel (unequal head sizes): bounds the score matrix.
_CHUNK = 512


def bind_torch(call: AttentionCall, inputs: Inputs) -> Kernel:
    """Bind the unfused equivalent; everything that does not depend on values is prepared here, untimed."""
    import torch

    geometry, tensors = call.geometry, inputs.tensors
    layout, _, changed = geometry.layout.partition("_")
    query = tensors["query"]
    out = torch.zeros(output_shape(geometry, geometry.value_dim), dtype=query.dtype, device=query.device)
    lse = _lse_buffer(call, query) if call.lse else None
    sink = tensors.get("learnable_sink")
    starts = (0, *accumulate(call.q_lengths))
    steps = []
    for index, length in enumerate(call.q_lengths):
        read = _reader(call, tensors, index)
        mask = _mask(call, tensors, index)
        where = (geometry.heads, index, starts[index], length)
        target = tokens_of(out, changed or layout, *where)
        sums = None if lse is None else _lse_of(lse, geometry.packed, index, starts[index], length)
        parts = [
            tokens_of(tensors[name], layout, *where) for name in ("query", "query_rope") if name in tensors
        ]
        steps.append((parts, read, mask, target, sums))

    def run() -> tuple[Tensor, Tensor | None]:
        for parts, read, mask, target, sums in steps:
            q = parts[0] if len(parts) == 1 else torch.cat(parts, -1)
            k, v = read()
            target.copy_(_attend(q, k, v, mask, call))
            if sums is None and sink is None:
                continue
            logits = _log_sum_exp(q, k, mask, call)
            if sink is not None:
                # A sink takes part in the sum but has no value.
                target.mul_(torch.sigmoid(logits - sink.float()).unsqueeze(-1).to(target.dtype))
                logits = torch.logaddexp(logits, sink.float())
            if sums is not None:
                sums.copy_(logits)
        return out, lse

    return Kernel(call=run, outputs=lambda result: result)  # type: ignore[arg-type,return-value]  # run's own tuple


def _lse_buffer(call: AttentionCall, query: Tensor) -> Tensor:
    import torch

    shape = call.geometry
    size = (shape.queries, shape.heads, 1) if shape.packed else (shape.batch, shape.heads, shape.queries, 1)
    return torch.zeros(size, dtype=torch.float32, device=query.device)


def _lse_of(lse: Tensor, packed: bool, index: int, start: int, length: int) -> Tensor:
    if packed:
        return lse[start : start + length, :, 0]
    return lse[index, :, :length, 0].transpose(0, 1)


def _reader(
    call: AttentionCall, tensors: Mapping[str, Tensor], index: int
) -> Callable[[], tuple[Tensor, Tensor]]:
    """Return what reads keys and values of one sequence as [tokens, kv_heads, dim]."""
    import torch

    geometry = call.geometry
    layout = geometry.layout.partition("_")[0]
    length = call.kv_lengths[index]
    start = sum(call.kv_lengths[:index])
    blocks = None
    if geometry.cache:
        used = math.ceil(length / geometry.block_size)
        blocks = tensors["block_table"][index, :used].to(torch.int64)
    dtype = tensors["query"].dtype

    def tokens(name: str) -> Tensor:
        if blocks is not None:
            pages = tensors[name].index_select(0, blocks)
            found = page_tokens(geometry.cache, pages, geometry.kv_heads)[:length]
        else:
            found = tokens_of(tensors[name], layout, geometry.kv_heads, index, start, length)
        if found.dtype == torch.int8:
            scale, offset = tensors[f"{name}_antiquant_scale"], tensors.get(f"{name}_antiquant_offset")
            wide = found.float()
            if offset is not None:
                wide = wide + _by_head(offset, geometry.kv_heads)
            found = (wide * _by_head(scale, geometry.kv_heads)).to(dtype)
        shared = tensors.get(f"{name}_shared_prefix")
        if shared is not None:
            prefix = tokens_of(shared, layout, geometry.kv_heads, 0, 0, call.prefix)
            found = torch.cat((prefix, found))
        return found

    def read() -> tuple[Tensor, Tensor]:
        key = tokens("key")
        value = key if tensors["value"] is tensors["key"] else tokens("value")
        if "key_rope" in tensors:
            key = torch.cat((key, tokens("key_rope")), -1)
        return key, value

    return read


def _by_head(values: Tensor, heads: int) -> Tensor:
    return values.reshape(heads, -1) if values.numel() > 1 else values.reshape(1, 1)


def _mask(call: AttentionCall, tensors: Mapping[str, Tensor], index: int) -> Tensor | None:
    """Return what is visible [q, kv] where it is not all of it or the plain causal triangle."""
    import torch

    q, kv, prefix = call.q_lengths[index], call.kv_lengths[index], call.prefix
    device = tensors["query"].device
    if call.explicit_mask:
        hidden = tensors["atten_mask"].bool()
        one = hidden.reshape(-1, *hidden.shape[-2:])[index if hidden.dim() > 2 and hidden.shape[0] > 1 else 0]
        visible = ~one[:q, :kv]
    elif call.sparse_mode in (2, 4) or call.pre_tokens < UNBOUNDED:
        shift, behind, ahead = kv - q, call.pre_tokens, call.next_tokens
        if call.sparse_mode == 2:
            shift, behind, ahead = 0, UNBOUNDED, 0
        distance = torch.arange(kv, device=device) - torch.arange(q, device=device)[:, None] - shift
        visible = (distance <= ahead) & (distance >= -behind)
    else:
        return None
    return torch.nn.functional.pad(visible, (prefix, 0), value=True)


def _attend(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, call: AttentionCall) -> Tensor:
    """Attend [q, N, D] to [kv, Nkv, D]; returns [q, N, Dv]."""
    import torch
    from torch.nn.functional import scaled_dot_product_attention as attend

    causal = call.sparse_mode == 3 and not call.explicit_mask
    rows, heads = q.shape[0], q.shape[1]
    keys, values = k.transpose(0, 1)[None], v.transpose(0, 1)[None]
    if mask is None and (rows == 1 or not causal):
        # Nothing is masked: the heads of a group become rows, so that torch does not repeat the keys for each.
        folded = q.unflatten(1, (k.shape[1], -1)).transpose(0, 1).flatten(1, 2)[None]
        out = attend(folded, keys, values, scale=call.scale)[0]
        return out.unflatten(1, (rows, -1)).transpose(0, 1).flatten(1, 2)
    grouped = k.shape[1] != heads
    whole = q.shape[-1] == v.shape[-1]
    parts = []
    for start in range(0, rows, rows if whole else _CHUNK):
        stop = rows if whole else min(start + _CHUNK, rows)
        seen = k.shape[0] - rows + stop if causal else k.shape[0]
        square = causal and seen == stop - start
        bias = None
        if mask is not None:
            bias = mask[start:stop]
        elif causal and not square and stop - start > 1:
            bias = torch.ones(stop - start, seen, dtype=torch.bool, device=q.device).tril(seen - stop + start)
        part = attend(
            q[start:stop].transpose(0, 1)[None],
            keys[:, :, :seen],
            values[:, :, :seen],
            attn_mask=bias,
            is_causal=square,
            scale=call.scale,
            enable_gqa=grouped,
        )
        parts.append(part[0].transpose(0, 1))
    return parts[0] if len(parts) == 1 else torch.cat(parts)


def _log_sum_exp(q: Tensor, k: Tensor, mask: Tensor | None, call: AttentionCall) -> Tensor:
    """Return log(sum(exp(scores))) [q, N] in fp32, which SDPA does not give."""
    import torch

    rows, total, group = q.shape[0], k.shape[0], q.shape[1] // k.shape[1]
    causal = call.sparse_mode == 3 and not call.explicit_mask
    keys = k.float().permute(1, 2, 0)
    parts = []
    for start in range(0, rows, _CHUNK):
        part = q[start : start + _CHUNK]
        scores = part.float().unflatten(1, (-1, group)).permute(1, 2, 0, 3) @ keys[:, None] * call.scale
        if mask is not None:
            scores = scores.masked_fill(~mask[start : start + _CHUNK], -torch.inf)
        elif causal and rows > 1:
            hidden = torch.ones(part.shape[0], total, dtype=torch.bool, device=q.device)
            scores = scores.masked_fill(hidden.triu(total - rows + start + 1), -torch.inf)
        parts.append(scores.logsumexp(-1).flatten(0, 1).transpose(0, 1))
    return torch.cat(parts)
