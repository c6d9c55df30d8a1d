"""Replay of InterleaveRope: rotary embedding of pairs, with the pairs de-interleaved first."""

from __future__ import annotations

from typing import TYPE_CHECKING

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

from .theory.rows_of_tokens import ROPE_AXES, rope_rows

if TYPE_CHECKING:
    from torch import Tensor

_WIDTH = 64
_CONTEXT = 32768


def _check(case: Case) -> Case | Skip:
    x = case.tensors["x"]
    shape = x.shape or ()
    if len(shape) != 4 or shape[-1] != _WIDTH:
        return Skip.invalid(
            f"input 'x' has shape {format_shape(shape)}, expected batch,heads,length,{_WIDTH}"
        )
    cos = case.tensors["cos"].shape
    tables = dict.fromkeys(((shape[0], 1, 1, _WIDTH), (shape[0], 1, shape[2], _WIDTH)))
    for name, allowed in (("cos", tuple(tables)), ("sin", (cos,))):
        table = case.tensors[name]
        if table.shape not in allowed:
            wanted = " or ".join(map(format_shape, allowed))
            return Skip.invalid(f"input {name!r} has shape {format_shape(table.shape)}, expected {wanted}")
        refused = refuse_dtype(name, table.dtype, (x.dtype,))
        if refused:
            return refused
    return (
        refuse_dtype("x", x.dtype, ("BF16", "FLOAT16"))
        or refuse_output(case.signature, 0, shape, x.dtype, "as x")
        or case
    )


def _angles(case: Case) -> Tensor:
    import torch

    batch, _, length, _ = case.tensors["cos"].shape or (1, 1, 1, 1)
    # Both tables are of the same positions, so they are drawn by the case's seed and not one after the other.
    generator = torch.Generator().manual_seed(case.seed)
    start = torch.randint(0, max(_CONTEXT - length, 1), (batch, 1, 1, 1), generator=generator)
    position = start + torch.arange(length).reshape(1, 1, length, 1)
    frequency = 10000.0 ** (-torch.arange(0, _WIDTH, 2, dtype=torch.float64) / _WIDTH)
    return torch.cat([position * frequency] * 2, -1)


def _draw_cos(make: ValueMaker, case: Case) -> Tensor:
    return make.tensor(_angles(case).cos(), case.tensors["cos"].dtype)


def _draw_sin(make: ValueMaker, case: Case) -> Tensor:
    return make.tensor(_angles(case).sin(), case.tensors["sin"].dtype)


def _call(case: Case, inputs: Inputs, device: Device) -> Kernel:
    x, cos, sin = inputs["x"], inputs["cos"], inputs["sin"]
    if device.family == "ascend":
        import torch_npu

        return Kernel(call=lambda: torch_npu.npu_interleave_rope(x, cos, sin))
    import torch

    def rotate() -> Tensor:
        halves = x.unflatten(-1, (_WIDTH // 2, 2)).transpose(-1, -2).reshape(x.shape)
        first, second = halves.chunk(2, -1)
        return halves * cos + torch.cat((-second, first), -1) * sin

    return Kernel(call=rotate)


def _rotated(case: Case, inputs: Inputs) -> tuple[Tensor]:
    import torch

    x, half = inputs["x"].double(), _WIDTH // 2
    # A pair is a complex number, a position a turn of it.
    turned = torch.complex(x[..., 0::2], x[..., 1::2]) * torch.complex(
        inputs["cos"].double()[..., :half], inputs["sin"].double()[..., :half]
    )
    return (torch.cat((turned.real, turned.imag), -1),)


interleave_rope = declare(
    "InterleaveRope",
    summary="rotary embedding of interleaved pairs; the result has the pairs as two halves",
    torch={"ascend": "torch_npu.npu_interleave_rope", "*": "torch.Tensor.mul"},
    inputs=(
        Slot("x", f"batch,heads,length,{_WIDTH}"),
        Slot("cos", f"batch,1,length or 1,{_WIDTH}"),
        Slot("sin", "as cos"),
    ),
    infer=_check,
    values={"cos": _draw_cos, "sin": _draw_sin},
    call=_call,
    reference=_rotated,
    tolerances=lambda case: (
        Tolerance.of_dtype(case.tensors["x"].dtype, 4, Tolerance.of_dtype(case.tensors["x"].dtype, 8).rtol),
    ),
    cost=lambda case: Cost(3.0 * case.tensors["x"].numel, bytes_moved(case)),
    value_policy=f"x N(0, 1); cos and sin of real angles, one random position below {_CONTEXT} for each batch row",
    assumptions=("positions are random and run on along length",),
    negative=(
        example_row("4,16,1,128;4,1,1,128;4,1,1,128", "DT_BF16;DT_BF16;DT_BF16", "4,16,1,128", "DT_BF16"),
        example_row("4,16,1,64;3,1,1,64;3,1,1,64", "DT_BF16;DT_BF16;DT_BF16", "4,16,1,64", "DT_BF16"),
    ),
    axes=ROPE_AXES,
    rows=rope_rows,
    examples="operators/interleave_rope.csv",
)
