"""Extend the tables of a database with theory rows: check everything first, then change all files or none."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

from perfcollect_core.specs import OperatorSpec
from perfcollect_core.tables.atomic import Staged, commit_staged, stage_file
from perfcollect_core.tables.columns import AVERAGE, BASE_COLUMNS, PROFILING_AVERAGE
from perfcollect_core.tables.identity import read_identity
from perfcollect_core.tables.lock import database_lock
from perfcollect_core.tables.read import Table, new_table, read_table

from .coverage import CoverageMeter
from .generate import Generated, RowSource, Stopwatch, generate_rows, variant_of
from .lines import LineCollector
from .report import GridReport, TableReport, make_report
from .spool import Spool
from .standard import AxisStandard, read_standard
from .targets import GridOptions, Target, check_writable, choose_targets, drop_headings, read_targets
from .theory import TheoryRow

__all__ = ["GridOptions", "extend_database", "validate_tables"]


def validate_tables(database: Path, options: GridOptions) -> None:
    """Raise what would keep *database* from being extended: unknown operators, tables that cannot be read."""
    identity = read_identity(database)
    read_targets(
        [
            t
            for t in choose_targets(database, options, identity.family if identity else "ascend", {})
            if not t.created
        ]
    )


def extend_database(
    database: Path,
    options: GridOptions,
    advance: Callable[[int, str], None] = lambda count, table: None,
    *,
    watch: Stopwatch | None = None,
) -> GridReport:
    """Generate theory rows for the tables of *database*; nothing is written where anything is wrong.

    Raises:
        UsageError: An operator is named that has no rule.
        TableError: Tables cannot be read or written; the message names every one.
        DataError: The database cannot be used.
    """
    watch, standards = watch or Stopwatch(), read_standard()
    identity = read_identity(database)
    family = identity.family if identity else "ascend"
    skipped: dict[str, str] = {}
    # Even the lock is a file: what cannot be extended is found before it is made.
    targets = choose_targets(database, options, family, skipped)
    stamps = {target.path: _stamp(target.path) for target in targets}
    tables = read_targets([t for t in targets if not t.created])
    drop_headings(targets, tables, options, skipped)
    check_writable([t.path for t in targets], options.dry_run)
    with contextlib.ExitStack() as stack:
        stack.enter_context(_no_cycles())
        if not options.dry_run:
            stack.enter_context(database_lock(database))
            tables |= read_targets([t for t in targets if _stamp(t.path) != stamps[t.path]])
        staged: list[Staged] = []
        reports = []
        try:
            for target in targets:
                report, one = _extend_table(
                    target, tables.pop(target.path, None), options, family, watch, standards
                )
                reports.append(report)
                staged += [one] if one else []
                advance(1, target.path.name)
            started = watch.clock()
            commit_staged(database, staged)
            watch.add("write", watch.clock() - started)
        except BaseException:
            for one in staged:
                one.discard()
            raise
    return make_report(
        database,
        options.request,
        reports,
        skipped,
        watch.seconds,
        dry_run=options.dry_run,
        options={"rows": options.rows, "seed": options.seed},
    )


@contextlib.contextmanager
def _no_cycles() -> Iterator[None]:
    """Spare the search for reference cycles: rows are tuples of numbers, and there are hundreds of thousands."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _stamp(path: Path) -> tuple[int, int]:
    """Return what tells whether another writer changed a file meanwhile."""
    try:
        stat = path.stat()
    except FileNotFoundError:
        return 0, 0
    return stat.st_mtime_ns, stat.st_size


def _extend_table(
    target: Target,
    table: Table | None,
    options: GridOptions,
    family: str,
    watch: Stopwatch,
    standards: Mapping[str, AxisStandard],
) -> tuple[TableReport, Staged | None]:
    if target.created:
        table = new_table(target.path, _heading(target.spec))
    elif table is None:
        table = read_table(target.path)
    meter = CoverageMeter(target.spec.axes, standards)
    for row in table.rows:
        meter.add(row)
    before = meter.result(target.path.name)
    source = RowSource(
        table=table,
        operator=target.operator,
        spec=target.spec,
        host=target.host,
        rule=target.rule,
        request=options.request,
        family=family,
        queries=options.queries.get(target.operator, ()),
    )
    counts, spool = Generated(), Spool()
    try:
        lines = LineCollector(table, spool)
        parts = generate_rows(
            source, counts, watch, cap=max(0, options.rows), seed=options.seed, standards=standards
        )
        for part in parts:
            watch.run("write", lambda part=part: lines.extend(part))  # type: ignore[misc]  # bound per part
            watch.run("coverage", lambda part=part: _measure(meter, part, len(target.spec.axes)))  # type: ignore[misc]  # as above
        after = meter.result(target.path.name)
        staged = None
        if counts.kept and not options.dry_run:
            started = watch.clock()
            staged = stage_file(target.path, _encoded(lines.text()))
            watch.add("write", watch.clock() - started)
    finally:
        spool.close()
    report = TableReport(
        table=target.path.name,
        operator=target.operator,
        candidates=counts.candidates,
        kept=counts.kept,
        present=counts.present,
        dropped=dict(sorted(counts.dropped.items())),
        left=counts.left,
        curves=counts.curves,
        curves_whole=counts.curves_whole,
        strata=counts.strata,
        created=target.created,
        columns_added=lines.added if counts.kept else (),
        replayable=target.host is not None,
        before=before,
        after=after,
    )
    return report, staged


def _measure(meter: CoverageMeter, rows: Iterable[TheoryRow], axes: int) -> None:
    for row in rows:
        if len(row.at) == axes and None not in row.at:
            meter.add_at(variant_of(row), row.at, True)


def _encoded(pieces: Iterable[str]) -> Iterator[bytes]:
    batch: list[str] = []
    for piece in pieces:
        batch.append(piece)
        if len(batch) >= 1024:
            yield "".join(batch).encode("utf-8")
            batch = []
    yield "".join(batch).encode("utf-8")


def _heading(spec: OperatorSpec) -> tuple[str, ...]:
    """Return the columns of a new table: the standard ones, and those its metadata needs."""
    return (*BASE_COLUMNS, AVERAGE, PROFILING_AVERAGE, *(column.name for column in spec.profile_columns))
