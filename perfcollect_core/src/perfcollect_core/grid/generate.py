"""Generate the theory rows of one table: enumerate, filter, choose under the cap, check with the operator's plan."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import islice
from typing import cast

import attrs

from perfcollect_core.cases import Row
from perfcollect_core.host import OperatorHost
from perfcollect_core.specs import GridRequest, OperatorSpec
from perfcollect_core.tables.match import raw_key
from perfcollect_core.tables.read import Table

from .axes import rows_axis
from .budget import row_bytes
from .cells import GRID_RULE, cells_of, row_of, theory_row
from .coverage import form_variant
from .plan_check import PlanCheck
from .sample import Pick, order_rows, strata_counts, table_seed
from .standard import AxisStandard, promise_of
from .theory import Form, Shape, TheoryRow

__all__ = ["Generated", "RowSource", "Stopwatch", "generate_rows", "variant_of"]

_CHUNK = 4096
_MOST_REASONS = 20


class Stopwatch:
    """Adds up the seconds of each phase on *clock*."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self.clock = clock
        self.seconds: dict[str, float] = {}

    def run(self, phase: str, work: Callable[[], object]) -> object:
        """Return what *work* returns, its time counted for *phase*."""
        started = self.clock()
        try:
            return work()
        finally:
            self.add(phase, self.clock() - started)

    def add(self, phase: str, seconds: float) -> None:
        self.seconds[phase] = self.seconds.get(phase, 0.0) + seconds


@attrs.define
class Generated:
    """What became of the candidates of one table, counted while its rows are drawn."""

    candidates: int = 0
    kept: int = 0
    present: int = 0
    left: int = 0
    dropped: Counter[str] = attrs.field(factory=Counter)
    strata: Mapping[str, int] = attrs.field(factory=dict)
    curves: int = 0
    curves_whole: int = 0

    def drop(self, reason: str, count: int = 1) -> None:
        if reason not in self.dropped and len(self.dropped) >= _MOST_REASONS:
            reason = "other reasons"
        self.dropped[reason] += count


@attrs.frozen(eq=False, kw_only=True)
class RowSource:
    """Everything rows of one table come from: its operator, what it holds, what was asked for.

    ``host`` is ``None`` for kernels that no operator replays; ``rule`` gives their rows.
    """

    table: Table
    operator: str
    spec: OperatorSpec
    host: OperatorHost | None
    rule: Callable[[OperatorSpec, Sequence[Row], GridRequest], Iterable[object]]
    request: GridRequest
    family: str
    queries: Sequence[Mapping[str, str]] = ()


def generate_rows(
    source: RowSource,
    counts: Generated,
    watch: Stopwatch,
    *,
    cap: int,
    seed: int,
    standards: Mapping[str, AxisStandard],
) -> Iterator[list[TheoryRow]]:
    """Yield the rows to add to a table in parts; *counts* is complete when they end. *cap* 0 takes all of them."""
    filtered = _Filter(source, counts)
    candidates = filtered.candidates()
    if cap:
        yield from _chosen(source, filtered, candidates, counts, watch, cap, seed, standards)
        return
    check = _plan_check(source, filtered, counts)
    while True:
        started = watch.clock()
        firsts, is_present = filtered.firsts, filtered.is_present
        chunk = [
            row for row in islice(candidates, _CHUNK) if row.inputs[0] not in firsts or not is_present(row)
        ]
        watch.add("enumerate", watch.clock() - started)
        if not chunk and filtered.exhausted:
            return
        accepted = cast("list[TheoryRow]", watch.run("plan check", lambda chunk=chunk: check.accepted(chunk)))  # type: ignore[misc]  # bound per chunk
        counts.kept += len(accepted)
        yield accepted


def _chosen(
    source: RowSource,
    filtered: _Filter,
    candidates: Iterator[TheoryRow],
    counts: Generated,
    watch: Stopwatch,
    cap: int,
    seed: int,
    standards: Mapping[str, AxisStandard],
) -> Iterator[list[TheoryRow]]:
    rows: list[TheoryRow] = []
    asked: list[int] = []
    there: list[int] = []
    started = watch.clock()
    for row in candidates:
        status = filtered.status(row)
        if status == "profiled":
            counts.present += 1
            continue
        if status == "generated":
            there.append(len(rows))
        if len(rows) < filtered.query_count and filtered.is_query(row):
            asked.append(len(rows))
        rows.append(row)
    promises = [promise_of(axis, standards) for axis in source.spec.axes]
    order = order_rows(
        rows, promises, table_seed(seed, source.table.path.name), cap, critical=asked, present=there
    )
    watch.add("enumerate", watch.clock() - started)
    check = _plan_check(source, filtered, counts)
    generated, picks = set(there), []
    room = cap
    while room > 0:
        batch = list(islice(order, room))
        if not batch:
            break
        fresh = [pick for pick in batch if pick.index not in generated]
        old = len(batch) - len(fresh)
        counts.present += old
        accepted = cast(
            "list[TheoryRow]",
            watch.run("plan check", lambda fresh=fresh: check.accepted([rows[p.index] for p in fresh])),  # type: ignore[misc]  # bound per batch
        )
        good = set(map(id, accepted))
        picks += [pick for pick in batch if pick.index in generated or id(rows[pick.index]) in good]
        room -= old + len(accepted)
        counts.kept += len(accepted)
        yield accepted
    counts.left = sum(1 for _ in order)
    counts.strata = strata_counts(picks)
    counts.curves, counts.curves_whole = _curve_counts(rows, picks)


