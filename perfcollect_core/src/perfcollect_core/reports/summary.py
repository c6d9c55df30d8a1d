"""What a run did, as the runner fills it and the reports print it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import datetime, timezone
from pathlib import Path

import attrs

from perfcollect_core.cases import Outcome

__all__ = ["Hotspot", "Mixture", "RowResult", "RunSummary", "TableSummary", "find_mixtures"]

_SAMPLE_COUNT = re.compile(r"[\s,;]*\bn=\d+")


@attrs.frozen
class RowResult:
    """How one selected row ended.

    Attributes:
        operator: Kernel type that was asked for.
        table: File name of the row's table.
        row: The row in words a person can find it by (``136,7168;7168,3584 BF16;BF16``).
        outcome: Measured, skipped or failed, with the reason.
        value_us: The chosen statistic, microseconds; ``None`` where the row was not measured.
        profiling_us: The row's ``Profiling Average Duration(us)``, ``None`` where it has none.
        cache: What ``Samples.cache`` says was achieved.
        flags: Why the samples are suspicious.
        checked: Whether the output was compared with the reference; ``None`` where no check was asked.
    """

    operator: str
    table: str
    row: str
    outcome: Outcome
    value_us: float | None = None
    profiling_us: float | None = None
    cache: str = ""
    flags: tuple[str, ...] = ()
    checked: bool | None = None


@attrs.frozen
class TableSummary:
    """What happened to one table.

    Attributes:
        table: File name.
        operator: Operator that was replayed.
        updated, added, deleted, unchanged: Rows.
        missing: Shapes that were measured and that no row takes (not those that were added).
        deleted_rows: Rows ``--prune-empty-duration-rows`` deleted, in words.
        duplicates: Row in words -> how often its key stands in the table, where more than once.
        measured_with: Text of ``Measured With`` -> rows with a valid duration that carry it after the run; the
            empty text counts valid rows without provenance.
        gone: Rows that were measured and had left the table before the write.
    """

    table: str
    operator: str
    updated: int = 0
    added: int = 0
    deleted: int = 0
    unchanged: int = 0
    missing: tuple[str, ...] = ()
    deleted_rows: tuple[str, ...] = ()
    duplicates: Mapping[str, int] = attrs.field(factory=dict)
    measured_with: Mapping[str, int] = attrs.field(factory=dict)
    gone: tuple[str, ...] = ()


@attrs.frozen
class Hotspot:
    """A row whose measured value and profiling average lie far apart."""

    operator: str
    table: str
    row: str
    measured_us: float
    profiling_us: float

    @property
    def ratio(self) -> float:
        return self.measured_us / self.profiling_us

    @property
    def difference_us(self) -> float:
        return abs(self.measured_us - self.profiling_us)


@attrs.frozen
class Mixture:
    """A table whose durations were taken by different tools or statistics: text of provenance -> rows."""

    table: str
    counts: Mapping[str, int]


@attrs.frozen
class RunSummary:
    """One run, ready to be reported.

    Attributes:
        run_id: Name of the run directory.
        database: Directory the rows are in.
        family, device: What measured (``cpu``, ``CPU_X86_64``).
        statistic: What stands in the duration column (``median``).
        cache: Cache policy asked for.
        repeat_rule: In words (``auto: until the 95 % interval of the median is within 1 %, at most 2 s a case``).
        started, finished: Wall-clock times.
        tables: One entry for each table touched.
        results: One entry for each selected row.
        unreadable: Table file name -> why it could not be read.
        remaining: Rows selected that budget or limit left over.
        environment: Versions and settings of the workers.
        notes: Sentences worth reading (assumptions in bulk, retries, quarantined devices).
        next_steps: Commands a person would type now.
        exit_code: As decision 9 of the design says.
        run_dir: Where journal, logs and profiles are.
    """

    run_id: str = ""
    database: Path = attrs.field(factory=Path)
    family: str = ""
    device: str = ""
    statistic: str = "median"
    cache: str = "warm"
    repeat_rule: str = ""
    started: datetime = attrs.field(factory=lambda: datetime.now(timezone.utc))
    finished: datetime = attrs.field(factory=lambda: datetime.now(timezone.utc))
    tables: tuple[TableSummary, ...] = ()
    results: tuple[RowResult, ...] = ()
    unreadable: Mapping[str, str] = attrs.field(factory=dict)
    remaining: int = 0
    environment: Mapping[str, str] = attrs.field(factory=dict)
    notes: tuple[str, ...] = ()
    next_steps: tuple[str, ...] = ()
    exit_code: int = 0
    run_dir: Path | None = None

    def count(self, state: str) -> int:
        """Return how many rows ended in *state* (``measured``, ``skipped``, ``failed``)."""
        return sum(result.outcome.state == state for result in self.results)

    def ended(self, state: str) -> tuple[RowResult, ...]:
        """Return the rows that ended in *state*."""
        return tuple(result for result in self.results if result.outcome.state == state)

    def reasons(self, state: str) -> Counter[tuple[str, str, str]]:
        """Count (operator, failure class, reason) of the rows that ended in *state*."""
        return Counter(
            (result.operator, result.outcome.failure or "", result.outcome.reason)
            for result in self.ended(state)
        )

    @property
    def mixtures(self) -> tuple[Mixture, ...]:
        """Tables that hold values of different statistics or tools after this run."""
        return find_mixtures(self.tables)


def find_mixtures(tables: Iterable[TableSummary]) -> tuple[Mixture, ...]:
    """Return the tables whose valid rows carry more than one provenance, most rows first.

    How many samples a value rests on (``n=30``) differs from row to row and makes no mixture; warm and cold values stand
    in columns of their own and are told apart.
    """
    found = []
    for table in tables:
        warm: Counter[str] = Counter()
        cold: Counter[str] = Counter()
        for text, count in table.measured_with.items():
            for entry in _SAMPLE_COUNT.sub("", text).split("; "):
                counts = cold if entry.startswith("cold: ") else warm
                counts[entry.strip() or "not recorded"] += count
        mixed = [counts for counts in (+warm, +cold) if len(counts) > 1]
        if mixed:
            merged = {text: count for counts in mixed for text, count in counts.items()}
            ordered = dict(sorted(merged.items(), key=lambda item: (-item[1], item[0])))
            found.append(Mixture(table.table, ordered))
    return tuple(found)
