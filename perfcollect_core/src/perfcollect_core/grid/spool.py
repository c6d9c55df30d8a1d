"""Sort more lines than memory should hold: sorted runs in a temporary file, merged as they are read."""

from __future__ import annotations

import marshal
import tempfile
from bisect import bisect_left
from collections.abc import Iterator
from operator import itemgetter
from typing import BinaryIO

from .theory import Shape

__all__ = ["Spool"]

#: Output and input shapes decide the order of a table, larger ones first; equal ones stand by their text.
Key = tuple[tuple[Shape, ...], tuple[Shape, ...]]
Item = tuple[Key, str, int]

_ORDER, _TEXT = itemgetter(0), itemgetter(1)
_RUN = 65_536
_BATCH = 2048
_LENGTH = 8


class Spool:
    """Collects lines with the shapes they are ordered by; ``ordered`` gives them back once, without repeats."""

    def __init__(self, run: int = _RUN) -> None:
        self._run = run
        self._items: list[Item] = []
        self._files: list[BinaryIO] = []

    def add(self, outputs: tuple[Shape, ...], inputs: tuple[Shape, ...], line: str, width: int) -> None:
        """Take a line of *width* columns."""
        self._items.append(((outputs, inputs), line, width))
        if len(self._items) >= self._run:
            self._spill()

    def _sorted(self) -> list[Item]:
        items, self._items = self._items, []
        items.sort(key=_ORDER, reverse=True)
        return items

    def _spill(self) -> None:
        items = self._sorted()
        stream: BinaryIO = tempfile.TemporaryFile()  # noqa: SIM115  # closed by close()
        for start in range(0, len(items), _BATCH):
            packed = marshal.dumps(items[start : start + _BATCH])
            stream.write(len(packed).to_bytes(_LENGTH, "big") + packed)
        self._files.append(stream)

    def ordered(self) -> Iterator[Item]:
        """Yield (order key, line, width) in the consumer's order, equal keys by text; a line that stands twice comes once."""
        runs = [_read(stream) for stream in self._files]
        last = self._sorted()
        group: list[Item] = []
        for part in _merged([*runs, iter([last])] if last else runs):
            for item in part:
                if group and item[0] != group[0][0]:
                    yield from group if len(group) == 1 else _distinct(group)
                    group = []
                group.append(item)
        yield from _distinct(group)

    def close(self) -> None:
        """Free the temporary files."""
        for stream in self._files:
            stream.close()
        self._files = []


def _distinct(group: list[Item]) -> Iterator[Item]:
    """Yield the items of one key by text, each once."""
    before = None
    for item in sorted(group, key=_TEXT):
        if item[1] != before:
            before = item[1]
            yield item


def _read(stream: BinaryIO) -> Iterator[list[Item]]:
    stream.seek(0)
    # Reading from a file, marshal asks for a few bytes at a time.
    while head := stream.read(_LENGTH):
        yield marshal.loads(stream.read(int.from_bytes(head, "big")))


def _merged(runs: list[Iterator[list[Item]]]) -> Iterator[list[Item]]:
    """Merge sorted runs batch by batch: what no run can still undercut is sorted at once, which is fast."""
    if len(runs) == 1:
        yield from runs[0]
        return
    held = [(next(run, []), run) for run in runs]
    held = [(batch, run) for batch, run in held if batch]
    while held:
        # Every run is in descending order: nothing above the largest of the last keys can still come.
        safe = max(batch[-1][0] for batch, _ in held)
        ready: list[Item] = []
        kept: list[tuple[list[Item], Iterator[list[Item]]]] = []
        for batch, run in held:
            cut = bisect_left(batch, True, key=lambda item: item[0] < safe)
            ready += batch[:cut]
            rest = batch[cut:] or next(run, [])
            if rest:
                kept.append((rest, run))
        held = kept
        ready.sort(key=_ORDER, reverse=True)
        yield ready
