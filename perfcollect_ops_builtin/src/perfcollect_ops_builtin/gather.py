"""Replay of GatherV2: rows of a table by index, an embedding lookup or an index_select."""

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
    declare,
    example_row,
    refuse_dtype,
    refuse_output,
)
from perfcollect_core.tensors import format_shape

from .theory.moves import GATHER_AXES, gather_rows

if TYPE_CHECKING:
    from torch import Tensor


def _check(case: Case) -> Case | Skip:
    table, indices, out = case.tensors["table"], case.tensors["indices"], case.signature.output()
    shape, picked = table.shape or (), indices.shape or ()
    gathered = [(*shape[:axis], *picked, *shape[axis + 1 :]) for axis in range(len(shape))]
    fitting = [axis for axis, result in enumerate(gathered) if out.shape in (None, result)]
    if not fitting:
        return Skip.invalid(
            f"output slot 0 has shape {format_shape(out.shape)}, expected table ({format_shape(shape)}) "
            f"with one axis replaced by indices ({format_shape(picked)})"
        )
    axis, assumptions = fitting[0], []
    if len(fitting) > 1:
        why = "output not recorded" if out.shape is None else f"axes {', '.join(map(str, fitting))} fit"
        assumptions.append(f"axis={axis} ({why})")
    if axis or len(shape) != 2:
        assumptions.append("launch=index_select (not an embedding; CANN may run GatherV3)")
    refused = refuse_dtype("indices", indices.dtype, ("INT32", "INT64"))
    refused = refused or refuse_output(case.signature, 0, gathered[axis], table.dtype, "as table")
    return refused or attrs.evolve(case, params={"axis": axis}, assumptions=tuple(assumptions))


def _draw_indices(make: ValueMaker, case: Case) -> Tensor:
    return make.integers(
        case.tensors["indices"], 0, (case.tensors["table"].shape or ())[case.integer("axis")]
    )


def _call(case: Case, inputs: Inputs, device: Device) -> Kernel:
    import torch
    import torch.nn.functional as functional

    table, indices, axis = inputs["table"], inputs["indices"], case.integer("axis")
    if axis == 0 and table.dim() == 2:
        return Kernel(call=lambda: functional.embedding(input=indices, weight=table))
    flat, picked = indices.flatten(), indices.shape
    return Kernel(
        call=lambda: torch.index_select(table, axis, flat),
        outputs=lambda result: (result.unflatten(axis, picked) if picked else result.squeeze(axis),),  # type: ignore[attr-defined]  # a tensor
    )


def _gathered(case: Case, inputs: Inputs) -> tuple[Tensor]:
    table, indices, axis = inputs["table"], inputs["indices"].long(), case.integer("axis")
    # Advanced indexing on the front axis, then the index axes move to where the table's axis was.
    taken = table.movedim(axis, 0)[indices]
    front = range(indices.dim())
    return (taken.movedim(tuple(front), tuple(axis + i for i in front)),)


def _cost(case: Case) -> Cost:
    table, count = case.tensors["table"], case.tensors["indices"].numel
    rows = (table.shape or (1,))[case.integer("axis")]
    read_share = 1 - (1 - 1 / rows) ** count
    return Cost(0.0, case.tensors["indices"].nbytes + table.nbytes * (read_share + count / rows))


gather = declare(
    "GatherV2",
    summary="out = take(table, indices, axis)",
    torch="torch.nn.functional.embedding",
    inputs=(
        Slot("table"),
        Slot("indices", "INT32 or INT64, any rank"),
        Slot("axis", "one INT64 that is not built", metadata=True),
    ),
    aliases=("GatherV2AiCore", "GatherV3"),
    infer=_check,
    values={"indices": _draw_indices},
    call=_call,
    reference=_gathered,
    tolerances=(Tolerance(0, 0),),
    cost=_cost,
    value_policy="table N(0, 1); indices uniform over the whole axis, so that rows come from memory",
    assumptions=(
        "axis is the first that gives the output",
        "other lookups than axis 0 of a matrix are index_select",
    ),
    negative=(
        example_row("9496,5120;136;1", "DT_BF16;INT64;INT64", "135,5120", "DT_BF16"),
        example_row("9496,5120;136;1", "DT_BF16;FLOAT;INT64", "136,5120", "DT_BF16"),
    ),
    axes=GATHER_AXES,
    rows=gather_rows,
    examples="operators/gather_v2.csv",
)
