"""Raw keys: which rows of a table are the same call, decided without a plugin."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING

from perfcollect_core.tensors import (
    INPUT_COLUMNS,
    OUTPUT_COLUMNS,
    SIGNATURE_COLUMNS,
    format_shape,
    normalise_dtype,
    normalise_format,
    parse_shape,
    split_slots,
)

from .columns import column_meanings, is_measurement

if TYPE_CHECKING:
    from perfcollect_core.cases import Row

    from .read import Table

__all__ = ["duplicate_keys", "operator_name", "raw_key", "separating_columns"]


def operator_name(name: str) -> str:
    """Return the kernel type a table or script is named after (``MatMulV2.csv``, ``MatMulV2_run.py``)."""
    for suffix in ("_run.py", ".csv", "_run"):
        name = name.removesuffix(suffix)
    return name


def raw_key(operator: str, cells: Mapping[str, str]) -> tuple[str, ...]:
    """Return the raw key of a row: type, input shapes, dtypes, formats, output shapes, dtypes, metadata.

    Slots and dtype words are normalised; a cell that does not parse stands as it is, so that no row is without a key.
    Metadata columns (``key_columns.toml``) follow as ``column=value`` where they are not blank: a column added
    later changes no key.
    """
    metadata = []
    for column in column_meanings().key:
        text = cells.get(column)
        if text and (value := text.strip().strip('"').strip()):
            metadata.append(f"{column}={value}")
    inputs = _canonical(*(cells.get(column) or "" for column in INPUT_COLUMNS))
    outputs = _canonical(*(cells.get(column) or "" for column in OUTPUT_COLUMNS))
    return (operator, *inputs, *outputs[:2], *metadata)


def duplicate_keys(rows: Iterable[Row]) -> dict[tuple[str, ...], tuple[Row, ...]]:
    """Return the rows of every raw key that more than one of *rows* has, in file order."""
    by_key: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        by_key.setdefault(row.ref.key, []).append(row)
    return {key: tuple(group) for key, group in by_key.items() if len(group) > 1}


def separating_columns(table: Table) -> tuple[str, ...]:
    """Return the unknown columns that tell rows of equal raw key apart; empty where such rows are duplicates.

    A table with separating columns must not be merged: its keys do not identify its rows.
    """
    known = column_meanings()
    unknown = [
        column
        for column in table.header
        if column not in SIGNATURE_COLUMNS
        and column not in known.key
        and column not in known.description
        and not is_measurement(column)
    ]
    groups = duplicate_keys(table.rows).values() if unknown else ()
    separating = {
        column for group in groups for column in unknown if len({row.get(column) for row in group}) > 1
    }
    return tuple(column for column in unknown if column in separating)


_slot_shape = lru_cache(maxsize=65536)(lambda slot: format_shape(parse_shape(slot)))
_SHAPE_SLOT = re.compile(r"[0-9]+(?:,[0-9]+)*", re.ASCII)


@lru_cache(maxsize=4096)
def _words(cell: str, is_format: bool) -> tuple[str, ...]:
    normalise = normalise_format if is_format else normalise_dtype
    return tuple(normalise(word) for word in split_slots(cell))


@lru_cache(maxsize=65536)
def _canonical(shapes: str, dtypes: str, formats: str) -> tuple[str, str, str]:
    try:
        slots = [
            slot if _SHAPE_SLOT.fullmatch(slot) and slot[0] != "0" else _slot_shape(slot)
            for slot in split_slots(shapes)
        ]
    except ValueError:
        # A shape that does not parse (N/A beside numbers, text) still tells rows apart by its text.
        return shapes.strip(), dtypes.strip(), formats.strip()
    while slots and not slots[-1]:
        slots.pop()
    return ";".join(slots), _beside(slots, _words(dtypes, False)), _beside(slots, _words(formats, True))


def _beside(slots: list[str], words: tuple[str, ...]) -> str:
    """Keep the word of each slot that has a shape: ``DT_UNDEFINED``, ``NULL`` and blank beside none are equal."""
    padded = (*words, *("" for _ in range(len(slots) - len(words))))
    return ";".join(word if slot else "" for slot, word in zip(slots, padded, strict=False))
