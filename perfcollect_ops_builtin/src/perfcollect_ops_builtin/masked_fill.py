"""Replay of MaskedFill: set a scalar where a broadcast mask is true, in place."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from perfcollect_core import (
    Case,
    Cost,
    Device,
    Inputs,
    Kernel,
    OperatorSpec,
    Row,
    Skip,
    Slot,
    Tolerance,
    ValueMaker,
    broadcast_shape,
    declare,
    example_row,
    parse_signature,
    refuse_dtype,
    refuse_output,
)
from perfcollect_core.tensors import format_shape

from .theory.rows_of_tokens import TOKEN_AXES, masked_fill_rows

if TYPE_CHECKING:
    from torch import Tensor

_FILLED = ("BF16", "FLOAT16", "FLOAT", "DOUBLE", "INT8", "UINT8", "INT16", "INT32", "INT64", "BOOL")
_TENSOR_PARALLEL = 16
_LOGITS = 1024


def _masked_share(case: Case) -> tuple[float, str]:
    mask, x = case.tensors["mask"].shape or (), case.tensors["x"].shape or ()
    if mask != x:
        return 1 - 1 / _TENSOR_PARALLEL, f"tokens outside one of {_TENSOR_PARALLEL} vocabulary shards"
    if x and x[-1] >= _LOGITS:
        return 0.99, "logits outside the top k"
    return 0.5, "a full mask of no known origin"


def _check(case: Case) -> Case | Skip:
    x, mask = case.tensors["x"], case.tensors["mask"]
    if broadcast_shape(x.shape, mask.shape) != (x.shape or ()):
        return Skip.invalid(
            f"input 'mask' has shape {format_shape(mask.shape)}, which does not broadcast to x ({format_shape(x.shape)})"
        )
    share, why = _masked_share(case)
    assumptions = [f"masked share={share} ({why})", "value=0 (not recorded, timing-neutral)"]
    if mask.dtype != "BOOL":
        assumptions.append(f"mask dtype=BOOL (recorded as {mask.dtype}, the kernel takes BOOL only)")
    tensors = {"x": x, "mask": attrs.evolve(mask, dtype="BOOL")}
    refused = refuse_dtype("x", x.dtype, _FILLED) or refuse_output(
        case.signature, 0, x.shape or (), x.dtype, "as x"
    )
    return refused or attrs.evolve(case, tensors=tensors, assumptions=tuple(assumptions))


def _canonical_key(spec: OperatorSpec, row: Row) -> tuple[str, ...] | None:
    try:
        signature = parse_signature(row.cells)
    except ValueError:
        return None
    inputs = tuple(
        attrs.evolve(tensor, dtype="BOOL") if slot == 1 else tensor
        for slot, tensor in enumerate(signature.inputs)
    )
    return (spec.name, *attrs.evolve(signature, inputs=inputs).canonical())


def _draw_mask(make: ValueMaker, case: Case) -> Tensor:
    return make.bernoulli(case.tensors["mask"], _masked_share(case)[0])


def _call(case: Case, inputs: Inputs, device: Device) -> Kernel:
    x, mask = inputs["x"], inputs["mask"]
    # Writing zeros over zeros is the same work: a repeated call needs no reset.
    return Kernel(call=lambda: x.masked_fill_(mask, 0))


def _filled(case: Case, inputs: Inputs) -> tuple[Tensor]:
    x, mask = inputs["x"], inputs["mask"]
    return (x.where(~mask.expand(x.shape), x.new_zeros(())),)


masked_fill = declare(
    "MaskedFill",
    summary="set x to a scalar where the mask is true, in place",
    torch="torch.Tensor.masked_fill_",
    inputs=(Slot("x"), Slot("mask", "BOOL, broadcasts to x"), Slot("value", "0-D or 1", metadata=True)),
    aliases=("MaskedFillAiCore",),
    infer=_check,
    canonical_key=_canonical_key,
    values={"mask": _draw_mask},
    call=_call,
    reference=_filled,
    tolerances=(Tolerance(0, 0),),
    cost=lambda case: Cost(0.0, 2.0 * case.tensors["x"].nbytes + case.tensors["mask"].nbytes),
    value_policy="x N(0, 1); random mask: 15/16 true where it broadcasts (a vocabulary shard of TP 16), 0.99 for "
    "logits, else half",
    assumptions=("the share of true", "value is 0", "a mask recorded in another dtype is BOOL"),
    negative=(example_row("136,1;136,5120;", "DT_BF16;BOOL;DT_BF16", "136,5120", "DT_BF16", "ND;ND;ND"),),
    axes=TOKEN_AXES,
    rows=masked_fill_rows,
    examples="operators/masked_fill.csv",
)
