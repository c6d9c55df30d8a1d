"""Tell how well the tensors a profiler recorded for a task are those of a row."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Literal

from perfcollect_core.tensors import NZ, Signature, TensorSpec, nz_storage_shape, parse_signature

__all__ = ["RESEMBLANCES", "Resemblance", "resemblance"]

#: From the surest to the least sure.
#: ``equal``: the operator's own key.
#: ``slots``: the same tensors slot by slot, base formats and optional blanks aside.
#: ``tensors``: the same tensors in another order, or with absent slots left out.
#: ``operands``: the same outputs, and every operand of the row, where batch dimensions are folded, scalars written in
#: different ways, or the kernel's further lists and tables not in the row.
#: ``unrecorded``: the profiler gives no shapes (kernels launched past the operator library): only time and type tell.
Resemblance = Literal["equal", "slots", "tensors", "operands", "unrecorded"]
RESEMBLANCES: tuple[Resemblance, ...] = ("equal", "slots", "tensors", "operands", "unrecorded")

_Slot = tuple[tuple[int, ...], str, str]
#: Bit patterns of one size: a row may call packed scales either.
_SAME_BITS = {"UINT64": "INT64"}


def resemblance(
    cells: Mapping[str, str],
    row: Signature,
    canonical: Callable[[Mapping[str, str]], tuple[str, ...] | None],
    key: tuple[str, ...],
) -> Resemblance | None:
    """Return how *cells* of a task resemble *row*, ``None`` where they are other tensors.

    Args:
        cells: The task's cells.
        row: What the row records.
        canonical: Gives the operator's key of cells.
        key: The key of the row.
    """
    try:
        task = parse_signature(cells)
    except ValueError:
        return None
    if not any(slot.shape is not None for slot in (*task.inputs, *task.outputs)):
        recorded = any(slot.shape is not None for slot in (*row.inputs, *row.outputs))
        scalars = any(slot.is_scalar for slot in (*task.inputs, *task.outputs))
        return "unrecorded" if recorded and not scalars else "equal" if not recorded else None
    if canonical(cells) == key:
        return "equal"
    theirs, ours = _plain(task.inputs), _plain(row.inputs)
    if _covers(Counter(_plain(task.outputs)), Counter(_plain(row.outputs))):
        if theirs == ours:
            return "slots"
        if Counter(theirs) == Counter(ours):
            return "tensors"
    same_outputs = _covers(_operands(task.outputs), _operands(row.outputs))
    # A row may not record what else the kernel takes; what it records must be there.
    return "operands" if same_outputs and not _operands(row.inputs) - _operands(task.inputs) else None


def _covers(theirs: Counter[_Slot], ours: Counter[_Slot]) -> bool:
    # Workspaces and optional outputs are recorded by one release and not by another.
    return bool(theirs) and bool(ours) and (not ours - theirs or not theirs - ours)


def _plain(slots: tuple[TensorSpec, ...]) -> tuple[_Slot, ...]:
    return tuple(_slot(spec) for spec in slots if spec.shape is not None)


def _slot(spec: TensorSpec) -> _Slot:
    assert spec.shape is not None
    if spec.format != NZ:
        # Every other format is row-major with the shape it says.
        return spec.shape, spec.dtype, ""
    stored = spec.is_nz_storage or len(spec.shape) < 2
    return (spec.shape if stored else nz_storage_shape(spec.shape, spec.dtype)), spec.dtype, NZ


def _operands(slots: tuple[TensorSpec, ...]) -> Counter[_Slot]:
    """Return the tensors that make a call what it is, batch dimensions folded into one."""
    found: Counter[_Slot] = Counter()
    for spec in slots:
        if spec.shape is None or spec.numel <= 1:
            # Scalars are written as blank, as one element, or not at all.
            continue
        shape, dtype, form = _slot(spec)
        keep = 4 if form == NZ else 2
        if len(shape) >= keep:
            # Of no batch dimension the product is 1.
            shape = (math.prod(shape[:-keep]), *shape[-keep:])
        found[(shape, _SAME_BITS.get(dtype, dtype), form)] += 1
    return found