def _plan_check(source: RowSource, filtered: _Filter, counts: Generated) -> PlanCheck:
    return PlanCheck(
        source.host,
        source.spec,
        filtered.existing_rows,
        table=source.table.path.name,
        family=source.family,
        drop=counts.drop,
    )


def _curve_counts(rows: Sequence[TheoryRow], picks: Sequence[Pick]) -> tuple[int, int]:
    """Return how many curves the candidates have along the first axis, and how many were taken whole."""

    def curve(row: TheoryRow) -> tuple[object, ...]:
        return (row.form, *row.at[1:])

    every, taken = Counter(map(curve, rows)), Counter(curve(rows[pick.index]) for pick in picks)
    return len(every), sum(taken[key] == count for key, count in every.items())


class _Filter:
    """Enumerates candidates within the byte budget and knows which of them the table already has."""

    def __init__(self, source: RowSource, counts: Generated) -> None:
        self._source, self._counts = source, counts
        self.existing_rows = tuple(row for row in source.table.rows if not row.get(GRID_RULE))
        self._keys = {row.ref.key: bool(row.get(GRID_RULE)) for row in source.table.rows}
        self.firsts = {_first_shape(key[1]) for key in self._keys}
        self.exhausted = False
        self._query_keys: set[tuple[str, ...]] = set()
        self._query_firsts: set[Shape] = set()
        self.query_count = 0

    def candidates(self) -> Iterator[TheoryRow]:
        """Yield the candidates that fit the budget: queries first, then the rule's rows, none of them twice."""
        source, counts = self._source, self._counts
        budget = source.request.max_bytes
        for row in self._queries():
            counts.candidates += 1
            self.query_count += 1
            yield row
        queries, found = self._query_firsts, 0
        # Rows of an earlier grid are no templates: a second run would find forms the first one made up.
        try:
            for given in source.rule(source.spec, self.existing_rows, source.request):
                row = given if isinstance(given, TheoryRow) else self._read(given)
                found += 1
                if budget and row_bytes(row) > budget:
                    counts.drop("needs more than --max-hbm-gb")
                elif queries and row.inputs[0] in queries and self.is_query(row):
                    counts.drop("asked for as a query")
                else:
                    yield row
        finally:
            counts.candidates += found
        self.exhausted = True

    def _read(self, given: object) -> TheoryRow:
        row = theory_row(cast("Mapping[str, str]", given))
        return row._replace(at=rows_axis(self._source.spec.axes, row_of("", self._source.operator, row)))

    def _queries(self) -> Iterator[TheoryRow]:
        for cells in self._source.queries:
            key = raw_key(self._source.operator, cells)
            if key not in self._query_keys:
                self._query_keys.add(key)
                self._query_firsts.add(_first_shape(key[1]))
                yield self._read(cells)

    def is_query(self, row: TheoryRow) -> bool:
        """Tell whether *row* is one of the queries."""
        return bool(self._query_keys) and raw_key(self._source.operator, cells_of(row)) in self._query_keys

    def status(self, row: TheoryRow) -> str:
        """Return ``generated`` or ``profiled`` where the table has the row, else an empty text."""
        if row.inputs[0] not in self.firsts:
            return ""
        known = self._keys.get(raw_key(self._source.operator, cells_of(row)))
        return "" if known is None else "generated" if known else "profiled"

    def is_present(self, row: TheoryRow) -> bool:
        """Count *row* as present where the table has it."""
        if not self.status(row):
            return False
        self._counts.present += 1
        return True


def _first_shape(inputs: str) -> Shape:
    """Return the first shape of a raw key's inputs: comparing it spares the key of nearly every row."""
    first = inputs.partition(";")[0]
    return tuple(int(part) if part.isdecimal() else -1 for part in first.split(",")) if first else ()


def variant_of(row: TheoryRow) -> tuple[str, ...]:
    """Return what tells variants of a row apart beside its axes, as ``coverage`` reads it off a table."""
    return _variant(row.form, tuple(map(len, row.inputs)))


@lru_cache(maxsize=1024)
def _variant(one: Form, ranks: tuple[int, ...]) -> tuple[str, ...]:
    return form_variant(
        ";".join(one.input_dtypes),
        ";".join(one.input_formats),
        ";".join(one.output_dtypes),
        ";".join([",".join([""] * rank) for rank in ranks]),
    )
