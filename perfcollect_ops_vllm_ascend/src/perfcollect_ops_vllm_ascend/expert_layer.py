"""The expert-parallel layer unfused: all-to-all, grouped FFN, all-to-all on stock torch (worker)."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from perfcollect_core import Case, Device, Inputs, Kernel

from .expert_inputs import decode_scales

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["bind_torch"]


def bind_torch(case: Case, inputs: Inputs, device: Device) -> Kernel:
    """Bind one rank's part of the layer; every rank of the world must call it."""
    import torch

    local, ranks = inputs["weight1"].shape[0], device.ranks
    x, expert_idx, probs = (inputs[name] for name in ("x", "expert_idx", "probs"))
    quantised = inputs["weight1"].dtype == torch.int8
    scales = [decode_scales(inputs[name]) for name in ("scale1", "scale2")] if quantised else None
    active = cast("int", case.params["active"])
    topk = expert_idx.shape[1]

    def run() -> tuple[Tensor, Tensor]:
        ids = expert_idx[:active].flatten().to(torch.int64)
        order = ids.argsort(stable=True)
        sent = torch.bincount(ids, minlength=local * ranks).reshape(ranks, local)
        # [source rank, local expert]: how many rows arrive, and for whom.
        received = _exchange(sent, [1] * ranks, [1] * ranks, ranks)
        there, back = sent.sum(1).tolist(), received.sum(1).tolist()
        rows = x.index_select(0, order // topk)
        if quantised:
            values, steps = _quantise(rows)
            rows, row_scales = _exchange(values, there, back, ranks), _exchange(steps, there, back, ranks)
        else:
            rows, row_scales = _exchange(rows, there, back, ranks), None
        experts = torch.arange(local, device=x.device).repeat(ranks).repeat_interleave(received.flatten())
        grouped = experts.argsort(stable=True)
        counts = received.sum(0)
        done = torch.empty(len(rows), x.shape[1], dtype=x.dtype, device=x.device)
        for expert, part in enumerate(grouped.split(counts.tolist())):
            if len(part):
                steps = None if row_scales is None else row_scales[part]
                done[part] = _feed_forward(rows[part], steps, expert, inputs, scales)
        returned = _exchange(done, back, there, ranks)
        answers = torch.empty_like(returned)
        answers[order] = returned
        out = torch.zeros_like(x)
        weighted = answers.reshape(active, topk, -1).float() * probs[:active, :, None]
        out[:active] = weighted.sum(1).to(x.dtype)
        return out, counts.to(torch.int32)

    shapes = case.signature.output().shape or (), case.signature.output(1).shape or (local,)

    def outputs(result: object) -> tuple[Tensor, ...]:
        out, counts = cast("tuple[Tensor, Tensor]", result)
        return out.reshape(shapes[0]), counts.reshape(shapes[1])

    return Kernel(run, outputs)


def _exchange(rows: Tensor, sent: list[int], received: list[int], ranks: int) -> Tensor:
    """Send ``sent[r]`` rows to each rank *r* and return what arrives, in the order of ranks."""
    import torch
    import torch.distributed as dist

    if ranks == 1:
        return rows
    arrived = torch.empty(sum(received), *rows.shape[1:], dtype=rows.dtype, device=rows.device)
    dist.all_to_all_single(arrived, rows.contiguous(), received, sent)
    return arrived


def _quantise(rows: Tensor) -> tuple[Tensor, Tensor]:
    """Quantise each row to int8; returns the values and the fp32 step of each row."""
    import torch

    wide = rows.float()
    steps = wide.abs().amax(-1).clamp_min(1e-12) / 127
    return (wide / steps[:, None]).round().to(torch.int8), steps


def _feed_forward(
    rows: Tensor, steps: Tensor | None, expert: int, inputs: Inputs, scales: list[Tensor] | None
) -> Tensor:
    """Return the rows through one expert."""
    import torch
    from torch.nn.functional import silu

    first, second = inputs["weight1"][expert], inputs["weight2"][expert]
    if steps is None or scales is None:
        gate, up = (rows @ first).chunk(2, -1)
        return (silu(gate) * up) @ second
    gate, up = (_product(rows, first) * steps[:, None] * scales[0][expert]).chunk(2, -1)
    values, inner = _quantise(silu(gate) * up)
    return (_product(values, second) * inner[:, None] * scales[1][expert]).to(torch.bfloat16)


def _product(left: Tensor, right: Tensor) -> Tensor:
    """Multiply int8 matrices exactly; CUDA's integer product wants more than 16 rows."""
    import torch

    rows = len(left)
    if left.device.type == "cuda" and rows <= 16:
        left = torch.nn.functional.pad(left, (0, 0, 0, 17 - rows))
    return torch._int_mm(left, right)[:rows].float()
