"""``perfcollect parse``: profiler output into tables."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from perfcollect_core.errors import DataError

from .arguments import multi_option
from .database_options import database_options
from .output import emit, format_option, note, progress, warn

if TYPE_CHECKING:
    from perfcollect_core.profiles.ledger import FileLedger
    from perfcollect_core.profiles.report import ParseReport
    from perfcollect_core.profiles.writing import OnExisting
    from perfcollect_core.tables.layout import DatabaseOptions

__all__ = ["parse"]

#: How long to wait for another writer of the database.
_LOCK_SECONDS = 10.0


@click.command()
@multi_option(
    "--profiling-path",
    "profiling_paths",
    type=click.Path(path_type=Path),
    required=True,
    metavar="PATH...",
    help="A kernel_details*.csv, an op_summary_*.csv, or a directory that is searched for them.",
)
@database_options
@click.option(
    "--on-existing",
    type=click.Choice(["merge", "replace", "fail"]),
    default="merge",
    show_default=True,
    help="What to do with a table that is there: refresh what profiles say, write it anew, or stop.",
)
@multi_option("--ranks", metavar="N...", help="Only the captures of these ranks (0-3,8).")
@multi_option("--steps", metavar="N...", help="Only rows with these values of Step Id (10,12-15).")
@click.option(
    "--strict", is_flag=True, help="Any line that cannot be used is an error, and nothing is written."
)
@click.option(
    "--report",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Write the report there: JSON if *.json, else Markdown.",
)
@format_option
@click.pass_context
def parse(
    context: click.Context,
    profiling_paths: tuple[Path, ...],
    database: DatabaseOptions,
    on_existing: OnExisting,
    ranks: tuple[str, ...],
    steps: tuple[str, ...],
    strict: bool,
    report: Path | None,
    output_format: str,
) -> None:
    """Turn profiler output into the tables of a database.

    Example: perfcollect parse --profiling-path ./node-0_4100_ascend_pt --vllm-version 0.18.0 --torch-version 2.9.0
    --cann-version 8.5
    """
    from perfcollect_core.profiles.discover import discover, parse_ranks
    from perfcollect_core.profiles.reading import open_files, parse_steps, read_profile
    from perfcollect_core.profiles.report import ParseReport
    from perfcollect_core.profiles.writing import prepared_directory
    from perfcollect_core.tables.identity import check_identity
    from perfcollect_core.tables.layout import DEFAULT_ASCEND_DEVICE, find_database

    wanted_ranks, wanted_steps = parse_ranks(ranks), parse_steps(steps)
    located = find_database(database, family="ascend", device_name=DEFAULT_ASCEND_DEVICE)
    for said in located.notes:
        note(said)
    directory = located.path
    device = database.device or ("" if database.database_path else DEFAULT_ASCEND_DEVICE)
    _warn_of_pointers(directory)
    discovery = discover(profiling_paths, wanted_ranks)
    opened, unreadable = open_files(discovery, set(profiling_paths), wanted_steps)
    if directory.is_dir():
        check_identity(directory, family="ascend", device=device)
    _check_report(report)
    with prepared_directory(directory):
        existing = {path.name for path in directory.glob("*.csv")}
        size = sum(header.path.stat().st_size for _, header in opened)
        with progress(size >> 20, "parse (MiB)") as bar:
            read = _Megabytes(bar.advance)
            profile = read_profile(opened, steps=wanted_steps, existing=existing, advance=read.add)
        result = ParseReport(directory, profile, (), tuple(unreadable), discovery.notes)
        defect = _first_defect(profile.ledgers) if strict else None
        if profile.rows and defect is None:
            result = _write(result, on_existing, device)
        unwritten = _write_report(result, report) if report is not None else None
    if defect is not None:
        raise defect
    for entry in unreadable:
        warn(f"not read: {entry.error}{f' ({entry.error.hint})' if entry.error.hint else ''}")
    for table in result.tables:
        if table.problem:
            warn(f"not written: {table.problem}")
    emit(result.as_dict(), lambda: "\n".join(result.lines()), output_format)
    if unwritten is not None:
        raise unwritten
    _refuse_nothing(profile.ledgers, bool(profile.rows))
    if unreadable or any(table.problem for table in result.tables):
        context.exit(3)


class _Megabytes:
    """Counts bytes and passes on whole mebibytes."""

    def __init__(self, advance: Callable[[int], None]) -> None:
        self._advance = advance
        self._left = 0

    def add(self, count: int) -> None:
        self._left += count
        if self._left >> 20:
            self._advance(self._left >> 20)
            self._left &= (1 << 20) - 1


def _write(result: ParseReport, on_existing: OnExisting, device: str) -> ParseReport:
    import attrs

    from perfcollect_core.profiles.profile_columns import load_profile_columns
    from perfcollect_core.profiles.writing import plan_tables, write_plans
    from perfcollect_core.tables.identity import adopt_identity, check_identity, read_identity
    from perfcollect_core.tables.lock import database_lock

    profile = result.profile
    columns = {operator: load_profile_columns(operator) for operator in profile.rows}
    notes = tuple(found.note for found in columns.values() if found.note)
    with database_lock(result.database, wait_seconds=_LOCK_SECONDS):
        check_identity(result.database, family="ascend", device=device)
        unknown = read_identity(result.database) is None
        plans, problems = plan_tables(result.database, profile.rows, profile.tables, columns, on_existing)
        if unknown:
            adopt_identity(result.database, family="ascend", device=device)
        written = write_plans(plans)
    tables = sorted((*written, *problems), key=lambda table: table.table)
    return attrs.evolve(result, tables=tuple(tables), notes=(*result.notes, *notes))


def _warn_of_pointers(database: Path) -> None:
    """Name the tables that are Git-LFS pointers, whatever else goes wrong: none of them can be merged."""
    from perfcollect_core.errors import TableError
    from perfcollect_core.tables.encoding import read_text
    from perfcollect_core.tables.read import table_paths

    for path in table_paths(database) if database.is_dir() else ():
        if path.stat().st_size > 1024:
            continue
        try:
            read_text(path)
        except TableError as error:
            warn(f"{error}{f' ({error.hint})' if error.hint else ''}")


def _check_report(report: Path | None) -> None:
    if report is not None and (report.is_dir() or (report.parent.exists() and not report.parent.is_dir())):
        raise DataError(
            f"report {report} cannot be written: it is not a file in a directory", hint="name a file"
        )


def _write_report(result: ParseReport, path: Path) -> DataError | None:
    """Write the report; a failure is told after everything else, since the tables are written by then."""
    from perfcollect_core.profiles.report import write_report

    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_report(result, path)
    except (OSError, DataError) as error:
        cause = error.strerror if isinstance(error, OSError) else error
        return DataError(
            f"report {path} cannot be written: {cause}; the tables are written and whole",
            hint="name another file with --report and run the same command again",
        )
    return None


def _first_defect(ledgers: tuple[FileLedger, ...]) -> DataError | None:
    for ledger in ledgers:
        for reason, rows in ledger.defects().items():
            more = f" (and {rows.tally.count - 1} more such lines)" if rows.tally.count > 1 else ""
            line = rows.lines[0] if rows.lines else 0
            return DataError(
                f"{ledger.path} line {line}: {reason}{more}",
                hint="nothing is written; without --strict such lines are set aside and listed",
            )
        if ledger.implausible:
            line, column, text = ledger.implausible[0]
            return DataError(
                f"{ledger.path} line {line}: {column} {text!r} is not plausible",
                hint="nothing is written; without --strict such cells are left out and listed",
            )
    return None


def _refuse_nothing(ledgers: tuple[FileLedger, ...], found: bool) -> None:
    """Raise where there were rows and none could be used."""
    rows = sum(ledger.rows for ledger in ledgers)
    if found or not rows:
        return
    shapeless = sum(
        t.count for ledger in ledgers for (kind, _), t in ledger.apart.items() if kind == "no_shape"
    )
    if shapeless:
        raise DataError(
            f"none of {rows} rows has shapes: nothing to write",
            hint="the profile was taken at Level0; take it again with profiler_level=Level1",
        )
    raise DataError(f"none of {rows} rows could be used: nothing to write", hint="the report above says why")
