"""Replay of Slice: a part of a tensor made contiguous."""

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
    declare,
    example_row,
    refuse_output,
)
from perfcollect_core.cases import Param
from perfcollect_core.tensors import format_shape

from .moved_tensors import source_and_output_key
from .theory.moves import SLICE_AXES, slice_rows

if TYPE_CHECKING:
    from torch import Tensor

_POLICIES = ("start", "end")


def _check(case: Case) -> Case | Skip:
    x, out = case.tensors["x"], case.signature.output()
    shape, policy = x.shape or (), case.params.get("policy", "start")
    if out.shape is None:
        return Skip.invalid("output slot 0 is blank, expected the shape of the slice")
    if len(out.shape) != len(shape) or any(
        size > whole for size, whole in zip(out.shape, shape, strict=True)
    ):
        return Skip.invalid(
            f"output slot 0 has shape {format_shape(out.shape)}, expected axes no longer than x ({format_shape(shape)})"
        )
    if out.shape == shape:
        return Skip.invalid(
            f"output slot 0 has the shape of x ({format_shape(shape)}), expected a part of it"
        )
    if policy not in _POLICIES:
        return Skip.invalid(
            f"column 'Runtime offset_policy' is {policy!r}, expected {' or '.join(_POLICIES)}"
        )
    spare = tuple(whole - size for size, whole in zip(out.shape, shape, strict=True))
    offsets = spare if policy == "end" else (0,) * len(shape)
    assumptions = [] if "policy" in case.params else [f"offsets={offsets} (not recorded)"]
    params: dict[str, Param] = {"offsets": offsets, "size": out.shape}
    refused = refuse_output(case.signature, 0, out.shape, x.dtype, "as x")
    return refused or attrs.evolve(case, params=params, assumptions=tuple(assumptions))


def _call(case: Case, inputs: Inputs, device: Device) -> Kernel:
    import torch

    x, offsets, size = inputs["x"], case.integers("offsets"), case.integers("size")
    part = tuple(slice(start, start + length) for start, length in zip(offsets, size, strict=True))
    if device.family != "ascend":
        # A cut along the first axis is contiguous already; clone copies it all the same.
        return Kernel(call=lambda: x[part].clone(memory_format=torch.contiguous_format))
    if not x[part].is_contiguous():
        return Kernel(call=lambda: x[part].contiguous())
    import torch_npu

    return Kernel(call=lambda: torch_npu.npu_slice(x, offsets=list(offsets), size=list(size)))


def _taken(case: Case, inputs: Inputs) -> tuple[Tensor]:
    import torch

    taken = inputs["x"]
    for axis, (start, length) in enumerate(zip(case.integers("offsets"), case.integers("size"), strict=True)):
        taken = taken.index_select(axis, torch.arange(start, start + length, device=taken.device))
    return (taken,)


slice_op = declare(
    "Slice",
    summary="x[offsets : offsets + size] along each axis, made contiguous",
    torch={"ascend": "torch.Tensor.contiguous", "*": "torch.Tensor.clone"},
    inputs=(
        Slot("x"),
        Slot("offsets", "one for each axis, not built", metadata=True),
        Slot("size", "one for each axis, not built", metadata=True),
    ),
    aliases=("SliceAiCore", "SliceV2"),
    columns={"policy": "Runtime offset_policy"},
    infer=_check,
    canonical_key=source_and_output_key,
    call=_call,
    reference=_taken,
    tolerances=(Tolerance(0, 0),),
    cost=lambda case: Cost(0.0, 2.0 * case.outputs[0].nbytes),
    value_policy="x N(0, 1)",
    assumptions=("offsets are 0 where 'Runtime offset_policy' does not say end",),
    negative=(
        example_row("16,2112;2;2", "DT_BF16;INT64;INT64", "16,2113", "DT_BF16"),
        example_row("16,2112;2;2", "DT_BF16;INT64;INT64"),
        example_row("16,2112;2;2", "DT_BF16;INT64;INT64", "16,2112", "DT_BF16"),
    ),
    axes=SLICE_AXES,
    rows=slice_rows,
    examples="operators/slice.csv",
)
