"""Replay of PadV3: constant padding."""

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
    bytes_moved,
    declare,
    example_row,
    refuse_output,
)
from perfcollect_core.tensors import format_shape

from .theory.moves import PAD_AXES, pad_rows

if TYPE_CHECKING:
    from torch import Tensor


def _check(case: Case) -> Case | Skip:
    x, out, paddings = case.tensors["x"], case.signature.output(), case.signature.input(1)
    shape = x.shape or ()
    if out.shape is None:
        return Skip.invalid("output slot 0 is blank, expected the padded shape")
    if paddings.shape is not None and paddings.numel != 2 * len(shape):
        return Skip.invalid(
            f"input slot 1 has {paddings.numel} paddings, expected {2 * len(shape)} (two for each axis of x)"
        )
    added = tuple(after - before for before, after in zip(shape, out.shape, strict=False))
    if len(out.shape) != len(shape) or min(added, default=0) < 0:
        return Skip.invalid(
            f"output slot 0 has shape {format_shape(out.shape)}, expected axes no shorter than x ({format_shape(shape)})"
        )
    if not any(added):
        return Skip.invalid(
            f"output slot 0 has the shape of x ({format_shape(shape)}), expected a padded axis"
        )
    pads = tuple(n for after in reversed(added) for n in (0, after))
    where = ", ".join(f"{after} after axis {axis}" for axis, after in enumerate(added) if after)
    assumptions = (f"padding={where} (sides not recorded)", "value=0 (not recorded, timing-neutral)")
    refused = refuse_output(case.signature, 0, out.shape, x.dtype, "as x")
    return refused or attrs.evolve(case, params={"pads": pads}, assumptions=assumptions)


def _call(case: Case, inputs: Inputs, device: Device) -> Kernel:
    import torch.nn.functional as functional

    x, pads = inputs["x"], list(case.integers("pads"))
    return Kernel(call=lambda: functional.pad(x, pads, mode="constant", value=0))


def _padded(case: Case, inputs: Inputs) -> tuple[Tensor]:
    x = inputs["x"]
    out = x.new_zeros(case.outputs[0].shape or ())
    out[tuple(slice(size) for size in x.shape)] = x
    return (out,)


pad = declare(
    "PadV3",
    summary="x padded with a constant",
    torch="torch.nn.functional.pad",
    inputs=(
        Slot("x"),
        Slot("paddings", "two for each axis, not built", metadata=True),
        Slot("value", "0-D or 1, not built", metadata=True),
    ),
    aliases=("PadV3AiCore",),
    infer=_check,
    call=_call,
    reference=_padded,
    tolerances=(Tolerance(0, 0),),
    cost=lambda case: Cost(0.0, bytes_moved(case)),
    value_policy="x N(0, 1)",
    assumptions=("all padding is at the end of its axis (token and head padding)", "value is 0"),
    negative=(
        example_row("16,7168;4;", "DT_BF16;INT64;DT_BF16", "1,7168", "DT_BF16", "ND;ND;ND"),
        example_row("16,7168;4;", "DT_BF16;INT64;DT_BF16", "", "", "ND;ND;ND"),
        example_row("16,7168;4;", "DT_BF16;INT64;DT_BF16", "16,7168,1", "DT_BF16", "ND;ND;ND"),
    ),
    axes=PAD_AXES,
    rows=pad_rows,
    examples="operators/pad_v3.csv",
)
