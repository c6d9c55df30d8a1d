"""Replay of MoeTokenPermute: gather tokens in the order of the experts they go to."""

from __future__ import annotations

import math
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
    TensorSpec,
    Tolerance,
    ValueMaker,
    declare,
    example_row,
    refuse_dtype,
    refuse_output,
)
from perfcollect_core.tensors import format_shape

from .theory.experts import PERMUTE_AXES, permute_rows

if TYPE_CHECKING:
    from torch import Tensor

_SOURCE_RANKS = 16
_TOKENS = ("BF16", "FLOAT16", "FLOAT", "INT8")
_EXACT = Tolerance(0, 0)


def _top_k(case: Case) -> int:
    indices = case.tensors["indices"].shape or ()
    return indices[1] if len(indices) == 2 else 1


def _check(case: Case) -> Case | Skip:
    tokens, indices = case.tensors["tokens"].shape or (), case.tensors["indices"].shape or ()
    if len(tokens) != 2 or len(indices) not in (1, 2) or tokens[0] != indices[0]:
        return Skip.invalid(
            f"input slots 0 and 1 have shapes {format_shape(tokens)} and {format_shape(indices)}, "
            "expected tokens,hidden and tokens,top_k or tokens"
        )
    top_k = _top_k(case)
    pairs = tokens[0] * top_k
    if top_k > 512 or pairs >= 16_777_215:
        return Skip.invalid(
            f"input 'indices' has top_k {top_k} and {pairs} pairs, expected at most 512 and 16777214"
        )
    experts = case.params.get("experts", max(8 * top_k, 64))
    if not isinstance(experts, int) or experts < top_k:
        return Skip.invalid(
            f"column 'Num Experts' is {experts!r}, expected a number of at least top_k {top_k}"
        )
    out = case.signature.output().shape
    kept = out[0] if out else pairs
    assumptions = [] if "experts" in case.params else [f"experts={experts} (not recorded)"]
    if kept < pairs:
        assumptions.append(f"num_out_tokens={kept} (from the output)")
    if len(indices) == 1:
        assumptions.append(
            f"indices=runs of rising experts from {_SOURCE_RANKS} source ranks (a local re-permute)"
        )
    expected = (min(kept, pairs), tokens[1])
    return (
        refuse_dtype("tokens", case.tensors["tokens"].dtype, _TOKENS)
        or refuse_dtype("indices", case.tensors["indices"].dtype, ("INT32", "INT64"))
        or refuse_output(
            case.signature, 0, expected, case.tensors["tokens"].dtype, "token-expert pairs by hidden"
        )
        or refuse_output(case.signature, 1, (pairs,), "INT32", "one a token-expert pair")
        or attrs.evolve(case, params={"experts": experts, "kept": kept}, assumptions=tuple(assumptions))
    )


def _draw_indices(make: ValueMaker, case: Case) -> Tensor:
    import torch

    spec, experts = case.tensors["indices"], case.integer("experts")
    tokens, *_ = spec.shape or (0,)
    host = make.on_host()
    if len(spec.shape or ()) == 1:
        runs = host.integers(spec, 0, experts).tensor_split(min(_SOURCE_RANKS, tokens))
        return make.tensor(torch.cat([run.sort().values for run in runs]), spec.dtype)
    scores = host.uniform(TensorSpec((tokens, experts), "FLOAT"), 0, 1)
    return make.tensor(scores.topk(_top_k(case), dim=-1).indices, spec.dtype)


def _call(case: Case, inputs: Inputs, device: Device) -> Kernel:
    tokens, indices, kept, top_k = inputs["tokens"], inputs["indices"], case.integer("kept"), _top_k(case)
    if device.family == "ascend":
        import torch_npu

        limit = None if kept == indices.numel() else kept
        return Kernel(
            call=lambda: torch_npu.npu_moe_token_permute(
                tokens=tokens, indices=indices, num_out_tokens=limit, padded_mode=False
            )
        )

    def permute() -> tuple[Tensor, Tensor]:
        order = indices.flatten().argsort(stable=True)
        permuted = tokens.index_select(0, order[:kept] // top_k)
        return permuted, order.argsort().int()

    return Kernel(call=permute)


def _counted(case: Case, inputs: Inputs) -> tuple[Tensor, Tensor]:
    import torch

    tokens, experts, kept = inputs["tokens"], inputs["indices"].flatten(), case.integer("kept")
    # A counting sort: pairs of an expert keep their order behind those of all lower experts.
    position, at = torch.empty_like(experts, dtype=torch.int64), 0
    for expert in range(case.integer("experts")):
        pairs = (experts == expert).nonzero().flatten()
        position[pairs] = torch.arange(at, at + len(pairs), device=position.device)
        at += len(pairs)
    permuted = torch.zeros((kept, tokens.shape[1]), dtype=tokens.dtype, device=tokens.device)
    pair = (position < kept).nonzero().flatten()
    permuted[position[pair]] = tokens[pair // _top_k(case)]
    return permuted, position


def _cost(case: Case) -> Cost:
    tokens, indices = case.tensors["tokens"], case.tensors["indices"]
    pairs = indices.numel
    written = tokens.nbytes * case.integer("kept") / (tokens.shape or (1,))[0]
    return Cost(pairs * math.log2(max(pairs, 2)), tokens.nbytes + written + indices.nbytes + 4.0 * pairs)


moe_permute = declare(
    "MoeTokenPermute",
    summary="tokens repeated for each of their experts, in the order of experts; also where each pair went",
    torch={"ascend": "torch_npu.npu_moe_token_permute", "*": "torch.index_select"},
    inputs=(Slot("tokens", "tokens,hidden"), Slot("indices", "expert ids: tokens,top_k or tokens")),
    outputs=(Slot("permuted"), Slot("sorted_indices", "INT32")),
    columns={"experts": "Num Experts"},
    infer=_check,
    values={"indices": _draw_indices},
    call=_call,
    reference=_counted,
    tolerances=(_EXACT, _EXACT),
    cost=_cost,
    value_policy="tokens N(0, 1); top_k distinct experts a token, all equally likely; one-axis indices are rising runs",
    assumptions=(
        "max(8 top_k, 64) experts where 'Num Experts' is not recorded",
        "num_out_tokens from the output",
    ),
    negative=(
        example_row("4,7168;5,8", "DT_BF16;INT32", "32,7168;32", "DT_BF16;INT32"),
        example_row("4,7168;4,8", "DT_BF16;INT32", "33,7168;32", "DT_BF16;INT32"),
    ),
    axes=PERMUTE_AXES,
    rows=permute_rows,
    examples="operators/moe_token_permute.csv",
)
