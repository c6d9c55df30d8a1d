"""Raw keys: which rows of a table are the same call, decided without a plugin."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
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

__all__ = ["duplicate_keys", "operator_name", "raw_key", "raw_keys", "separating_columns"]


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
    return _key(operator, cells, [column for column in column_meanings().key if column in cells])


def raw_keys(
    operator: str, header: Sequence[str], rows: Iterable[Mapping[str, str]]
) -> Iterator[tuple[str, ...]]:
    """Yield ``raw_key`` of each of *rows*, all under one *header*."""
    columns = [column for column in column_meanings().key if column in header]
    return (_key(operator, cells, columns) for cells in rows)


def _key(operator: str, cells: Mapping[str, str], columns: Sequence[str]) -> tuple[str, ...]:
    metadata = []
    for column in columns:
        text = cells[column]
        if text and (value := text.strip().strip('"').strip()):
            metadata.append(f"{column}={value}")
    get = cells.get
    inputs = _canonical(*[get(column) or "" for column in INPUT_COLUMNS])
    outputs = _canonical(*[get(column) or "" for column in OUTPUT_COLUMNS])
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


#: A cell in canonical spelling already, every slot with a shape: nearly all of them.
_PLAIN_SHAPES = re.compile(r'"?((?:[1-9][0-9]*[,;])*[1-9][0-9]*)"?', re.ASCII)


@lru_cache(maxsize=4096)
def _words(cell: str, is_format: bool) -> tuple[str, ...]:
    normalise = normalise_format if is_format else normalise_dtype
    return tuple(normalise(word) for word in split_slots(cell))


def _canonical(shapes: str, dtypes: str, formats: str) -> tuple[str, str, str]:
    plain = _PLAIN_SHAPES.fullmatch(shapes)
    if plain:
        count = plain[1].count(";") + 1
        return plain[1], _beside_all(count, dtypes, False), _beside_all(count, formats, True)
    return _canonical_slots(shapes, dtypes, formats)


@lru_cache(maxsize=4096)
def _beside_all(count: int, cell: str, is_format: bool) -> str:
    words = (*_words(cell, is_format), *("",) * count)
    return ";".join(words[:count])


@lru_cache(maxsize=65536)
def _canonical_slots(shapes: str, dtypes: str, formats: str) -> tuple[str, str, str]:
    try:
        slots = [format_shape(parse_shape(slot)) for slot in split_slots(shapes)]
    except ValueError:
        # A shape that does not parse (N/A beside numbers, text) still tells rows apart by its text.
        return shapes.strip(), dtypes.strip(), formats.strip()
    while slots and not slots[-1]:
        slots.pop()
    return ";".join(slots), _beside(slots, _words(dtypes, False)), _beside(slots, _words(formats, True))


def _beside(slots: list[str], words: tuple[str, ...]) -> str:
    """Keep the word of each slot that has a shape: ``DT_UNDEFINED``, ``NULL`` and blank beside none are equal."""
    padded = (*words, *("",) * len(slots))
    return ";".join(word if slot else "" for slot, word in zip(slots, padded, strict=False))
