"""Sort more lines than memory should hold: sorted runs in a temporary file, merged as they are read."""

from __future__ import annotations

import heapq
import marshal
import tempfile
from collections.abc import Iterator
from itertools import groupby
from operator import itemgetter
from typing import BinaryIO

from .theory import Shape

__all__ = ["Spool"]

#: Output and input shapes decide the order of a table, larger ones first; equal ones stand by their text.
Key = tuple[tuple[Shape, ...], tuple[Shape, ...]]
Item = tuple[Key, str, int]

_ORDER = itemgetter(0)
_RUN = 65_536
_BATCH = 512


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
            marshal.dump(items[start : start + _BATCH], stream)
        self._files.append(stream)

    def ordered(self) -> Iterator[Item]:
        """Yield (order key, line, width) in the consumer's order, equal keys by text; a line that stands twice comes once."""
        runs: list[Iterator[Item]] = [_read(stream) for stream in self._files]
        runs.append(iter(self._sorted()))
        merged = runs[0] if len(runs) == 1 else heapq.merge(*runs, key=_ORDER, reverse=True)
        for key, group in groupby(merged, key=_ORDER):
            found = [(line, width) for _, line, width in group]
            if len(found) > 1:
                found = sorted(set(found))
            for line, width in found:
                yield key, line, width

    def close(self) -> None:
        """Free the temporary files."""
        for stream in self._files:
            stream.close()
        self._files = []


def _read(stream: BinaryIO) -> Iterator[Item]:
    stream.seek(0)
    while True:
        try:
            yield from marshal.load(stream)
        except EOFError:
            return
