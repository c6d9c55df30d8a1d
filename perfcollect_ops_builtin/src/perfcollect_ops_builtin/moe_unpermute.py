"""Replay of MoeTokenUnpermute: put expert outputs back in token order and add them up by weight."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from perfcollect_core import (
    Case,
    Cost,
    Device,
    Inputs,
    Kernel,
    Skip,
    Slot,
    Tolerance,
    ValueMaker,
    bytes_moved,
    declare,
    example_row,
    refuse_dtype,
    refuse_output,
)
from perfcollect_core.tensors import format_shape

from .theory.experts import UNPERMUTE_AXES, unpermute_rows

if TYPE_CHECKING:
    from torch import Tensor

_REAL = ("BF16", "FLOAT16", "FLOAT")


def _top_k(case: Case) -> int:
    return (case.tensors["probs"].shape or (1, 1))[-1] if "probs" in case.tensors else 1


def _check(case: Case) -> Case | Skip:
    permuted, indices = case.tensors["permuted"].shape or (), case.tensors["sorted_indices"].shape or ()
    probs = case.tensors.get("probs")
    if len(permuted) != 2 or len(indices) != 1:
        return Skip.invalid(
            f"input slots 0 and 1 have shapes {format_shape(permuted)} and {format_shape(indices)}, "
            "expected rows,hidden and pairs"
        )
    top_k, (pairs,) = _top_k(case), indices
    if probs and (len(probs.shape or ()) != 2 or probs.numel != pairs or top_k > 512):
        return Skip.invalid(
            f"input 'probs' has shape {format_shape(probs.shape)}, expected tokens,top_k with {pairs} elements "
            "(length of sorted_indices)"
        )
    rows, assumptions = permuted[0], []
    if pairs > rows:
        assumptions.append(f"sorted_indices=repeated ({pairs} pairs read {rows} rows)")
    out = (pairs // top_k, permuted[1])
    refused = refuse_dtype("probs", probs.dtype, _REAL) if probs else None
    return (
        refused
        or refuse_dtype("permuted", case.tensors["permuted"].dtype, _REAL)
        or refuse_dtype("sorted_indices", case.tensors["sorted_indices"].dtype, ("INT32",))
        or refuse_output(
            case.signature, 0, out, case.tensors["permuted"].dtype, "pairs over top_k, by hidden"
        )
        or attrs.evolve(case, assumptions=tuple(assumptions))
    )


def _draw_indices(make: ValueMaker, case: Case) -> Tensor:
    spec, rows = case.tensors["sorted_indices"], (case.tensors["permuted"].shape or (0,))[0]
    return make.distinct(spec, rows) if spec.numel <= rows else make.integers(spec, 0, rows)


def _draw_probs(make: ValueMaker, case: Case) -> Tensor:
    spec = case.tensors["probs"]
    return make.tensor(make.on_host().normal(attrs.evolve(spec, dtype="FLOAT")).softmax(-1), spec.dtype)


def _call(case: Case, inputs: Inputs, device: Device) -> Kernel:
    permuted, indices, probs = inputs["permuted"], inputs["sorted_indices"], inputs.tensors.get("probs")
    if device.family == "ascend":
        import torch_npu

        return Kernel(
            call=lambda: torch_npu.npu_moe_token_unpermute(
                permuted_tokens=permuted, sorted_indices=indices, probs=probs
            )
        )
    rows = indices.long()
    if probs is None:
        return Kernel(call=lambda: permuted.index_select(0, rows))
    shape, weights = (*probs.shape, permuted.shape[1]), probs.to(permuted.dtype)[..., None]
    return Kernel(call=lambda: permuted.index_select(0, rows).view(shape).mul(weights).sum(1))


def _summed(case: Case, inputs: Inputs) -> tuple[Tensor]:
    permuted, indices, probs = (
        inputs["permuted"].double(),
        inputs["sorted_indices"],
        inputs.tensors.get("probs"),
    )
    top_k = _top_k(case)
    total = permuted.new_zeros((len(indices) // top_k, permuted.shape[1]))
    for choice in range(top_k):
        rows = permuted[indices[choice::top_k].long()]
        total += rows if probs is None else rows * probs[:, choice, None].double()
    return (total,)


def _tolerance(case: Case) -> tuple[Tolerance, ...]:
    dtype = case.tensors["permuted"].dtype
    if "probs" not in case.tensors:
        return (Tolerance(0, 0),)
    # Weights and products are rounded before the sum, whose terms may cancel.
    return (Tolerance.of_dtype(dtype, 4, Tolerance.of_dtype(dtype, 8).rtol),)


moe_unpermute = declare(
    "MoeTokenUnpermute",
    summary="out[i] = sum over j of probs[i, j] * permuted[sorted_indices[i * top_k + j]]",
    torch={"ascend": "torch_npu.npu_moe_token_unpermute", "*": "torch.index_select"},
    inputs=(
        Slot("permuted", "rows,hidden"),
        Slot("sorted_indices", "INT32, one a token-expert pair"),
        Slot("probs", "tokens,top_k", optional=True),
    ),
    infer=_check,
    values={"sorted_indices": _draw_indices, "probs": _draw_probs},
    call=_call,
    reference=_summed,
    tolerances=_tolerance,
    cost=lambda case: Cost(
        2.0 * case.tensors["sorted_indices"].numel * (case.tensors["permuted"].shape or (0, 0))[1],
        bytes_moved(case),
    ),
    value_policy="permuted N(0, 1); sorted_indices a random permutation (distinct rows where it is shorter); "
    "probs positive, each token's sum to 1",
    assumptions=(
        "top_k is the second axis of probs, 1 without it",
        "rows repeat where there are more pairs than rows",
    ),
    negative=(
        example_row("256,7168;256;4,8", "DT_BF16;INT32;DT_BF16", "4,7168", "DT_BF16"),
        example_row("128,7168;128;", "DT_BF16;INT64;DT_UNDEFINED", "128,7168", "DT_BF16"),
    ),
    axes=UNPERMUTE_AXES,
    rows=unpermute_rows,
    examples="operators/moe_token_unpermute.csv",
)
