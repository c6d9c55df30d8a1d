"""Replay of ScatterNdUpdate: write rows into a cache at given slots, in place."""

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

from .theory.moves import SCATTER_AXES, scatter_rows

if TYPE_CHECKING:
    from torch import Tensor

_STORED = ("BF16", "FLOAT16", "FLOAT", "DOUBLE", "INT8", "UINT8", "INT16", "INT32", "INT64", "BOOL")
_BLOCK = 128
_DECODE = 512
_PATTERNS = {"decode": "slots of single tokens", "prefill": f"runs of {_BLOCK} slots"}


def _check(case: Case) -> Case | Skip:
    var, indices, updates = (case.tensors[name] for name in ("var", "indices", "updates"))
    shape, picked = var.shape or (), indices.shape or ()
    axes = picked[-1] if picked else 0
    if not 1 <= axes <= len(shape):
        return Skip.invalid(
            f"input 'indices' has shape {format_shape(picked)}, expected a last axis of 1 to {len(shape)} (axes of var)"
        )
    expected = (*picked[:-1], *shape[axes:])
    if (updates.shape or ()) != expected:
        return Skip.invalid(
            f"input 'updates' has shape {format_shape(updates.shape)}, expected {format_shape(expected)} "
            "(indices without its last axis, then what var has behind)"
        )
    count, limit = math.prod(picked[:-1]), math.prod(shape[:axes])
    if count > limit:
        return Skip.invalid(f"input 'indices' names {count} slots, expected at most the {limit} of var")
    runs_fit = -(-count // _BLOCK) <= limit // _BLOCK
    guessed = "prefill" if count > _DECODE and runs_fit else "decode"
    pattern = case.params.get("pattern", guessed)
    if pattern not in _PATTERNS or (pattern == "prefill" and not runs_fit):
        return Skip.invalid(
            f"column 'Runtime index_pattern' is {pattern!r}, expected decode or prefill that fits var"
        )
    assumptions = (
        () if "pattern" in case.params else (f"index pattern={pattern} ({_PATTERNS[pattern]}; not recorded)",)
    )
    return (
        refuse_dtype("var", var.dtype, _STORED)
        or refuse_dtype("indices", indices.dtype, ("INT32", "INT64"))
        or refuse_dtype("updates", updates.dtype, (var.dtype,))
        or refuse_output(case.signature, 0, shape, var.dtype, "var, in place")
        or attrs.evolve(case, params={"pattern": pattern}, assumptions=assumptions)
    )


def _draw_indices(make: ValueMaker, case: Case) -> Tensor:
    import torch

    spec, shape = case.tensors["indices"], case.tensors["var"].shape or ()
    picked = spec.shape or ()
    count, sizes = math.prod(picked[:-1]), shape[: picked[-1]]
    limit = math.prod(sizes)
    host = make.on_host()
    if case.params["pattern"] == "prefill":
        blocks = host.distinct(TensorSpec((-(-count // _BLOCK),), "INT64"), limit // _BLOCK)
        slots = (blocks[:, None] * _BLOCK + torch.arange(_BLOCK)).flatten()[:count]
    else:
        slots = host.distinct(TensorSpec((count,), "INT64"), limit)
    return make.tensor(torch.stack(torch.unravel_index(slots, sizes), -1).reshape(picked), spec.dtype)


def _call(case: Case, inputs: Inputs, device: Device) -> Kernel:
    var, indices, updates = inputs["var"], inputs["indices"], inputs["updates"]
    # The slots are distinct, so writing the same rows again is the same work: no reset.
    if device.family == "ascend":
        import torch_npu

        return Kernel(call=lambda: torch_npu.npu_scatter_nd_update_(var, indices, updates))
    if indices.shape[-1] == 1:
        rows, values = indices.flatten().long(), updates.reshape(-1, *var.shape[1:])
        return Kernel(call=lambda: var.index_copy_(0, rows, values))
    position = tuple(indices.long().unbind(-1))
    return Kernel(call=lambda: var.index_put_(position, updates))


def _updated(case: Case, inputs: Inputs) -> tuple[Tensor]:
    var, indices, updates = inputs["var"], inputs["indices"].long(), inputs["updates"]
    axes = indices.shape[-1]
    slots = indices[..., 0]
    for axis in range(1, axes):
        slots = slots * var.shape[axis] + indices[..., axis]
    flat = var.clone().reshape(math.prod(var.shape[:axes]), -1)
    rows = slots.reshape(-1, 1).expand(-1, flat.shape[1])
    return (flat.scatter_(0, rows, updates.reshape(rows.shape)).reshape(var.shape),)


scatter_nd_update = declare(
    "ScatterNdUpdate",
    summary="var[indices[i]] = updates[i], in place",
    torch={"ascend": "torch_npu.npu_scatter_nd_update_", "*": "torch.Tensor.index_copy_"},
    inputs=(
        Slot("var"),
        Slot("indices", "INT32 or INT64, its last axis addresses the first axes of var"),
        Slot("updates"),
    ),
    aliases=("ScatterNdUpdateAiCore",),
    columns={"pattern": "Runtime index_pattern"},
    infer=_check,
    values={"indices": _draw_indices},
    call=_call,
    reference=_updated,
    tolerances=(Tolerance(0, 0),),
    cost=lambda case: Cost(0.0, case.tensors["indices"].nbytes + 2.0 * case.tensors["updates"].nbytes),
    value_policy=f"var and updates N(0, 1); distinct slots spread over var: single ones up to {_DECODE} (decode), "
    f"runs of {_BLOCK} above (prefill)",
    assumptions=("index pattern from the number of slots where 'Runtime index_pattern' does not say",),
    negative=(
        example_row("1000,128;100,1;99,128", "DT_BF16;INT64;DT_BF16", "1000,128", "DT_BF16"),
        example_row("64,128;100,1;100,128", "DT_BF16;INT32;DT_BF16", "64,128", "DT_BF16"),
    ),
    axes=SCATTER_AXES,
    rows=scatter_rows,
    examples="operators/scatter_nd_update.csv",
)
