"""The expert-parallel layer on one rank: every token through its experts, one after another, in fp64 (worker)."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from perfcollect_core import Case, Device, Inputs, Reference, Tolerance

from .expert_inputs import decode_scales, make_rank_inputs, routing

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["layer_reference"]


def layer_reference(case: Case, inputs: Inputs, device: Device) -> Reference:
    """Compute this rank's outputs without a collective.

    Inputs are seeded by rank, so that the experts of the other ranks are drawn here again instead of being sent; all
    tokens of the world are counted for the rows this rank's experts receive.
    """
    import torch

    host = Device(family="cpu", index=0, torch_device="cpu", rank=device.rank, ranks=device.ranks)
    active = cast("int", case.params["active"])
    x, probs = inputs["x"].double().cpu(), inputs["probs"].double().cpu()
    chosen = inputs["expert_idx"].cpu()
    local = inputs["weight1"].shape[0]
    out = torch.zeros_like(x)
    for owner in range(case.ranks):
        weights = inputs if owner == device.rank else make_rank_inputs(case, host, owner)
        for expert in range(local):
            hit = (chosen[:active] == owner * local + expert).nonzero()
            if len(hit):
                tokens, slots = hit.unbind(1)
                out[tokens] += _expert(x[tokens], weights, expert) * probs[tokens, slots, None]
    everyone = routing(case)[:, :active].flatten().tolist()
    counts = [everyone.count(device.rank * local + expert) for expert in range(local)]
    size = float(out[:active].square().mean().sqrt())
    # In W8A8 a value halfway between two steps may fall on either side, and a step of the largest weights shows.
    quantised = inputs["weight1"].dtype == torch.int8
    near = Tolerance(2e-2, 6e-2 * size, outliers=1e-3) if quantised else Tolerance(2e-2, 3e-2 * size)
    shape = case.signature.output(1).shape or (local,)
    return Reference(
        (out.reshape(case.signature.output().shape or out.shape), torch.tensor(counts).reshape(shape)),
        (near, Tolerance(0, 0)),
    )


def _expert(rows: Tensor, weights: Inputs, expert: int) -> Tensor:
    import torch

    first, second = (weights[name][expert].double().cpu() for name in ("weight1", "weight2"))
    if weights["weight1"].dtype == torch.int8:
        outer, inner = (decode_scales(weights[name][expert]).double().cpu() for name in ("scale1", "scale2"))
        first, second = first * outer, second * inner
        rows = _rounded(rows)
    hidden = rows @ first
    gate, up = hidden[:, : hidden.shape[1] // 2], hidden[:, hidden.shape[1] // 2 :]
    product = gate / (1 + torch.exp(-gate)) * up
    return (_rounded(product) if weights["weight1"].dtype == torch.int8 else product) @ second


def _rounded(rows: Tensor) -> Tensor:
    """Return the rows as an int8 grid of 127 steps to their largest value holds them."""
    step = rows.abs().amax(-1, keepdim=True) / 127
    return (rows / step).round() * step
