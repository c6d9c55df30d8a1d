"""What ``perfcollect db check`` looks for in the numbers of a table, beside its form."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from perfcollect_core.cases import Row
from perfcollect_core.errors import DataError
from perfcollect_core.tables.checks import Check, Finding
from perfcollect_core.tables.columns import CORE, has_valid_duration
from perfcollect_core.tables.identity import family_of_core, read_identity
from perfcollect_core.tables.match import duplicate_keys, separating_columns
from perfcollect_core.tables.read import Table
from perfcollect_core.tensors import SIGNATURE_COLUMNS

from .numbers import duration_fault, is_missing, parse_number
from .roofline import roofline_check

__all__ = ["audits", "check_conflicts", "check_durations", "check_head_counts", "contamination_check"]

_HEADS = ("Runtime num_heads", "num_heads", "Num Heads")
_TENSOR_PARALLEL = ("Runtime tp_size", "tp_size", "TP Size")
_SHOWN = 8


def audits(database: Path) -> tuple[Check, ...]:
    """Return the checks of numbers for the tables of *database*; none of them changes anything."""
    return (
        check_conflicts,
        check_durations,
        check_head_counts,
        contamination_check(database),
        roofline_check(database),
    )


def check_conflicts(table: Table) -> Iterator[Finding]:
    """Find rows that spell one call in different ways and disagree on how long it takes."""
    if separating_columns(table):
        return
    line_of = _lines(table)
    columns = _duration_columns(table)
    for group in duplicate_keys(table.rows).values():
        spellings = {tuple(row.cells.get(column, "") for column in SIGNATURE_COLUMNS) for row in group}
        if len(spellings) < 2:
            continue
        for column in columns:
            values = {line_of[row.ref]: row.get(column) for row in group if not _is_unmeasured(row, column)}
            if len({parse_number(text) for text in values.values()}) > 1:
                said = ", ".join(f"line {line} {text}" for line, text in values.items())
                yield Finding(
                    table.path.name,
                    "conflict",
                    f"one call in {len(spellings)} spellings, and {column!r} disagrees: {said}",
                    min(values),
                )


def check_durations(table: Table) -> Iterator[Finding]:
    """Find durations that cannot be: no number, negative, not finite, wrapped around, longer than a day."""
    for column in _duration_columns(table):
        for row, line in zip(table.rows, table.lines, strict=True):
            text = row.get(column)
            # A spread of zero is what one sample has, and 0 or blank means that nothing was measured.
            if is_missing(text) or parse_number(text) == 0:
                continue
            fault = duration_fault(text)
            if fault:
                yield Finding(
                    table.path.name,
                    "duration",
                    f"{column!r} is {text!r}: {fault.replace('duration', 'it')}",
                    line,
                )


def check_head_counts(table: Table) -> Iterator[Finding]:
    """Find head counts that stay while the tensor-parallel size grows: per model, where per rank is meant."""
    heads = next((c for c in _HEADS if c in table.header), None)
    parallel = next((c for c in _TENSOR_PARALLEL if c in table.header), None)
    if heads is None or parallel is None:
        return
    line_of = _lines(table)
    groups: dict[tuple[str, ...], list[Row]] = {}
    for row in table.rows:
        if row.get(heads) and row.get(parallel).isdecimal():
            shapes = tuple(row.get(column) for column in SIGNATURE_COLUMNS)
            groups.setdefault((row.get(heads), *shapes), []).append(row)
    for (count, *_), rows in groups.items():
        sizes = sorted({int(row.get(parallel)) for row in rows})
        if len(sizes) > 1:
            yield Finding(
                table.path.name,
                "head-counts",
                f"{heads} stays {count} while {parallel} goes {sizes[0]}..{sizes[-1]}, so these look like per-model "
                f"counts; look-ups for {sizes[-1]} would return the time of {sizes[0]}: "
                f"lines {_listed(line_of[row.ref] for row in rows)}",
                line_of[rows[0].ref],
            )


def contamination_check(database: Path) -> Check:
    """Return a check for measured rows that another device family, or nobody knows who, measured."""
    try:
        identity = read_identity(database)
    except DataError:
        # Reported for the database as a whole; the rows still say which of them differ from the others.
        identity = None
    held = identity.family if identity else ""

    def check(table: Table) -> Iterator[Finding]:
        if CORE not in table.header:
            return
        line_of = _lines(table)
        by_core: dict[str, list[Row]] = {}
        for row in table.rows:
            if has_valid_duration(row.cells):
                by_core.setdefault(row.get(CORE), []).append(row)
        families = {core: family_of_core(core) for core in by_core}
        wanted = held or _most(families, by_core)
        for core, rows in by_core.items():
            if families[core] == wanted:
                continue
            whose = f"is of family {families[core]}" if families[core] else "is no known core"
            expected = f", the others are {wanted}" if wanted else ""
            many = f"{len(rows)} measured row{'s' if len(rows) > 1 else ''}"
            yield Finding(
                table.path.name,
                "contaminated",
                f"{many} with {CORE} {core!r}, which {whose}{expected}: "
                f"lines {_listed(line_of[row.ref] for row in rows)}",
                line_of[rows[0].ref],
            )

    return check


def _most(families: dict[str, str | None], by_core: dict[str, list[Row]]) -> str:
    counts: dict[str, int] = {}
    for core, rows in by_core.items():
        family = families[core]
        if family:
            counts[family] = counts.get(family, 0) + len(rows)
    return max(counts, key=lambda family: counts[family]) if counts else ""


def _duration_columns(table: Table) -> Sequence[str]:
    return [column for column in table.header if column.endswith("Duration(us)")]


def _is_unmeasured(row: Row, column: str) -> bool:
    return is_missing(row.get(column)) or parse_number(row.get(column)) == 0


def _lines(table: Table) -> dict[object, int]:
    return dict(zip((row.ref for row in table.rows), table.lines, strict=True))


def _listed(lines: Iterable[int]) -> str:
    found = sorted(lines)
    more = f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
    return ", ".join(map(str, found[:_SHOWN])) + more
