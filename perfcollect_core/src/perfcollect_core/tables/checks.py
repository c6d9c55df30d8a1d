"""What can be wrong with the tables of a database, found without stopping at the first (``perfcollect db check``)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import attrs

from perfcollect_core.cases import Row
from perfcollect_core.errors import DataError, TableError
from perfcollect_core.tensors import INPUT_COLUMNS, OUTPUT_COLUMNS, parse_signature

from .columns import column_meanings, has_valid_duration, is_measurement
from .identity import contradicting_rows
from .match import duplicate_keys, separating_columns
from .read import REQUIRED_COLUMNS, Table, is_collective_table, scan_table, table_paths

__all__ = ["CHECKS", "COLLECTIVE_CHECKS", "Check", "Finding", "check_database"]

_COLLECTIVE_COLUMNS = ("message_bytes", "num_devices")


@attrs.frozen
class Finding:
    """One thing wrong: the table's file name (empty for the whole database), what kind it is, where, and why."""

    table: str
    kind: str
    message: str
    line: int | None = None

    def __str__(self) -> str:
        where = f"{self.table} line {self.line}" if self.line else self.table
        return f"{where}: {self.message}" if where else self.message


#: Looks at one table that could be read and yields what it finds.
Check = Callable[[Table], Iterator[Finding]]


def check_database(
    database: Path,
    *,
    checks: Sequence[Check] | None = None,
    collective_checks: Sequence[Check] | None = None,
) -> tuple[Finding, ...]:
    """Check every table of *database*, ``hcom_*`` ones with *collective_checks*, and what the database holds.

    Raises:
        DataError: The directory cannot be read.
    """
    checks = CHECKS if checks is None else checks
    collective_checks = COLLECTIVE_CHECKS if collective_checks is None else collective_checks
    findings: list[Finding] = []
    paths = table_paths(database, collectives=True)
    if not paths:
        findings.append(Finding("", "empty", f"{database} holds no table, expected *.csv directly in it"))
    for path in paths:
        collective = is_collective_table(path)
        try:
            table = scan_table(path, required=_COLLECTIVE_COLUMNS if collective else REQUIRED_COLUMNS)
        except TableError as error:
            message = str(error).removeprefix(f"{path} ")
            hint = f" ({error.hint})" if error.hint else ""
            findings.append(Finding(path.name, "unreadable", f"{message}{hint}", error.line))
            continue
        for check in collective_checks if collective else checks:
            findings.extend(check(table))
    try:
        contradiction = contradicting_rows(database)
    except DataError as error:
        contradiction = str(error)
    if contradiction:
        findings.append(Finding("", "identity", contradiction))
    return tuple(findings)


def check_torn(table: Table) -> Iterator[Finding]:
    """Find lines that do not fit the header, and headers among the rows."""
    for torn in table.torn:
        yield Finding(table.path.name, "torn", torn.reason, torn.line)


def check_schema(table: Table) -> Iterator[Finding]:
    """Find columns that consumers need and the table lacks."""
    needed = [c for c in (*INPUT_COLUMNS[:2], *OUTPUT_COLUMNS[:2]) if c not in table.header]
    if needed:
        yield Finding(table.path.name, "schema", f"no column {', '.join(map(repr, needed))}", 1)
    known = column_meanings().duration
    if not any(column in table.header for column in known):
        # A table of rows that wait for their first run has none yet; one with other times may be misnamed.
        others = [c for c in table.header if is_measurement(c) and "duration" in c.lower()]
        if others:
            yield Finding(
                table.path.name,
                "schema",
                f"no column {known[0]!r}; {', '.join(map(repr, others))} is not read by any consumer",
                1,
            )


def check_shapes(table: Table) -> Iterator[Finding]:
    """Find measured rows whose shape cells do not parse: the consumer fails on the whole table for one of them."""
    for row, line in zip(table.rows, table.lines, strict=True):
        try:
            signature = parse_signature(row.cells)
        except ValueError as error:
            yield Finding(table.path.name, "shapes", str(error), line)
            continue
        if not any(tensor.shape is not None for tensor in signature.inputs) and has_valid_duration(row.cells):
            yield Finding(
                table.path.name,
                "shapes",
                f"'Input Shapes' is {row.get('Input Shapes')!r}, expected shapes",
                line,
            )


def check_duplicates(table: Table) -> Iterator[Finding]:
    """Find rows of equal key, and say which unknown columns tell them apart where some do."""
    groups = duplicate_keys(table.rows)
    if not groups:
        return
    line_of = dict(zip((row.ref for row in table.rows), table.lines, strict=True))
    separating = separating_columns(table)
    if separating:
        count = sum(len(rows) for rows in groups.values())
        yield Finding(
            table.path.name,
            "separating-columns",
            f"{count} rows share {len(groups)} keys and only {', '.join(map(repr, separating))} "
            "tells them apart: the table is never merged",
        )
    for group in groups.values():
        same: dict[tuple[str, ...], list[Row]] = {}
        for row in group:
            same.setdefault(tuple(row.get(column) for column in separating), []).append(row)
        for rows in same.values():
            if len(rows) > 1:
                lines = [line_of[row.ref] for row in rows]
                listed = ", ".join(map(str, lines))
                shapes = rows[0].get("Input Shapes") or "no shapes"
                yield Finding(
                    table.path.name,
                    "duplicate",
                    f"{len(rows)} rows describe one call ({shapes}): lines {listed}",
                    lines[0],
                )


#: The checks of operator tables, in order; other parts of perfcollect pass theirs beside these.
CHECKS: tuple[Check, ...] = (check_torn, check_schema, check_shapes, check_duplicates)
COLLECTIVE_CHECKS: tuple[Check, ...] = (check_torn,)
