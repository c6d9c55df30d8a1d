"""What became of every row of a profiler file, with kernel time that adds up exactly.

Time is summed in whole picoseconds, so that used + set aside + apart is the total and not nearly the total.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping
from pathlib import Path

import attrs

__all__ = ["AsideRows", "FileLedger", "Tally", "microseconds"]

_MAX_DETAILS = 1000


def microseconds(picoseconds: int) -> float:
    """Return *picoseconds* in microseconds."""
    return picoseconds / 1e6


@attrs.define
class Tally:
    """A count of rows and their kernel time in picoseconds."""

    count: int = 0
    time_ps: int = 0

    def add(self, count: int, time_ps: int) -> None:
        self.count += count
        self.time_ps += time_ps

    @property
    def time_us(self) -> float:
        return microseconds(self.time_ps)


@attrs.define
class AsideRows:
    """The rows set aside for one reason: their physical lines, and the text of the cell where that says more."""

    tally: Tally = attrs.field(factory=Tally)
    lines: array[int] = attrs.field(factory=lambda: array("q"))
    details: dict[int, str] = attrs.field(factory=dict)

    def add(self, lines: Iterable[int], time_ps: int, details: Mapping[int, str] | None = None) -> None:
        before = len(self.lines)
        self.lines.extend(lines)
        self.tally.add(len(self.lines) - before, time_ps)
        for line, text in (details or {}).items():
            if len(self.details) < _MAX_DETAILS:
                self.details[line] = text


@attrs.define(eq=False)
class FileLedger:
    """The account of one file.

    Attributes:
        path: The file.
        layout: ``kernel_details`` or ``op_summary``.
        rank: Rank it belongs to, where known.
        capture: Name of the capture's folder, empty for a lone file.
        rows: Records and lines that are none, all of them.
        total_ps: Kernel time of every row that has one.
        used: Rows that went into a table.
        aside: Rows set aside, by reason; those in ``DEFECTS`` make ``--strict`` fail.
        apart: Collectives and kernels without shapes, by kind and type.
        implausible: Counter cells left out, as (line, column, text); the count goes on beyond those kept.
        notes: What else is worth knowing about the file.
    """

    path: Path
    layout: str
    rank: int | None = None
    capture: str = ""
    rows: int = 0
    total_ps: int = 0
    used: Tally = attrs.field(factory=Tally)
    aside: dict[str, AsideRows] = attrs.field(factory=dict)
    apart: dict[tuple[str, str], Tally] = attrs.field(factory=dict)
    implausible: list[tuple[int, str, str]] = attrs.field(factory=list)
    implausible_count: int = 0
    notes: list[str] = attrs.field(factory=list)
    #: Reasons that are the user's own choice or harmless, not defects of the file.
    harmless: set[str] = attrs.field(factory=set)

    def set_aside(
        self, reason: str, lines: Iterable[int], time_ps: int = 0, details: Mapping[int, str] | None = None
    ) -> None:
        self.aside.setdefault(reason, AsideRows()).add(lines, time_ps, details)

    def set_apart(self, kind: str, operator: str, count: int, time_ps: int) -> None:
        self.apart.setdefault((kind, operator), Tally()).add(count, time_ps)

    @property
    def aside_tally(self) -> Tally:
        return _sum(rows.tally for rows in self.aside.values())

    @property
    def apart_tally(self) -> Tally:
        return _sum(self.apart.values())

    @property
    def adds_up(self) -> bool:
        """Whether every row and every picosecond is accounted for."""
        parts = (self.used, self.aside_tally, self.apart_tally)
        return sum(p.count for p in parts) == self.rows and sum(p.time_ps for p in parts) == self.total_ps

    def defects(self) -> dict[str, AsideRows]:
        """Return the rows set aside for a fault of the file."""
        return {reason: rows for reason, rows in self.aside.items() if reason not in self.harmless}


def _sum(tallies: Iterable[Tally]) -> Tally:
    total = Tally()
    for tally in tallies:
        total.add(tally.count, tally.time_ps)
    return total
