"""Notice kernels that an earlier file held already: a stale copy, or op_summary beside kernel_details."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from .layouts import DEVICE, START, STREAM, TASK, TYPE
from .ledger import FileLedger

if TYPE_CHECKING:
    import polars as pl

__all__ = ["SeenKernels"]


class SeenKernels:
    """Remembers the kernels of every file read so far, eight bytes each.

    Two records are the same kernel where device, stream, task, type, start (to the nanosecond) and duration agree.
    """

    def __init__(self) -> None:
        self._files: list[tuple[Path, pl.Series]] = []

    def begin(self, ledger: FileLedger) -> _FileKernels:
        """Start on another file."""
        return _FileKernels(self._files, ledger)


class _FileKernels:
    """The kernels of the file in hand."""

    def __init__(self, files: list[tuple[Path, pl.Series]], ledger: FileLedger) -> None:
        self._files = files
        self._earlier = list(files)
        self._ledger = ledger
        self._marks: list[pl.Series] = []
        self._copied: dict[Path, int] = {}

    def split(self, frame: pl.DataFrame) -> tuple[pl.DataFrame, list[tuple[Path, pl.DataFrame]]]:
        """Split *frame* into kernels not seen before, and those of each earlier file."""
        import polars as pl

        if START not in frame.columns:
            return frame, []
        columns = [c for c in (DEVICE, STREAM, TASK, TYPE, START) if c in frame.columns]
        trimmed = frame.select(pl.col(columns).fill_null("").str.strip_chars(), "ps")
        mark = trimmed.select(pl.struct(pl.all()).hash()).to_series()
        # A start time of zero or none says nothing about when the kernel ran.
        timed = trimmed[START].str.contains("[1-9]")
        fresh = pl.Series([True]).new_from_index(0, frame.height)
        copies = []
        for path, known in self._earlier:
            if known.is_empty():
                continue
            place = known.search_sorted(mark).clip(0, len(known) - 1)
            hit = (known.gather(place) == mark) & timed & fresh
            if hit.any():
                self._copied[path] = self._copied.get(path, 0) + int(hit.sum())
                copies.append((path, frame.filter(hit)))
                fresh = fresh & ~hit
        self._marks.append(mark.filter(timed & fresh))
        return (frame.filter(fresh) if copies else frame), copies

    def finish(self) -> None:
        """Remember this file's kernels, and say whose copy it is."""
        import polars as pl

        if self._marks:
            self._files.append((self._ledger.path, pl.concat(self._marks).sort()))
        for path, count in self._copied.items():
            whole = (
                "a copy" if count == self._ledger.rows else f"{count} of {self._ledger.rows} rows are copies"
            )
            self._ledger.notes.append(f"{whole} of what {path} holds: counted once")
