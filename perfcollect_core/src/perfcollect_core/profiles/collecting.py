"""Read profiler files piece by piece into groups and ledgers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import attrs

from .collectives import Collectives
from .copies import SeenKernels
from .counters import parse_counters
from .frames import LINE, Piece, stream_pieces
from .groups import Groups
from .headers import ProfileHeader
from .kinds import Apart, Aside, Keyed, RowKind, classify
from .layouts import (
    DEVICE,
    DURATION,
    GROUP_COLUMNS,
    START,
    STEP,
    STREAM,
    TASK,
    counters_in,
)
from .ledger import FileLedger
from .numbers import DURATION_LIMIT_US, duration_fault, parse_number

if TYPE_CHECKING:
    import polars as pl

__all__ = ["Collector", "Selection"]


@attrs.frozen
class Selection:
    """Which rows of a file count: ``steps`` names values of ``Step Id``, ``None`` takes all."""

    steps: frozenset[str] | None = None


class Collector:
    """Collects any number of files; ``groups`` and ``ledgers`` hold what was found.

    *several* files are compared for copies; the types in *refused* are set aside with their reason.
    """

    def __init__(
        self,
        selection: Selection | None = None,
        *,
        several: bool = False,
        refused: Mapping[str, str] | None = None,
    ) -> None:
        self.groups = Groups()
        self.ledgers: list[FileLedger] = []
        self._selection = selection or Selection()
        self._refused = refused or {}
        # One file cannot be a copy of another: nothing has to be remembered.
        self._seen = SeenKernels() if several else None
        self._numbers: dict[tuple[str | None, ...], int] = {}
        self._special: dict[int, RowKind] = {}

    def read(
        self,
        header: ProfileHeader,
        ledger: FileLedger,
        *,
        source: str = "",
        advance: Callable[[int], None] = lambda _: None,
    ) -> FileLedger:
        """Read one file to its end; *source* is what a ``source`` profile column will say."""
        self.ledgers.append(ledger)
        counters = counters_in(header.columns)
        wanted = (*GROUP_COLUMNS, DURATION, START, STREAM, *counters)
        if self._seen is not None:
            wanted = (*wanted, DEVICE, TASK)
        if self._selection.steps is not None:
            wanted = (*wanted, STEP)
        file = _File(self, header, ledger, counters, source)
        for piece in _one_ahead(stream_pieces(header, wanted, optional=counters)):
            file.take(piece)
            advance(piece.nbytes)
        file.finish()
        return ledger

    def number(self, values: tuple[str | None, ...]) -> int:
        """Return the number of what rows with these ``GROUP_COLUMNS`` are: a group from 0, or a special below 0."""
        found = self._numbers.get(values)
        if found is not None:
            return found
        kind = classify(values)
        if isinstance(kind, Keyed) and kind.key[0] in self._refused:
            kind = Aside(self._refused[kind.key[0]])
        if isinstance(kind, Keyed):
            number = self.groups.identify(kind)
            if kind.is_open:
                self._special[number] = kind
        else:
            number = -1 - len(self._special)
            self._special[number] = kind
        self._numbers[values] = number
        return number

    def special_numbers(self) -> list[int]:
        """Return the numbers of everything that is not simply a key."""
        return list(self._special)

    def special(self, number: int) -> RowKind:
        return self._special[number]


def _one_ahead(pieces: Iterator[Piece]) -> Iterator[Piece]:
    """Yield *pieces*, the next one being read while the last one is worked on."""
    with ThreadPoolExecutor(max_workers=1) as reader:
        coming = reader.submit(next, pieces, None)
        while (piece := coming.result()) is not None:
            coming = reader.submit(next, pieces, None)
            yield piece


class _File:
    """The reading of one file."""

    def __init__(
        self,
        collector: Collector,
        header: ProfileHeader,
        ledger: FileLedger,
        counters: tuple[str, ...],
        source: str,
    ) -> None:
        self._collector = collector
        self._header = header
        self._ledger = ledger
        self._counters = counters
        self._source = source
        self._collectives = Collectives()
        self._numbers: set[int] = set()
        self._copies = collector._seen.begin(ledger) if collector._seen is not None else None
        self._bad_bytes: list[int] = []
        self._rounded = self._timed = 0
        self._rounded_times: set[str] = set()

    def take(self, piece: Piece) -> None:
        ledger = self._ledger
        ledger.rows += piece.frame.height + len(piece.faults)
        self._bad_bytes += piece.bad_bytes[: 100 - len(self._bad_bytes)]
        for fault in piece.faults:
            ledger.set_aside(fault.reason, [fault.line])
        frame = self._with_durations(piece.frame)
        frame = self._select_steps(frame)
        frame = self._without_copies(frame)
        if frame.is_empty():
            return
        self._group(parse_counters(frame, self._counters, self._ledger))

    def _with_durations(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Add the parsed duration; rows without one are set aside."""
        import polars as pl

        us = frame[DURATION].cast(pl.Float64, strict=False)
        plain = us.is_between(0, DURATION_LIMIT_US, closed="right").fill_null(False)
        if not plain.all():
            padded: dict[int, float | None] = {}
            faulty: dict[str, dict[int, str]] = {}
            for index in (~plain).arg_true():
                text = frame[DURATION][index]
                reason = duration_fault(text)
                if reason is None:
                    padded[index] = parse_number(text)
                else:
                    faulty.setdefault(reason, {})[frame[LINE][index]] = text or ""
            for reason, cells in faulty.items():
                self._ledger.set_aside(reason, cells, details=cells)
            us = us.set(~plain, None).scatter(list(padded), list(padded.values()))
            sound = us.is_not_null()
            if faulty:
                frame, us = frame.filter(sound), us.filter(sound)
        picoseconds = (us * 1e6).round().cast(pl.Int64)
        self._ledger.total_ps += int(picoseconds.sum())
        frame = frame.drop(DURATION).with_columns(us.alias("us"), picoseconds.alias("ps"))
        self._note_rounding(frame)
        return frame

    def _note_rounding(self, frame: pl.DataFrame) -> None:
        if START not in frame.columns:
            return
        self._timed += frame.height
        rounded = frame[START].filter(frame[START].str.contains("[eE]").fill_null(False))
        self._rounded += len(rounded)
        if len(self._rounded_times) < 2:
            self._rounded_times.update(rounded.unique().head(2))

    def _select_steps(self, frame: pl.DataFrame) -> pl.DataFrame:
        import polars as pl

        steps = self._collector._selection.steps
        if steps is None:
            return frame
        chosen = pl.col(STEP).str.strip_chars().fill_null("").is_in(list(steps))
        self._drop(frame.filter(~chosen), "not in the steps asked for", harmless=True)
        return frame.filter(chosen)

    def _without_copies(self, frame: pl.DataFrame) -> pl.DataFrame:
        if self._copies is None or self._rounded or frame.is_empty():
            return frame
        fresh, copies = self._copies.split(frame)
        for original, rows in copies:
            self._drop(rows, f"the same kernel was counted from {original}", harmless=True)
        return fresh

    def _drop(self, rows: pl.DataFrame, reason: str, *, harmless: bool = False) -> None:
        if rows.is_empty():
            return
        self._ledger.set_aside(reason, rows[LINE].to_list(), int(rows["ps"].sum()))
        if harmless:
            self._ledger.harmless.add(reason)

    def _group(self, frame: pl.DataFrame) -> None:
        import polars as pl

        counters = [name for name in self._counters if name in frame.columns]
        grouped = frame.group_by(GROUP_COLUMNS, maintain_order=True).agg(
            pl.col("us").alias("durations"),
            pl.col(LINE),
            pl.col("ps").sum(),
            pl.len().alias("count"),
            *(pl.col(name).sum().alias(f"sum {i}") for i, name in enumerate(counters)),
            *(pl.col(name).count().alias(f"n {i}") for i, name in enumerate(counters)),
        )
        values = grouped.select(GROUP_COLUMNS).rows()
        numbers = [self._collector.number(value) for value in values]
        grouped = grouped.with_columns(pl.Series("group", numbers, dtype=pl.Int64))
        self._settle_special(frame, grouped)
        keyed = grouped.filter(pl.col("group") >= 0)
        self._numbers.update(numbers)
        self._ledger.used.add(int(keyed["count"].sum()), int(keyed["ps"].sum()))
        self._collector.groups.add(keyed, counters)

    def _settle_special(self, frame: pl.DataFrame, grouped: pl.DataFrame) -> None:
        """Account for the groups that are no key, or an open one."""
        import polars as pl

        special = self._collector.special_numbers()
        rows = grouped.with_row_index("index").filter(pl.col("group").is_in(special))
        collectives: dict[int, str] = {}
        for index, number, count, time_ps, lines in rows.select(
            "index", "group", "count", "ps", LINE
        ).iter_rows():
            match self._collector.special(number):
                case Keyed():
                    group = self._collector.groups.items[number]
                    group.wait(self._ledger, lines, count, time_ps)
                    # Counted as used below; taken back until its sibling is known.
                    self._ledger.used.add(-count, -time_ps)
                case Aside(reason):
                    self._ledger.set_aside(reason, lines, time_ps)
                case Apart("collective", operator):
                    collectives[index] = operator
                case Apart(apart, operator):
                    self._ledger.set_apart(apart, operator, count, time_ps)
        if collectives:
            self._collectives.add(frame, grouped, collectives)

    def finish(self) -> None:
        """Settle what needs the whole file: mirrored collectives, copies, notes."""
        ledger = self._ledger
        for number in self._numbers:
            if number >= 0:
                self._collector.groups.items[number].sources[self._source] = None
        rounded = self._rounded > 0
        self._collectives.settle(ledger, mirrored=not rounded)
        if self._copies is not None and not rounded:
            self._copies.finish()
        if rounded:
            which = f"{self._rounded} of {self._timed} start times are rounded"
            if self._rounded == self._timed and len(self._rounded_times) == 1:
                which = "all start times are equal after rounding"
            ledger.notes.append(
                f"{which}, as a spreadsheet leaves them: order and step look-ups are off, and copies of these "
                "kernels in other files are not noticed"
            )
        if self._bad_bytes:
            where = ", ".join(map(str, self._bad_bytes[:5]))
            more = ", ..." if len(self._bad_bytes) > 5 else ""
            ledger.notes.append(
                f"not UTF-8 at byte {where}{more}: read as UTF-8, the cells with these bytes are not used"
            )
