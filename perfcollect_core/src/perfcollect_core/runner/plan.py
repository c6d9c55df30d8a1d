"""Plan a run: tables, operators, rows, cases and skips, in the order they will be measured (parent side)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

import attrs

from perfcollect_core.cases import Case, Row, RowRef, RunRequest, Skip
from perfcollect_core.discovery import operator_name, plugin_index
from perfcollect_core.environment import DeviceFamily
from perfcollect_core.errors import PluginContractError, TableError
from perfcollect_core.host import OperatorHost, compose
from perfcollect_core.loading import LoadedPlugin, load_provider
from perfcollect_core.measurements import Plan
from perfcollect_core.specs import OperatorSpec
from perfcollect_core.tables.read import read_table

from .options import RunOptions
from .protocol import PluginRef
from .selection import parse_rows, select_rows
from .table_choice import choose_tables

__all__ = ["PlannedCase", "PlannedTable", "RunPlan", "build_plan"]

#: What a launch costs beside its arithmetic, and the speeds predictions start from; a run corrects them by what it sees.
_CASE_SECONDS = 0.05
_FLOPS_PER_SECOND = 5e10
_BYTES_PER_SECOND = 5e9
_LAUNCHES = 100
_FEWEST_SAMPLES = 3


@attrs.frozen(eq=False)
class PlannedTable:
    """One table and the operator that replays it."""

    path: Path
    operator: str
    provider: str
    ref: PluginRef
    host: OperatorHost
    spec: OperatorSpec
    selected: tuple[Row, ...]
    #: Data rows in the table, and how many were left out for having a valid duration.
    rows: int
    not_needed: int


@attrs.frozen(eq=False)
class PlannedCase:
    """A case to measure; ``needed_bytes`` are its tensors', ``predicted_seconds`` its measuring's."""

    case: Case
    row: Row
    table: PlannedTable
    flops: float
    needed_bytes: float
    predicted_seconds: float


@attrs.frozen(eq=False)
class RunPlan:
    """Everything a run decided before it starts a worker.

    ``unclaimed`` are tables no operator replays; ``cases`` are in measuring order; ``left`` counts those beyond ``--limit``; ``done`` those an earlier part of the run
    measured, ``denied`` those it gave up on.
    """

    tables: tuple[PlannedTable, ...]
    cases: tuple[PlannedCase, ...]
    skips: tuple[tuple[PlannedTable, Row, Skip], ...]
    unreadable: Mapping[str, str]
    unclaimed: tuple[str, ...] = ()
    left: int = 0
    done: int = 0
    denied: int = 0

    @property
    def predicted_seconds(self) -> float:
        return sum(case.predicted_seconds for case in self.cases)

    def nothing_to_do(self) -> str | None:
        """Return the sentence to end with where no row was selected, else ``None``."""
        if any(table.selected for table in self.tables):
            return None
        if not self.tables:
            return "nothing to do: the database has no table of a supported operator"
        parts = [
            f"{table.not_needed} of {table.rows} rows of {table.path.name} have a valid duration"
            if table.not_needed or not table.rows
            else f"no row of {table.path.name} is selected ({table.rows} rows)"
            for table in self.tables
        ]
        shown = "; ".join(parts[:5]) + (f"; and {len(parts) - 5} more tables" if len(parts) > 5 else "")
        again = any(table.not_needed for table in self.tables)
        return f"nothing to do: {shown}" + ("; --update-mode all measures them again" if again else "")


def build_plan(
    database: Path,
    options: RunOptions,
    family: LoadedPlugin,
    wrappers: Sequence[LoadedPlugin] = (),
    *,
    done: Collection[RowRef] = (),
    denied: Collection[RowRef] = (),
) -> RunPlan:
    """Read the tables, select rows and make their cases; nothing is probed and nothing written.

    Args:
        database: Directory of the tables.
        options: What was asked for.
        family: The device family.
        wrappers: Opted-in wrappers.
        done: Rows an earlier part of the run measured; they are not made into cases again.
        denied: Rows an earlier part gave up on, left alone unless ``options.retry_failed``.

    Raises:
        TableError: A named table cannot be read.
    """
    numbers = parse_rows(options.rows) if options.rows is not None else None
    choice = choose_tables(database, options)
    tables: list[PlannedTable] = []
    unreadable: dict[str, str] = {}
    for path, text in choice.tables:
        distribution, name = operator_name(text)
        provider = plugin_index().require("operators", name, distribution)
        loaded = load_provider(provider)
        host = compose(loaded, family, wrappers)
        spec = host.spec()
        try:
            table = read_table(path, required=spec.required_columns)
        except TableError as error:
            if choice.named:
                raise
            unreadable[path.name] = f"{error} ({error.hint})" if error.hint else str(error)
            continue
        selected, not_needed = select_rows(
            table.rows,
            numbers=numbers,
            missing_only=options.update_mode == "missing-only",
            taken_before=done if isinstance(done, (set, frozenset)) else frozenset(done),
        )
        tables.append(
            PlannedTable(
                path=path,
                operator=name,
                provider=loaded.provider,
                ref=PluginRef(name, provider.value, loaded.provider),
                host=host,
                spec=spec,
                selected=tuple(selected),
                rows=len(table.rows),
                not_needed=not_needed,
            )
        )
    plan = _plan_cases(tables, unreadable, options, family, done, denied)
    return attrs.evolve(plan, unclaimed=choice.unclaimed)


def _plan_cases(
    tables: Sequence[PlannedTable],
    unreadable: Mapping[str, str],
    options: RunOptions,
    family: LoadedPlugin,
    done: Collection[RowRef],
    denied: Collection[RowRef],
) -> RunPlan:
    device_family = family.plugin
    assert isinstance(device_family, DeviceFamily)
    case_plan = options.plan(device_family.default_plan())
    request = RunRequest(device_family.name, options.plugin_options)
    cases: list[PlannedCase] = []
    skips: list[tuple[PlannedTable, Row, Skip]] = []
    counts: Counter[str] = Counter()
    for table in tables:
        wanted = []
        for row in table.selected:
            if row.ref in done:
                counts["done"] += 1
            elif row.ref in denied and not options.retry_failed:
                counts["denied"] += 1
            else:
                wanted.append(row)
        if not wanted:
            continue
        if device_family.name not in table.spec.families:
            reason = f"{table.operator} does not run on {device_family.name}, only on {', '.join(table.spec.families)}"
            skips += [(table, row, Skip(reason)) for row in wanted]
            continue
        matched, refused_rows = _match(table, wanted, request)
        skips += [(table, row, skip) for row, skip in refused_rows]
        by_ref = {row.ref: row for row in wanted}
        for case in matched:
            if case.row is None or case.row not in by_ref:
                continue
            row = by_ref[case.row]
            refused = _unsupported_dtype(case, device_family)
            if refused is not None:
                skips.append((table, row, refused))
                continue
            cases.append(_planned(table, case, row, case_plan))
    ordered = sorted(cases, key=lambda planned: planned.predicted_seconds)
    kept = ordered if options.limit is None else ordered[: max(0, options.limit - counts["done"])]
    return RunPlan(
        tables=tuple(tables),
        cases=tuple(kept),
        skips=tuple(skips),
        unreadable=dict(unreadable),
        left=len(ordered) - len(kept),
        done=counts["done"],
        denied=counts["denied"],
    )


def _match(
    table: PlannedTable, rows: Sequence[Row], request: RunRequest
) -> tuple[list[Case], list[tuple[Row, Skip]]]:
    """Match rows to cases; a row the plugin fails on is set aside with what it raised, the others go on."""
    try:
        matched = table.host.match_rows(table.spec, rows, request)
    except PluginContractError as error:
        # What the plugin raised is its cause; an answer against the contract has none and is never of one row.
        if error.__cause__ is None:
            raise
        if len(rows) == 1:
            return [], [(rows[0], Skip.invalid(str(error)))]
        broken = error
    else:
        return list(matched.cases), list(matched.skips)
    cases: list[Case] = []
    skips: list[tuple[Row, Skip]] = []
    for row in rows:
        more_cases, more_skips = _match(table, [row], request)
        cases += more_cases
        skips += more_skips
    if not cases:
        raise broken
    return cases, skips


def _planned(table: PlannedTable, case: Case, row: Row, plan: Plan) -> PlannedCase:
    cost = table.host.estimate_cost(case)
    needed = float(sum(t.nbytes for t in (*case.tensors.values(), *case.outputs)))
    once = cost.flops / _FLOPS_PER_SECOND + max(cost.nbytes, needed) / _BYTES_PER_SECOND
    if plan.repeat is not None:
        seconds = (plan.repeat + plan.warmup) * once
    else:
        # The budget bounds the samples; warming up and the fewest samples are taken all the same.
        seconds = max(min(_LAUNCHES * once, plan.max_seconds), (1 + _FEWEST_SAMPLES) * once)
    return PlannedCase(case, row, table, cost.flops, needed, _CASE_SECONDS + seconds)


def _unsupported_dtype(case: Case, family: DeviceFamily) -> Skip | None:
    for name, tensor in case.tensors.items():
        if tensor.dtype and tensor.dtype not in family.dtypes:
            return Skip(f"dtype not supported here: {tensor.dtype} (input {name!r} on {family.name})")
    return None
