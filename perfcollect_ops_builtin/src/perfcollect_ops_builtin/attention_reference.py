"""The independent answer of fused attention: explicit softmax in fp64, block by block and head by head (worker)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perfcollect_core import Inputs, Reference, Tolerance

from .attention_call import AttentionCall
from .attention_views import output_shape, tokens_of

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["attention_reference"]

_ROWS = 256


def attention_reference(call: AttentionCall, inputs: Inputs) -> Reference:
    """Compute outputs in fp64; tolerances scale with the output, whose size falls with the length attended to."""
    import torch

    geometry = call.geometry
    layout, _, changed = geometry.layout.partition("_")
    out = torch.zeros(output_shape(geometry, geometry.value_dim), dtype=torch.float64)
    packed = (geometry.queries, geometry.heads, 1)
    lse = torch.zeros(
        packed if geometry.packed else (geometry.batch, geometry.heads, geometry.queries, 1)
    ).double()
    start = 0
    for index, length in enumerate(call.q_lengths):
        where = (geometry.heads, index, start, length)
        q = tokens_of(inputs["query"], layout, *where).double().cpu()
        if geometry.rope_dim:
            q = torch.cat((q, tokens_of(inputs["query_rope"], layout, *where).double().cpu()), -1)
        k, v = _sequence(call, inputs, index, "key"), _sequence(call, inputs, index, "value")
        if geometry.rope_dim:
            k = torch.cat((k, _sequence(call, inputs, index, "key_rope")), -1)
        rows, sums = _attend(call, inputs, index, q, k, v)
        tokens_of(out, changed or layout, *where).copy_(rows)
        target = lse[start : start + length, :, 0] if geometry.packed else lse[index, :, :length, 0].T
        target.copy_(sums)
        start += length
    size = float(out.square().mean().sqrt())
    # Probabilities are rounded to the query's dtype before they weight the values, and a few heads put most of
    # their weight on one key: 5 % of the typical output is ten times the usual error.
    tolerances = (Tolerance(2e-2, 5e-2 * size), Tolerance(1e-3, 1e-2))
    return Reference((out, lse if call.lse else None), tolerances)


def _sequence(call: AttentionCall, inputs: Inputs, index: int, name: str) -> Tensor:
    """Collect the tokens of one sequence in fp64 [kv, Nkv, D], page after page."""
    import torch

    geometry, length = call.geometry, call.kv_lengths[index]
    layout = geometry.layout.partition("_")[0]
    stored = inputs[name].cpu()
    if geometry.cache:
        size = geometry.block_size
        table = inputs["block_table"][index].tolist()
        tokens = torch.cat(
            [_page(geometry.cache, stored[table[n]], geometry.kv_heads) for n in range(-(-length // size))]
        )
        tokens = tokens[:length]
    else:
        first = sum(call.kv_lengths[:index])
        tokens = tokens_of(stored, layout, geometry.kv_heads, index, first, length)
    tokens = tokens.double()
    if stored.dtype == torch.int8:
        offset = inputs.tensors.get(f"{name}_antiquant_offset")
        if offset is not None:
            tokens = tokens + offset.double().cpu().reshape(-1).expand(tokens[0].numel()).reshape(
                tokens[0].shape
            )
        scale = inputs[f"{name}_antiquant_scale"].double().cpu().reshape(-1)
        tokens = tokens * scale.expand(tokens[0].numel()).reshape(tokens[0].shape)
    shared = inputs.tensors.get(f"{name}_shared_prefix")
    if shared is not None:
        prefix = tokens_of(shared.cpu(), layout, geometry.kv_heads, 0, 0, call.prefix)
        tokens = torch.cat((prefix.double(), tokens))
    return tokens


def _page(cache: str, page: Tensor, kv_heads: int) -> Tensor:
    """Return one page as [block_size, kv_heads, dim]."""
    import torch

    match cache:
        case "BnNBsD":
            return torch.stack([page[head] for head in range(kv_heads)], 1)
        case "NZ":
            return torch.stack([torch.cat(list(page[head]), -1) for head in range(kv_heads)], 1)
    return page.reshape(page.shape[0], kv_heads, -1)


def _attend(
    call: AttentionCall, inputs: Inputs, index: int, q: Tensor, k: Tensor, v: Tensor
) -> tuple[Tensor, Tensor]:
    import torch

    heads, group = call.geometry.heads, call.geometry.heads // call.geometry.kv_heads
    sink = inputs.tensors.get("learnable_sink")
    out = torch.empty(q.shape[0], heads, v.shape[-1], dtype=torch.float64)
    sums = torch.empty(q.shape[0], heads, dtype=torch.float64)
    for start in range(0, q.shape[0], _ROWS):
        stop = min(start + _ROWS, q.shape[0])
        hidden = _hidden(call, inputs, index, start, stop)
        for head in range(heads):
            scores = q[start:stop, head] @ k[:, head // group].T * call.scale
            scores[hidden] = -torch.inf
            if sink is not None:
                extra = sink[head].double().cpu().expand(stop - start, 1)
                scores = torch.cat((scores, extra), -1)
            top = scores.amax(-1, keepdim=True)
            weights = (scores - top).exp()
            total = weights.sum(-1, keepdim=True)
            out[start:stop, head] = weights[:, : k.shape[0]] / total @ v[:, head // group]
            sums[start:stop, head] = (top + total.log())[:, 0]
    return out, sums


def _hidden(call: AttentionCall, inputs: Inputs, index: int, start: int, stop: int) -> Tensor:
    """Say which keys (prefix first) queries start..stop do not see."""
    import torch

    q, kv = call.q_lengths[index], call.kv_lengths[index]
    i = torch.arange(start, stop)[:, None]
    j = torch.arange(kv)[None]
    hidden = torch.zeros(stop - start, kv, dtype=torch.bool)
    if call.explicit_mask:
        mask = inputs["atten_mask"].cpu()
        while mask.dim() > 2:
            mask = mask[index if mask.shape[0] > 1 else 0]
        hidden = mask[start:stop, :kv] != 0
    elif call.sparse_mode == 2:
        hidden = j > i
    elif call.sparse_mode == 3:
        hidden = j - (kv - q) > i
    else:
        position = i + kv - q
        hidden = (j > position + call.next_tokens) | (j < position - call.pre_tokens)
    return torch.cat((torch.zeros(stop - start, call.prefix, dtype=torch.bool), hidden), -1)
