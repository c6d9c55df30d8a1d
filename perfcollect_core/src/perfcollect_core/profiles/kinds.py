"""Decide what one kind of profiler row is: a key of a table, time apart from the tables, or set aside."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Literal

import attrs

from perfcollect_core.tables.match import raw_key
from perfcollect_core.tensors import (
    INPUT_COLUMNS,
    OUTPUT_COLUMNS,
    SIGNATURE_COLUMNS,
    format_shape,
    parse_shape,
    split_slots,
)

from .layouts import CORE, STATE
from .numbers import is_missing

__all__ = ["Apart", "Aside", "Keyed", "RowKind", "classify", "operator_type"]

#: Launch variants whose number says nothing about the kernel.
_FOLDED = {
    "split_qkv_rmsnorm_rope_kernel_0": "split_qkv_rmsnorm_rope_kernel",
    "muls_add_kernel_1": "muls_add_kernel",
}
_Shapes = tuple[tuple[int, ...] | None, ...]

_COLLECTIVE_CORES = frozenset({"COMMUNICATION", "HCCL"})
_COLLECTIVE_TYPE = re.compile(r"(?i:hcom)|.*AicpuKernel$")


@attrs.frozen
class Keyed:
    """A call that belongs to a row: its raw key and how the cells of that row are written.

    ``is_open`` marks a key in which the dtype or format of a tensor is blank: it joins its only known sibling.
    """

    key: tuple[str, ...]
    cells: dict[str, str] = attrs.field(eq=False)
    slots: int = attrs.field(eq=False)
    is_open: bool = False


@attrs.frozen
class Apart:
    """Time that is counted but belongs to no row: collectives and kernels whose shapes were not recorded."""

    kind: Literal["collective", "no_shape"]
    operator: str


@attrs.frozen
class Aside:
    """A call that cannot be used, and why."""

    reason: str


RowKind = Keyed | Apart | Aside


def operator_type(text: str | None) -> str:
    """Return the kernel type of a ``Type`` cell, launch variants folded."""
    name = (text or "").strip()
    return _FOLDED.get(name, name)


def classify(values: tuple[str | None, ...]) -> RowKind:
    """Classify rows whose ``GROUP_COLUMNS`` hold *values*."""
    name, state, core, *tensors = ((value or "").strip() for value in values)
    operator = operator_type(name)
    if core in _COLLECTIVE_CORES or _COLLECTIVE_TYPE.match(operator):
        return Apart("collective", operator or "(no type)")
    kind = _classify_tensors(operator, *tensors)
    if isinstance(kind, Keyed):
        return attrs.evolve(kind, cells={STATE: state, CORE: core, **kind.cells})
    return kind


@lru_cache(maxsize=65536)
def _classify_tensors(operator: str, *tensors: str) -> RowKind:
    if not operator:
        return Aside("operator type is blank")
    if not operator.isprintable():
        return Aside("operator type has control characters")
    row = dict(zip(SIGNATURE_COLUMNS, tensors, strict=True))
    unrecorded = is_missing(row[INPUT_COLUMNS[0]]) or is_missing(row[OUTPUT_COLUMNS[0]])
    if unrecorded and not _is_blank_output(row):
        return Apart("no_shape", operator)
    sides = []
    for columns in (INPUT_COLUMNS, OUTPUT_COLUMNS):
        try:
            sides.append(_shapes(row[columns[0]]))
        except ValueError as error:
            return Aside(f"column {columns[0]!r} does not parse: {error}")
    inputs, outputs = sides
    if all(shape is None for shape in inputs):
        return Apart("no_shape", operator)
    suspicion = _lost_comma(inputs, outputs)
    if suspicion:
        return Aside(suspicion)
    cells = _cells(row, inputs, outputs)
    key = raw_key(operator, cells)
    return Keyed(key, cells, len(inputs), _is_open(cells, inputs, outputs))


_slot_shape = lru_cache(maxsize=65536)(parse_shape)


@lru_cache(maxsize=16384)
def _shapes(cell: str) -> _Shapes:
    return tuple(map(_slot_shape, split_slots(cell)))


@lru_cache(maxsize=16384)
def _words(cell: str) -> str:
    return "" if is_missing(cell) else ";".join(split_slots(cell))


def _is_blank_output(row: dict[str, str]) -> bool:
    """Tell whether inputs are recorded and the output cell is merely blank (a kernel that writes in place)."""
    output = row[OUTPUT_COLUMNS[0]].strip('"').strip()
    return not output and not is_missing(row[INPUT_COLUMNS[0]])


def _cells(row: dict[str, str], inputs: _Shapes, outputs: _Shapes) -> dict[str, str]:
    cells = {}
    for columns, shapes in ((INPUT_COLUMNS, inputs), (OUTPUT_COLUMNS, outputs)):
        # The inner quotes keep a spreadsheet or data-frame reader from taking a lone shape for a number.
        cells[columns[0]] = '"' + ";".join(map(format_shape, shapes)) + '"'
        for column in columns[1:]:
            cells[column] = _words(row[column])
    return cells


def _is_open(cells: Mapping[str, str], inputs: _Shapes, outputs: _Shapes) -> bool:
    """Tell whether a tensor's dtype or format is blank; an explicit ``DT_UNDEFINED`` or ``NULL`` is not."""
    for columns, shapes in ((INPUT_COLUMNS[1:], inputs), (OUTPUT_COLUMNS[1:2], outputs)):
        for column in columns:
            words = split_slots(cells[column])
            for slot, shape in enumerate(shapes):
                if shape is not None and (slot >= len(words) or words[slot].upper() in ("", "N/A", "NA")):
                    return True
    return False


def _lost_comma(inputs: _Shapes, outputs: _Shapes) -> str:
    """Say which lone dimension is another shape of the row without its commas (a spreadsheet read a number)."""
    for column, shapes, others in (
        (OUTPUT_COLUMNS[0], outputs, inputs),
        (INPUT_COLUMNS[0], inputs, outputs),
    ):
        if len(shapes) != 1 or shapes[0] is None or len(shapes[0]) != 1:
            continue
        for other in others:
            if other is None or len(other) < 2 or any(not 100 <= dim <= 999 for dim in other[1:]):
                continue
            if str(shapes[0][0]) == "".join(map(str, other)):
                return (
                    f"column {column!r} holds {shapes[0][0]}, which looks like {format_shape(other)} "
                    "without its commas"
                )
    return ""
