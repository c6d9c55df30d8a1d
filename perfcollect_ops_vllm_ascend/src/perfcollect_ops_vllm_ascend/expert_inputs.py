"""Build one rank's share of an expert-parallel layer, and the routing all ranks agree on (worker)."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from perfcollect_core import Case, Device, Inputs, TensorSpec, ValueMaker
from perfcollect_core.errors import CaseError

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["decode_scales", "make_rank_inputs", "routing", "routing_load"]


def routing(case: Case) -> Tensor:
    """Return the global expert ids of all ranks' tokens [ranks, T, k], int64 on the host; equal on every rank.

    Balanced routing deals experts out in turn and continues from rank to rank, rank by rank of the experts first: a
    small decode batch is spread over all ranks too, and the experts of one token are distinct.
    """
    import torch

    tokens, topk = case.tensors["expert_idx"].shape or (1, 1)
    local, total = (case.tensors["weight1"].shape or (1,))[0], case.ranks * tokens
    experts = local * case.ranks
    if case.params["pattern"] == "balanced":
        slot = torch.arange(total * topk)
        return ((slot % case.ranks) * local + (slot // case.ranks) % local).reshape(case.ranks, tokens, topk)
    seed = case.params["routing_seed"]
    generator = torch.Generator().manual_seed(case.seed if seed is None else int(cast("int", seed)))
    popularity = torch.ones(experts, dtype=torch.float64)
    if case.params["pattern"] == "skewed":
        order = torch.randperm(experts, generator=generator)
        popularity = (1.0 + order.double()) ** -cast("float", case.params["alpha"])
    # The top-k of Gumbel-perturbed log weights is a draw without replacement.
    noise = -torch.log(
        -torch.log(torch.rand(total, experts, generator=generator, dtype=torch.float64).clamp_min(1e-300))
    )
    return (popularity.log() + noise).topk(topk, -1).indices.reshape(case.ranks, tokens, topk)


def received_rows(case: Case) -> list[int]:
    """Return how many rows each rank receives."""
    import torch

    local = (case.tensors["weight1"].shape or (1,))[0]
    active = routing(case)[:, : cast("int", case.params["active"])]
    counts = torch.bincount(active.flatten() // local, minlength=case.ranks)
    return [int(count) for count in counts]


def routing_load(case: Case) -> float:
    """Return the rows of the busiest rank over the mean."""
    rows = received_rows(case)
    return max(rows) * len(rows) / sum(rows)


def make_rank_inputs(case: Case, device: Device, rank: int) -> Inputs:
    """Draw the inputs of *rank*; every rank has tokens and experts of its own.

    Raises:
        CaseError: The kernel would drop rows: one rank receives more than ``max_output_size``.
    """
    rows = received_rows(case)
    if max(rows) > cast("int", case.params["max_output_size"]):
        raise CaseError(
            f"rank {rows.index(max(rows))} receives {max(rows)} rows with {case.params['pattern']} routing, expected at most "
            f"max_output_size {case.params['max_output_size']}: the kernel drops the rest in silence",
            case=case,
        )
    # Primes keep the seeds of ranks and of neighbouring cases apart.
    make = ValueMaker(case.seed + 7919 * rank, device)
    tensors = {}
    for name, spec in case.tensors.items():
        if name == "expert_idx":
            tensors[name] = make.tensor(routing(case)[rank], spec.dtype)
        elif name == "probs":
            tensors[name] = make.normal(spec).softmax(-1)
        elif name.startswith("scale"):
            tensors[name] = _encode_scales(make.uniform(TensorSpec(spec.shape, "FLOAT"), 1e-3, 1e-2))
        elif name == "x_active_mask":
            tensors[name] = make.tensor(_active(case), spec.dtype)
        elif name.startswith("weight") and spec.dtype != "INT8":
            tensors[name] = make.normal(spec, scale=(spec.shape or (1, 1, 1))[1] ** -0.5)
        else:
            tensors[name] = make.by_dtype(spec)
    return Inputs(tensors)


def _active(case: Case) -> Tensor:
    import torch

    return torch.arange((case.tensors["x"].shape or (0,))[0]) < cast("int", case.params["active"])


def _encode_scales(scales: Tensor) -> Tensor:
    """Put the bits of fp32 scales into the low half of int64, as serving passes them."""
    import torch

    return scales.view(torch.int32).to(torch.int64)


def decode_scales(packed: Tensor) -> Tensor:
    """Return the fp32 scales in the low half of int64."""
    import torch

    return packed.to(torch.int32).view(torch.float32)
