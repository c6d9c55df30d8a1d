"""Attention with log-sum-exp and the merge of two partial results on stock torch (worker)."""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING, cast

from perfcollect_core import Case, Inputs, Kernel, Reference, TensorSpec, Tolerance, ValueMaker
from perfcollect_core.lengths import case_lengths

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["bind_torch", "earlier_chunk", "ring_reference"]

#: Keys of the earlier chunk that pre_out and prev_lse come from.
_EARLIER_KEYS = 256
#: Query rows attended at once: bounds the score matrix.
_ROWS = 512


def earlier_chunk(q_nope: Tensor, q_rope: Tensor, make: ValueMaker, scale: float) -> tuple[Tensor, Tensor]:
    """Attend to random keys and return (out [T,N,128], lse [N,T]): what an earlier ring step leaves."""
    import torch

    heads = q_nope.shape[1]
    keys, values = (make.normal(TensorSpec((heads, _EARLIER_KEYS, width), "FLOAT")) for width in (192, 128))
    query = torch.cat((q_nope, q_rope), -1).float().transpose(0, 1)
    scores = query @ keys.transpose(1, 2) * scale
    out = scores.softmax(-1) @ values
    return out.transpose(0, 1).to(q_nope.dtype).contiguous(), scores.logsumexp(-1)


def bind_torch(case: Case, inputs: Inputs) -> Kernel:
    """Bind attention sequence by sequence, its log-sum-exp, and the merge."""
    import torch

    causal, merge, scale = case.params["causal"], case.params["merge"], cast("float", case.params["scale"])
    queries, keys = case_lengths(case)
    spans = list(
        zip(accumulate(queries, initial=0), queries, accumulate(keys, initial=0), keys, strict=False)
    )
    group = inputs["q_nope"].shape[1] // inputs["k_nope"].shape[1]

    def run() -> tuple[Tensor, Tensor]:
        query = torch.cat((inputs["q_nope"], inputs["q_rope"]), -1).transpose(0, 1)
        key = torch.cat((inputs["k_nope"], inputs["k_rope"]), -1).transpose(0, 1)
        value = inputs["value"].transpose(0, 1)
        outs, sums = [], []
        for start, q, first, kv in spans:
            if not kv:
                outs.append(torch.zeros_like(inputs["q_nope"][start : start + q]).transpose(0, 1))
                sums.append(torch.full((*query.shape[:1], q), -torch.inf, device=query.device))
                continue
            k, v = (part[:, first : first + kv].repeat_interleave(group, 0) for part in (key, value))
            for row in range(0, q, _ROWS):
                rows = min(_ROWS, q - row)
                seen = kv - q + row + rows if causal else kv
                out, lse = _attend(
                    query[:, start + row : start + row + rows], k[:, :seen], v[:, :seen], scale, bool(causal)
                )
                outs.append(out)
                sums.append(lse)
        out, lse = torch.cat(outs, 1).transpose(0, 1), torch.cat(sums, 1)
        if not merge:
            return out.contiguous(), lse
        previous, earlier = inputs["pre_out"], inputs["prev_lse"]
        top = torch.maximum(lse, earlier)
        new, old = torch.exp(lse - top), torch.exp(earlier - top)
        share = (new / (new + old)).T.unsqueeze(-1)
        return torch.lerp(previous.float(), out.float(), share).to(out.dtype), top + torch.log(new + old)

    return Kernel(run)


def _attend(q: Tensor, k: Tensor, v: Tensor, scale: float, causal: bool) -> tuple[Tensor, Tensor]:
    """Attend [N,q,192] to [N,kv,192]; returns ([N,q,128], log-sum-exp [N,q], which SDPA does not give)."""
    import torch
    from torch.nn.functional import scaled_dot_product_attention

    rows, total = q.shape[1], k.shape[1]
    visible = None
    if causal and rows > 1:
        visible = torch.ones(rows, total, dtype=torch.bool, device=q.device).tril(total - rows)
    out = scaled_dot_product_attention(q[None], k[None], v[None], attn_mask=visible, scale=scale)[0]
    scores = torch.bmm(q, k.transpose(1, 2)).float() * scale
    if visible is not None:
        scores.masked_fill_(~visible, -torch.inf)
    return out, scores.logsumexp(-1)


def ring_reference(case: Case, inputs: Inputs) -> Reference:
    """Attend in fp64 head by head over the keys, the earlier chunk entering as one weighted value."""
    import torch

    causal, scale = case.params["causal"], cast("float", case.params["scale"])
    query = torch.cat((inputs["q_nope"], inputs["q_rope"]), -1).double().cpu()
    key = torch.cat((inputs["k_nope"], inputs["k_rope"]), -1).double().cpu()
    value = inputs["value"].double().cpu()
    heads, group = query.shape[1], query.shape[1] // key.shape[1]
    out = torch.empty(*query.shape[:2], 128, dtype=torch.float64)
    lse = torch.empty(heads, query.shape[0], dtype=torch.float64)
    start = first = 0
    for q, kv in zip(*case_lengths(case), strict=True):
        hidden = torch.zeros(q, kv, dtype=torch.bool)
        if causal:
            hidden = torch.arange(kv)[None] > torch.arange(q)[:, None] + (kv - q)
        for head in range(heads):
            scores = query[start : start + q, head] @ key[first : first + kv, head // group].T * scale
            weights = scores.exp().masked_fill(hidden, 0)
            total = weights.sum(-1)
            rows = weights @ value[first : first + kv, head // group]
            if case.params["merge"]:
                earlier = inputs["prev_lse"][head, start : start + q].double().cpu().exp()
                rows += earlier[:, None] * inputs["pre_out"][start : start + q, head].double().cpu()
                total = total + earlier
            out[start : start + q, head] = rows / total[:, None]
            lse[head, start : start + q] = total.log()
        start += q
        first += kv
    size = float(out.square().mean().sqrt())
    # Probabilities are rounded to bf16 before they weight the values; scores for the sum are, too.
    return Reference((out, lse), (Tolerance(2e-2, 5e-2 * size), Tolerance(1e-3, 1e-2)))
