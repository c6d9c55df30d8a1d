"""Write what a profile says into the tables of a database, beside everything that is there already."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Literal

import attrs

from perfcollect_core.cases import RowRef
from perfcollect_core.errors import DataError, PerfcollectError, TableError
from perfcollect_core.tables.atomic import PARTIAL, replace_file
from perfcollect_core.tables.columns import BASE_COLUMNS
from perfcollect_core.tables.match import raw_key, separating_columns
from perfcollect_core.tables.patch import patch_table, write_table
from perfcollect_core.tables.read import Table, read_table

from .groups import KernelRow
from .layouts import COUNTERS
from .profile_columns import ProfileColumns

__all__ = ["OnExisting", "TablePlan", "TableResult", "plan_tables", "prepared_directory", "write_plans"]

OnExisting = Literal["merge", "replace", "fail"]

AVERAGE, MEDIAN, STD = (f"Profiling {what} Duration(us)" for what in ("Average", "Median", "Std"))
COUNT = "Profiling Count"
_COUNTER = "Profiling Average "
#: What a row without recorded runtime values says of itself; it tells no two rows apart.
_COMPLETENESS = ("Runtime metadata_completeness", "profile_shapes_only")


@attrs.frozen
class TablePlan:
    """What is to be done to one table: a patch of the existing one, or a new one."""

    path: Path
    operator: str
    header: tuple[str, ...]
    changes: Mapping[RowRef, Mapping[str, str]]
    rows: tuple[Mapping[str, str], ...]
    exists: bool
    replaces: bool = False


@attrs.frozen
class TableResult:
    """What was done to one table, in rows; ``problem`` says why nothing was."""

    table: str
    added: int = 0
    updated: int = 0
    unchanged: int = 0
    problem: str = ""


@contextlib.contextmanager
def prepared_directory(database: Path) -> Iterator[None]:
    """Find out before any work that tables can be written to *database*; it goes again if nothing was put there.

    Raises:
        DataError: It is not a directory, cannot be made or not be written.
    """
    made: list[Path] = []
    try:
        missing = [p for p in (database, *database.parents) if not p.exists() and not p.is_symlink()]
        for directory in reversed(missing):
            directory.mkdir()
            made.append(directory)
        if not database.is_dir():
            raise NotADirectoryError(20, "it is not a directory")
        descriptor, probe = tempfile.mkstemp(prefix=".perfcollect-", suffix=PARTIAL, dir=database)
        os.close(descriptor)
        Path(probe).unlink()
    except OSError as error:
        _remove_empty(made)
        raise DataError(
            f"database {database} cannot be written: {error.strerror or error}",
            hint="name a directory you may write with --database-path",
        ) from error
    try:
        yield
    finally:
        _remove_empty(made)


def _remove_empty(made: Sequence[Path]) -> None:
    for directory in reversed(made):
        with contextlib.suppress(OSError):
            directory.rmdir()


def plan_tables(
    database: Path,
    rows: Mapping[str, Sequence[KernelRow]],
    tables: Mapping[str, str],
    columns: Mapping[str, ProfileColumns],
    on_existing: OnExisting,
) -> tuple[list[TablePlan], list[TableResult]]:
    """Plan every table before any is written; those that cannot be merged come back with their problem.

    Args:
        rows: Rows by kernel type.
        tables: Table names by kernel type.
        columns: Profile columns by kernel type.

    Raises:
        TableError: With *on_existing* ``fail``, a table is there.
    """
    if on_existing == "fail":
        there = [tables[operator] for operator in rows if (database / tables[operator]).exists()]
        if there:
            raise TableError(
                f"{len(there)} tables exist in {database}, expected none of {', '.join(sorted(there)[:5])}",
                hint="--on-existing merge keeps their rows, --on-existing replace writes them anew",
            )
    plans, problems = [], []
    for operator, found in rows.items():
        path = database / tables[operator]
        try:
            plans.append(_plan(path, operator, found, columns[operator], on_existing))
        except TableError as error:
            hint = f" ({error.hint})" if error.hint else ""
            problems.append(TableResult(path.name, problem=f"{error}{hint}"))
    return plans, problems


def _plan(
    path: Path, operator: str, rows: Sequence[KernelRow], columns: ProfileColumns, on_existing: OnExisting
) -> TablePlan:
    extra = [c for c in dict.fromkeys(name for row in rows for name in row.counters) if c not in COUNTERS]
    counters = (*COUNTERS, *extra)
    names = tuple(column.name for column in columns.columns)
    header = (*BASE_COLUMNS, AVERAGE, MEDIAN, STD, *(_COUNTER + name for name in counters), *names, COUNT)
    written = [_row_cells(row, counters, columns) for row in rows]
    exists = path.exists() or path.is_symlink()
    if not exists or on_existing == "replace":
        if exists:
            read_table(path)
        return TablePlan(path, operator, header, {}, tuple(written), exists, replaces=exists)
    table = read_table(path)
    apart = separating_columns(table)
    if apart:
        raise TableError(
            f"{path} is not merged: rows of one key differ in {', '.join(map(repr, apart))}, which perfcollect does "
            "not know",
            hint="parse into another directory",
            path=path,
        )
    provenance = frozenset(column.name for column in columns.columns if column.source)
    changes, new = _match(table, operator, written, provenance)
    return TablePlan(path, operator, header, changes, tuple(new), True)


def _row_cells(row: KernelRow, counters: Sequence[str], columns: ProfileColumns) -> dict[str, str]:
    return {
        **row.cells,
        AVERAGE: f"{row.mean_us:.6f}",
        MEDIAN: f"{row.median_us:.6f}",
        STD: f"{row.std_us:.6f}",
        **{
            _COUNTER + name: six_decimals(row.counters[name]) if name in row.counters else ""
            for name in counters
        },
        **columns.cells(row.cells, row.sources),
        COUNT: str(row.count),
    }


def six_decimals(value: float) -> str:
    """Write *value* with six decimals, a half of the last one to the even side.

    Sums of counters depend on their order in the last bits; where the exact mean lies in the middle of two texts, as
    means of even counts often do, those bits must not choose.
    """
    longer = f"{value:.9f}"
    return f"{Decimal(longer):.6f}" if longer.endswith("500") else f"{value:.6f}"


def _identity(operator: str, cells: Mapping[str, str]) -> tuple[str, ...]:
    name, value = _COMPLETENESS
    if (cells.get(name) or "").strip() == value:
        cells = {**cells, name: ""}
    return raw_key(operator, cells)


def _match(
    table: Table, operator: str, written: Sequence[Mapping[str, str]], provenance: frozenset[str]
) -> tuple[dict[RowRef, Mapping[str, str]], list[Mapping[str, str]]]:
    """Find the rows each new one refreshes, every spelling of its key; those without one are appended."""
    held: dict[tuple[str, ...], list[int]] = {}
    for index, old in enumerate(table.rows):
        held.setdefault(_identity(operator, old.cells), []).append(index)
    changes: dict[RowRef, Mapping[str, str]] = {}
    new = []
    for cells in written:
        places = held.get(_identity(operator, cells), ())
        for place in places:
            old = table.rows[place]
            changes[old.ref] = _refreshed(old.cells, cells, provenance)
        if not places:
            new.append(cells)
    return changes, new


def _refreshed(old: Mapping[str, str], new: Mapping[str, str], provenance: frozenset[str]) -> dict[str, str]:
    """Return the cells to set in an old row: what profiles say; the rest only where it is blank."""
    changed = {}
    for column, text in new.items():
        measured = column.startswith("Profiling ") or column in provenance
        if measured or not (old.get(column) or "").strip().strip('"'):
            changed[column] = text
    # A blank output or shape cell of the old row is a spelling of the same key: it stays as it is.
    for column in BASE_COLUMNS[2:]:
        changed.pop(column, None)
    return changed


def write_plans(plans: Sequence[TablePlan]) -> list[TableResult]:
    """Write the tables one after the other; the caller holds the database's lock.

    Raises:
        TableError: One cannot be written; the message says which are and which are not.
    """
    results: list[TableResult] = []
    for plan in plans:
        try:
            results.append(_write(plan))
        except PerfcollectError as error:
            left = len(plans) - len(results)
            raise TableError(
                f"{error}; {len(results)} tables are written and whole, {left} are as they were",
                hint="make room or rights and run the same command again: it completes the rest and changes no other",
                path=plan.path,
            ) from error
    return results


def _write(plan: TablePlan) -> TableResult:
    name = plan.path.name
    if not plan.exists:
        write_table(plan.path, plan.header, plan.rows)
        return TableResult(name, added=len(plan.rows))
    if plan.replaces:
        fresh = plan.path.with_name(plan.path.name + ".new" + PARTIAL)
        fresh.unlink(missing_ok=True)
        write_table(fresh, plan.header, plan.rows)
        content = fresh.read_bytes()
        fresh.unlink()
        if content == plan.path.read_bytes():
            return TableResult(name, unchanged=len(plan.rows))
        replace_file(plan.path, content)
        return TableResult(name, added=len(plan.rows))
    done = patch_table(plan.path, plan.changes, append=plan.rows)
    if done.refused:
        raise TableError(f"{plan.path}: a row cannot be written: {done.refused[0][1]}", path=plan.path)
    return TableResult(name, added=done.added, updated=done.updated, unchanged=done.unchanged)
