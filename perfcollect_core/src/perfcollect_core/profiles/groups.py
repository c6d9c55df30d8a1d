"""Samples of each key over all files: durations kept whole, counters as sums, and the statistics made of them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import attrs

from .kinds import Keyed
from .ledger import FileLedger, Tally

if TYPE_CHECKING:
    import polars as pl

__all__ = ["Group", "Groups", "KernelRow"]

#: Partial sums of counters are merged after this many pieces, so that they stay small.
_COMPACT_EVERY = 8


@attrs.define(eq=False)
class Group:
    """One key: the cells of its row, and where its samples came from.

    The cells are those of the call with the most slots (profilers trim trailing blank ones); state and core are the
    first that are not blank.
    """

    operator: str
    key: tuple[str, ...]
    cells: dict[str, str]
    slots: int
    is_open: bool
    sources: dict[str, None] = attrs.field(factory=dict)
    #: Rows of an open group by file: they are used or set aside only when every sibling is known.
    waiting: dict[Path, tuple[FileLedger, list[int], Tally]] = attrs.field(factory=dict)

    def wait(self, ledger: FileLedger, lines: Sequence[int], count: int, time_ps: int) -> None:
        """Keep rows of an open group until its siblings are known."""
        _, known, tally = self.waiting.setdefault(ledger.path, (ledger, [], Tally()))
        known.extend(lines)
        tally.add(count, time_ps)

    def see(self, kind: Keyed) -> None:
        """Take over what *kind*, another spelling of the key, adds to the cells."""
        for column in ("OP State", "Accelerator Core"):
            self.cells[column] = self.cells[column] or kind.cells[column]
        if kind.slots > self.slots:
            kept = {column: self.cells[column] for column in ("OP State", "Accelerator Core")}
            self.cells = {**kind.cells, **kept}
            self.slots = kind.slots


@attrs.frozen
class KernelRow:
    """What a profile says about one key: microseconds, counters by name (absent where no call had one)."""

    operator: str
    cells: Mapping[str, str]
    count: int
    mean_us: float
    median_us: float
    std_us: float
    min_us: float
    max_us: float
    counters: Mapping[str, float]
    sources: tuple[str, ...]


class Groups:
    """Everything keyed, over all files of one ``parse``."""

    def __init__(self) -> None:
        self.items: list[Group] = []
        self._ids: dict[tuple[tuple[str, ...], bool], int] = {}
        self._durations: list[pl.DataFrame] = []
        self._counters: list[pl.DataFrame] = []
        self._counter_names: list[str] = []

    def identify(self, kind: Keyed) -> int:
        """Return the number of the group *kind* belongs to."""
        identity = (kind.key, kind.is_open)
        number = self._ids.get(identity)
        if number is None:
            number = self._ids[identity] = len(self.items)
            self.items.append(Group(kind.key[0], kind.key, dict(kind.cells), kind.slots, kind.is_open))
        else:
            self.items[number].see(kind)
        return number

    def add(self, frame: pl.DataFrame, counters: Sequence[str]) -> None:
        """Add samples: *frame* has ``group``, a list column ``durations`` and ``sum i``, ``n i`` for each counter."""
        import polars as pl

        if frame.is_empty():
            return
        self._durations.append(frame.select("group", "durations").explode("durations"))
        for name in counters:
            if name not in self._counter_names:
                self._counter_names.append(name)
        renamed: dict[str, str] = {}
        for index, name in enumerate(counters):
            number = self._counter_names.index(name)
            renamed |= {f"sum {index}": f"s{number}", f"n {index}": f"n{number}"}
        self._counters.append(frame.select("group", *renamed).rename(renamed))
        if len(self._counters) >= _COMPACT_EVERY:
            self._compact()
        if len(self._durations) >= 64:
            self._durations = [pl.concat(self._durations, rechunk=True)]

    def _compact(self) -> None:
        import polars as pl

        joined = pl.concat(self._counters, how="diagonal")
        self._counters = [joined.group_by("group", maintain_order=True).agg(pl.exclude("group").sum())]

    def resolve_open(self) -> None:
        """Give the calls whose dtypes or formats are blank to their only known sibling, or set them aside."""
        siblings: dict[tuple[str, str, str], list[int]] = {}
        for number, group in enumerate(self.items):
            if not group.is_open:
                siblings.setdefault(_shapes(group.key), []).append(number)
        moved: dict[int, int] = {}
        for number, group in enumerate(self.items):
            if not group.is_open:
                continue
            fitting = [n for n in siblings.get(_shapes(group.key), ()) if _fits(group.key, self.items[n].key)]
            moved[number] = fitting[0] if len(fitting) == 1 else -1
            for ledger, lines, tally in group.waiting.values():
                if len(fitting) == 1:
                    ledger.used.add(tally.count, tally.time_ps)
                    self.items[fitting[0]].sources.update(group.sources)
                else:
                    known = "several rows that differ in them" if fitting else "no row that has them"
                    reason = f"dtypes or formats are blank, and {known} would fit"
                    ledger.set_aside(reason, lines, tally.time_ps)
        if moved:
            self._move(moved)

    def _move(self, moved: Mapping[int, int]) -> None:
        import polars as pl

        def renumber(frame: pl.DataFrame) -> pl.DataFrame:
            target = pl.col("group").replace(moved).alias("group")
            return frame.with_columns(target).filter(pl.col("group") >= 0)

        self._durations = [renumber(frame) for frame in self._durations]
        self._counters = [renumber(frame) for frame in self._counters]

    def rows(self) -> Iterator[KernelRow]:
        """Yield a row for each key that has samples, by order of first appearance. Call ``resolve_open`` before."""
        import polars as pl

        if not self._durations:
            return
        self._compact()
        counters = {row[0]: row for row in self._counters[0].iter_rows()}
        columns = self._counters[0].columns
        places = {
            name: (columns.index(f"s{i}"), columns.index(f"n{i}"))
            for i, name in enumerate(self._counter_names)
        }
        samples = pl.concat(self._durations).group_by("group").agg("durations").sort("group")
        self._durations = []
        for number, durations in samples.iter_rows():
            group = self.items[number]
            sums = counters[number]
            yield _summarise(
                group,
                durations,
                {name: sums[s] / sums[n] for name, (s, n) in places.items() if sums[n]},
            )


def _summarise(group: Group, durations: list[float], counters: dict[str, float]) -> KernelRow:
    durations.sort()
    n = len(durations)
    # Exactly rounded sums: the order of files and the number of threads change no digit.
    mean = math.fsum(durations) / n
    middle = n // 2
    median = durations[middle] if n % 2 else (durations[middle - 1] + durations[middle]) / 2
    spread = math.sqrt(math.fsum([(d - mean) ** 2 for d in durations]) / n)
    return KernelRow(
        operator=group.operator,
        cells=group.cells,
        count=n,
        mean_us=mean,
        median_us=median,
        std_us=spread,
        min_us=durations[0],
        max_us=durations[-1],
        counters=counters,
        sources=tuple(group.sources),
    )


def _shapes(key: tuple[str, ...]) -> tuple[str, str, str]:
    return key[0], key[1], key[4]


def _fits(open_key: tuple[str, ...], key: tuple[str, ...]) -> bool:
    """Tell whether every word that *open_key* has is the one *key* has there."""
    return all(
        not word or word == known
        for index in (2, 3, 5)
        for word, known in zip(open_key[index].split(";"), key[index].split(";"), strict=True)
    )
