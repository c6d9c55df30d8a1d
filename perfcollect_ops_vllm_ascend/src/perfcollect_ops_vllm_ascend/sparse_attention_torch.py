"""Sparse attention over a paged latent cache on stock torch, and an independent answer (worker)."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from perfcollect_core import Case, Inputs, Kernel, Reference, Tolerance, ValueMaker
from perfcollect_core.lengths import case_lengths

from .sparse_rows import valid_counts

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["bind_torch", "draw_indices", "sparse_reference"]

#: Cache rows gathered at once.
_ROWS = 1 << 17


def draw_indices(case: Case, make: ValueMaker) -> Tensor:
    """Draw for each query distinct block ids within its causal limit, in random order, -1 past the valid ones."""
    import torch

    spec = case.tensors["sparse_indices"]
    tokens, _, width = spec.shape or (1, 1, 1)
    size = cast("int", case.params["sparse_block_size"])
    indices = torch.full((tokens, width), -1, dtype=torch.int64)
    limits = _limits(case)
    for row, limit, count in zip(indices, limits, valid_counts(case), strict=True):
        blocks, wanted = -(-limit // size), -(-count // size)
        recent = wanted // 2 if case.params["pattern"] == "local" else 0
        older = torch.randperm(blocks - recent, generator=make.generator)[: wanted - recent]
        chosen = torch.cat((older, torch.arange(blocks - recent, blocks)))
        row[:wanted] = chosen[torch.randperm(wanted, generator=make.generator)]
    return make.tensor(indices.reshape(spec.shape or ()), spec.dtype)


def _limits(case: Case) -> list[int]:
    """Return how many keys each query may see."""
    causal = case.params["sparse_mode"] == 3
    return [
        kv - q + index + 1 if causal else kv
        for q, kv in zip(*case_lengths(case), strict=True)
        for index in range(q)
    ]


def bind_torch(case: Case, inputs: Inputs) -> Kernel:
    """Bind the unfused equivalent: gather listed rows, score, softmax, weight them."""
    import torch

    query, rope, indices = (inputs[name] for name in ("query", "query_rope", "sparse_indices"))
    device, queries = query.device, case_lengths(case)[0]
    size, scale = cast("int", case.params["sparse_block_size"]), cast("float", case.params["scale"])
    block = inputs["key"].shape[1]
    latent, rotary = inputs["key"].flatten(0, 2), inputs["key_rope"].flatten(0, 2)
    limits = torch.tensor(_limits(case), device=device)[:, None]
    sequence = torch.repeat_interleave(torch.tensor(queries, device=device))
    inside = torch.arange(size, device=device)
    step = max(1, _ROWS // (indices.shape[-1] * size))

    def run() -> Tensor:
        parts = []
        for start in range(0, len(query), step):
            part = slice(start, start + step)
            listed = indices[part, 0].to(torch.int64)
            positions = (listed[:, :, None] * size + inside).flatten(1)
            hidden = (positions < 0) | (positions >= limits[part])
            positions = positions.masked_fill(hidden, 0)
            pages = inputs["block_table"][sequence[part][:, None], positions // block].to(torch.int64)
            rows = pages * block + positions % block
            values = latent[rows]
            scores = torch.bmm(query[part], values.transpose(1, 2)).float()
            scores += torch.bmm(rope[part], rotary[rows].transpose(1, 2)).float()
            weights = (scores * scale).masked_fill(hidden[:, None], -torch.inf).softmax(-1)
            parts.append(torch.bmm(weights.to(values.dtype), values))
        return torch.cat(parts)

    return Kernel(run)


def sparse_reference(case: Case, inputs: Inputs) -> Reference:
    """Walk the queries one by one in fp64, reading the cache position by position through the table."""
    import torch

    query = torch.cat((inputs["query"], inputs["query_rope"]), -1).double().cpu()
    key, rope, table = (inputs[name].cpu() for name in ("key", "key_rope", "block_table"))
    size, block = cast("int", case.params["sparse_block_size"]), key.shape[1]
    limits = _limits(case)
    out = torch.empty(*query.shape[:2], 512, dtype=torch.float64)
    token = 0
    for sequence, q in enumerate(case_lengths(case)[0]):
        pages = table[sequence].tolist()
        for _ in range(q):
            listed = [entry for entry in inputs["sparse_indices"][token, 0].tolist() if entry >= 0]
            seen = [
                entry * size + n for entry in listed for n in range(size) if entry * size + n < limits[token]
            ]
            where = [pages[position // block] for position in seen], [position % block for position in seen]
            values = key[where[0], where[1], 0].double()
            keys = torch.cat((values, rope[where[0], where[1], 0].double()), -1)
            scores = query[token] @ keys.T * cast("float", case.params["scale"])
            weights = torch.exp(scores - scores.max(-1, keepdim=True).values)
            out[token] = weights @ values / weights.sum(-1, keepdim=True)
            token += 1
    # Scores and weights are rounded to the query's dtype; outputs shrink with the number of rows averaged.
    return Reference((out,), (Tolerance(2e-2, 8e-2 * float(out.square().mean().sqrt())),))
