"""Extend the tables of a database with theory rows: check everything first, then change all files or none."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import attrs

from perfcollect_core.cases import Row
from perfcollect_core.discovery import operator_name, plugin_index
from perfcollect_core.errors import TableError, UsageError
from perfcollect_core.host import OperatorHost, compose
from perfcollect_core.loading import load_family, load_operator
from perfcollect_core.specs import GridRequest, OperatorSpec
from perfcollect_core.tables.atomic import Staged, commit_staged, stage_file
from perfcollect_core.tables.columns import AVERAGE, BASE_COLUMNS, PROFILING_AVERAGE
from perfcollect_core.tables.identity import read_identity
from perfcollect_core.tables.lock import database_lock
from perfcollect_core.tables.read import Table, is_collective_table, new_table, read_table, table_paths

from .coverage import CoverageMeter
from .data_only import data_only_rule, is_data_only
from .generate import Generated, RowSource, Stopwatch, generate_rows, variant_of
from .lines import LineCollector
from .report import GridReport, TableReport, make_report
from .spool import Spool
from .standard import AxisStandard, read_standard
from .theory import TheoryRow

__all__ = ["GridOptions", "extend_database", "validate_tables"]


#: Tables of more rows are read again when their turn comes, so that memory holds one of them at a time.
_KEPT_ROWS = 2000


@attrs.frozen(kw_only=True)
class GridOptions:
    """What was asked for; ``queries`` maps an operator to the cells of rows that come first."""

    request: GridRequest
    rows: int = 1000
    seed: int = 0
    operators: tuple[str, ...] = ()
    queries: Mapping[str, Sequence[Mapping[str, str]]] = attrs.field(factory=dict)
    dry_run: bool = False


@attrs.frozen(eq=False)
class _Target:
    """One table to extend, ``table`` as it is or will be, and what rows come from."""

    path: Path
    operator: str
    spec: OperatorSpec
    host: OperatorHost | None
    rule: Callable[[OperatorSpec, Sequence[Row], GridRequest], Iterable[object]]
    created: bool


def validate_tables(database: Path, options: GridOptions) -> None:
    """Raise what would keep *database* from being extended: unknown operators, tables that cannot be read."""
    identity = read_identity(database)
    _read_all(
        [
            t
            for t in _targets(database, options, identity.family if identity else "ascend", {})
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
    targets = _targets(database, options, family, skipped)
    stamps = {target.path: _stamp(target.path) for target in targets}
    tables = _read_all([t for t in targets if not t.created])
    _drop_headings(targets, tables, options, skipped)
    _check_writable([t.path for t in targets], options.dry_run)
    with contextlib.ExitStack() as stack:
        stack.enter_context(_no_cycles())
        if not options.dry_run:
            stack.enter_context(database_lock(database))
            tables |= _read_all([t for t in targets if _stamp(t.path) != stamps[t.path]])
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


def _targets(database: Path, options: GridOptions, family: str, skipped: dict[str, str]) -> list[_Target]:
    present = {path.stem: path for path in table_paths(database)}
    known = set(plugin_index().names("operators"))
    texts = {operator_name(text)[1]: text for text in options.operators}
    names = sorted(texts) if texts else sorted(present)
    targets = []
    device = load_family(family)
    for name in names:
        path = present.get(name, database / f"{name}.csv")
        if is_collective_table(path):
            raise UsageError(
                f"{path.name} is a table of collectives", hint="perfcollect comm plan has their grid"
            )
        if is_data_only(name) and name not in known:
            if name not in texts:
                skipped[path.name] = f"no operator replays {name}; --ops {name} generates rows all the same"
                continue
            rule, spec, host = data_only_rule(name), OperatorSpec(name, axes=data_only_rule(name).axes), None
            targets.append(_Target(path, name, spec, host, rule, name not in present))
            continue
        if name not in known and name not in texts:
            skipped[path.name] = "no rule: no operator of that name is installed"
            continue
        composed = compose(load_operator(texts.get(name, name)), device)
        targets.append(
            _Target(path, name, composed.spec(), composed, composed.generate_rows, name not in present)
        )
    return targets


def _read_all(targets: Sequence[_Target]) -> dict[Path, Table]:
    """Read every table, or raise one error that names all that cannot be read; large ones are not kept."""
    tables, problems = {}, []
    for target in targets:
        try:
            table = read_table(target.path)
            if len(table.rows) <= _KEPT_ROWS:
                tables[target.path] = table
        except TableError as error:
            problems.append(error)
    if len(problems) == 1:
        raise problems[0]
    if problems:
        hints = dict.fromkeys(p.hint for p in problems if p.hint)
        raise TableError(
            f"{len(problems)} tables cannot be read: {'; '.join(map(str, problems))}",
            hint="no file was changed; " + "; ".join(hints),
            path=problems[0].path,
        )
    return tables


def _stamp(path: Path) -> tuple[int, int]:
    """Return what tells whether another writer changed a file meanwhile."""
    try:
        stat = path.stat()
    except FileNotFoundError:
        return 0, 0
    return stat.st_mtime_ns, stat.st_size


def _drop_headings(
    targets: list[_Target], tables: Mapping[Path, Table], options: GridOptions, skipped: dict[str, str]
) -> None:
    """Leave out tables that are a heading alone, unless they are named."""
    for target in list(targets):
        table = tables.get(target.path)
        if table is not None and not table.rows and not options.operators:
            targets.remove(target)
            skipped[target.path.name] = (
                f"has a header and no row; --ops {target.operator} fills it from the operator's rule"
            )


def _check_writable(paths: Sequence[Path], dry_run: bool) -> None:
    if dry_run:
        return
    locked = [path for path in paths if path.exists() and not path.stat().st_mode & 0o222]
    if locked:
        raise TableError(
            f"{', '.join(map(str, locked))} cannot be written: read-only",
            hint="no file was changed; give yourself write access (chmod u+w), or extend a copy with --out",
            path=locked[0],
        )


def _extend_table(
    target: _Target,
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
