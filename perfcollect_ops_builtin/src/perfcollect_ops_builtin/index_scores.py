"""Scores and top-k of the lightning indexer on stock torch, and an independent answer (worker)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, cast

from perfcollect_core import Case, Inputs, Kernel, Reference, torch_dtype
from perfcollect_core.lengths import case_lengths

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["bind_torch", "index_reference"]

#: Products of queries, heads and keys held at once.
_PRODUCTS = 1 << 25


def _sequences(case: Case, inputs: Inputs) -> Iterator[tuple[Tensor, Tensor, Tensor, Tensor | None]]:
    """Yield queries [q,N,D], weights [q,N] and dense keys or, where paged, the cache and the blocks to gather."""
    import torch

    packed = case.params["layout_query"] == "TND"
    query, weights, key = inputs["query"], inputs["weights"], inputs["key"]
    start = first = 0
    for index, (q, kv) in enumerate(zip(*case_lengths(case), strict=True)):
        rows = (
            (query[start : start + q], weights[start : start + q])
            if packed
            else (query[index], weights[index])
        )
        if case.params["layout_key"] == "PA_BSND":
            blocks = inputs["block_table"][index, : -(-kv // key.shape[1])].to(torch.int64)
            yield *rows, key, blocks
        else:
            yield *rows, key[first : first + kv, 0] if packed else key[index, :, 0], None
        start += q
        first += kv


def bind_torch(case: Case, inputs: Inputs) -> Kernel:
    """Bind the unfused scorer: gather, matmul, ReLU, weighted sum over heads, mask, top-k."""
    import torch

    topk, causal = cast("int", case.params["topk"]), case.params["sparse_mode"] == 3
    sequences = list(zip(_sequences(case, inputs), zip(*case_lengths(case), strict=True), strict=True))
    shape = (*inputs["query"].shape[:-2], 1, topk)

    def run() -> tuple[Tensor, Tensor]:
        indices, values = [], []
        for (queries, weights, key, blocks), (q, kv) in sequences:
            keys = key if blocks is None else key.index_select(0, blocks).flatten(0, 2)[:kv]
            step = max(1, _PRODUCTS // (queries.shape[1] * kv))
            for begin in range(0, q, step):
                part = queries[begin : begin + step]
                products = torch.relu(part.flatten(0, 1) @ keys.T).unflatten(0, part.shape[:2])
                scores = torch.bmm(weights[begin : begin + step, None].float(), products.float())[:, 0]
                if causal and q > 1:
                    hidden = torch.ones(scores.shape, dtype=torch.bool, device=scores.device)
                    scores = scores.masked_fill(hidden.triu(kv - q + begin + 1), -torch.inf)
                best = scores.topk(min(topk, kv))
                missing = (0, topk - min(topk, kv))
                found = best.indices.masked_fill(best.values == -torch.inf, -1).to(torch.int32)
                indices.append(torch.nn.functional.pad(found, missing, value=-1))
                values.append(torch.nn.functional.pad(best.values, missing, value=-torch.inf))
        return torch.cat(indices).reshape(shape), torch.cat(values).reshape(shape)

    dtype, wanted = torch_dtype(case.signature.output(1).dtype or "FLOAT"), case.params["return_value"]
    return Kernel(run, lambda result: (result[0], result[1].to(dtype) if wanted else None))  # type: ignore[index]  # run's pair


def index_reference(case: Case, inputs: Inputs) -> Reference:
    """Score in fp64 head by head and compare picks as sets: order and ties are free, rounding moves the last ones."""
    import torch

    scores = []
    for (queries, weights, key, blocks), (q, kv) in zip(
        _sequences(case, inputs), zip(*case_lengths(case), strict=True), strict=True
    ):
        if blocks is None:
            keys = key.double().cpu()
        else:
            keys = torch.cat([key[block, :, 0] for block in blocks.tolist()])[:kv].double().cpu()
        total = torch.zeros(q, kv, dtype=torch.float64)
        for head in range(queries.shape[1]):
            products = queries[:, head].double().cpu() @ keys.T
            total += products.clamp(min=0) * weights[:, head].double().cpu()[:, None]
        if case.params["sparse_mode"] == 3:
            total[torch.arange(kv)[None] > torch.arange(q)[:, None] + (kv - q)] = -torch.inf
        scores.append(total)
    topk = cast("int", case.params["topk"])
    return Reference((None,), (), compare=lambda actual: _compare(actual, scores, topk))


def _compare(actual: tuple[Tensor | None, ...], scores: list[Tensor], topk: int) -> str | None:
    import torch

    if not actual or actual[0] is None:
        return "output 0 (sparse_indices) is missing"
    picks = actual[0].cpu().to(torch.int64).reshape(-1, topk)
    values = actual[1].double().cpu().reshape(-1, topk) if len(actual) > 1 and actual[1] is not None else None
    token = 0
    for sequence in scores:
        slack = 2e-2 * float(sequence[sequence.isfinite()].std(correction=0))
        for row in sequence:
            wrong = _compare_token(picks[token], None if values is None else values[token], row, slack)
            if wrong:
                return f"output 0, query {token}: {wrong}"
            token += 1
    return None


def _compare_token(picks: Tensor, values: Tensor | None, scores: Tensor, slack: float) -> str | None:
    visible = int(scores.isfinite().sum())
    expected = min(len(picks), visible)
    chosen = picks[picks != -1]
    if len(chosen) != expected or len(chosen.unique()) != expected:
        return f"{len(chosen.unique())} distinct positions, expected {expected}"
    if int(chosen.min()) < 0 or int(chosen.max()) >= visible:
        return f"positions {int(chosen.min())}..{int(chosen.max())}, expected 0..{visible - 1}"
    least, bound = float(scores[chosen].min()), float(scores.topk(expected).values[-1])
    if least < bound - slack:
        return f"picks a key of score {least:.6g}, expected none below {bound:.6g}"
    if values is not None and float((values[picks != -1] - scores[chosen]).abs().max()) > slack + 1e-2 * abs(
        bound
    ):
        return "output 1 (sparse_values) does not hold the scores of the picks"
    return None
