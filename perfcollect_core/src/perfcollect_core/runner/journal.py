"""The journal of a run: append-only JSON lines, on disk before anything else believes them.

Lines (``kind``): ``run`` (what was asked), ``worker`` (environment of a worker), ``launched`` (deferred durations
only), ``pass`` (one of several visits), ``measured``, ``failed``, ``attempt`` (a failure that was not conclusive),
``patched`` (the first so many measured lines are in the tables), ``end``. Rows are named by table, raw key and occurrence.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import attrs

from perfcollect_core.cases import RowRef
from perfcollect_core.errors import DataError, PerfcollectError

from .protocol import Message, decode_row

__all__ = [
    "JOURNAL_NAME",
    "Journal",
    "JournalError",
    "JournalState",
    "MeasuredCells",
    "read_cells",
    "read_journal",
    "read_lines",
]

JOURNAL_NAME = "journal.jsonl"
_ENCODER = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False)


class JournalError(PerfcollectError):
    """The journal cannot be written: the run stops, and what it already holds is safe."""


@attrs.define
class JournalState:
    """What an earlier part of a run left in its journal.

    ``measured`` and ``failed`` hold the rows by how they ended last; ``passes`` the partial visits of cases not
    finished; ``unpatched`` counts measured lines that are not known to be in the tables.
    """

    run: Message = attrs.field(factory=dict)
    measured: set[RowRef] = attrs.field(factory=set)
    failed: dict[RowRef, Message] = attrs.field(factory=dict)
    passes: dict[RowRef, list[Message]] = attrs.field(factory=dict)
    unpatched: int = 0
    #: Lines in the middle of the file that are no JSON objects: copied wrongly, or edited.
    broken: int = 0
    end: Message | None = None


class Journal:
    """An open journal; one writer.

    A line is in the file when ``append`` returns, and a thread has it on disk a moment later: one flush covers all
    lines written during the one before, so that a slow disk does not idle a device. ``sync`` waits for that.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            self._size = _cut_torn_line(self._descriptor)
            os.lseek(self._descriptor, self._size, os.SEEK_SET)
            _sync_directory(path.parent)
        except OSError as error:
            raise _failed(path, error) from error
        self._flushed = self._size
        self._wanted = self._size
        self._error: OSError | None = None
        self._closing = False
        self._changed = threading.Condition()
        self._flusher = threading.Thread(target=self._flush_always, name="journal", daemon=True)
        self._flusher.start()

    def append(self, line: Message, *, durable: bool = True) -> None:
        """Write *line*; with *durable* it is flushed to disk right away.

        Raises:
            JournalError: The disk is full or gone; the file is cut back to its last whole line.
        """
        text = _ENCODER.encode(line).encode("utf-8", "surrogateescape")
        self._check()
        try:
            _write_all(self._descriptor, text + b"\n")
        except OSError as error:
            self._cut_back()
            raise _failed(self.path, error) from error
        self._size += len(text) + 1
        if durable:
            with self._changed:
                self._wanted = self._size
                self._changed.notify_all()

    @property
    def size(self) -> int:
        """Bytes written so far."""
        return self._size

    @property
    def flushed(self) -> int:
        """Bytes that are on disk."""
        return self._flushed

    def sync(self) -> None:
        """Wait until every line is on disk.

        Raises:
            JournalError: The disk did not take them.
        """
        with self._changed:
            self._wanted = self._size
            self._changed.notify_all()
            while self._flushed < self._wanted and self._error is None:
                self._changed.wait()
        self._check()

    def close(self) -> None:
        """Flush what there is and close the file; errors were reported by ``sync``."""
        if self._descriptor < 0:
            return
        with self._changed:
            self._wanted = self._size
            self._closing = True
            self._changed.notify_all()
        self._flusher.join()
        os.close(self._descriptor)
        self._descriptor = -1

    def _flush_always(self) -> None:
        while True:
            with self._changed:
                while self._wanted <= self._flushed and not self._closing:
                    self._changed.wait()
                if self._wanted <= self._flushed or self._error is not None:
                    return
                target = self._size
            try:
                _flush(self._descriptor)
            except OSError as error:
                with self._changed:
                    self._error = error
                    self._changed.notify_all()
                return
            with self._changed:
                self._flushed = target
                self._changed.notify_all()

    def _check(self) -> None:
        if self._error is not None:
            raise _failed(self.path, self._error) from self._error

    def _cut_back(self) -> None:
        try:
            os.ftruncate(self._descriptor, self._size)
            os.lseek(self._descriptor, self._size, os.SEEK_SET)
        except OSError:
            # A torn last line is cut when the run is resumed.
            pass


def _flush(descriptor: int) -> None:
    # macOS has no fdatasync.
    getattr(os, "fdatasync", os.fsync)(descriptor)


def _failed(path: Path, error: OSError) -> JournalError:
    return JournalError(
        f"journal {path} cannot be written: {(error.strerror or str(error)).lower()}",
        hint="make room or name another place with --run-dir; what the journal already holds is safe "
        f"(perfcollect run --resume {path.parent.name}, or perfcollect db apply {path.parent})",
    )


def _write_all(descriptor: int, text: bytes) -> None:
    view = memoryview(text)
    while view:
        view = view[os.write(descriptor, view) :]


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _cut_torn_line(descriptor: int) -> int:
    """Cut what follows the last line end (a write that a kill or a full disk interrupted); return the size."""
    size = os.lseek(descriptor, 0, os.SEEK_END)
    end = size
    while end > 0:
        start = max(0, end - (1 << 16))
        block = os.pread(descriptor, end - start, start)
        found = block.rfind(b"\n")
        if found >= 0:
            end = start + found + 1
            break
        end = start
    if end != size:
        os.ftruncate(descriptor, end)
    return end


def read_lines(path: Path) -> Iterator[Message | None]:
    """Yield the lines of a journal, ``None`` for one that is broken; a torn last line is not a line.

    Raises:
        DataError: There is no journal.
    """
    try:
        file = path.open("rb")
    except OSError as error:
        raise DataError(
            f"journal {path} cannot be read: {(error.strerror or str(error)).lower()}",
            hint="name a run directory, or the id of a run below the database's reports/runs",
        ) from error
    with file:
        for raw in file:
            if not raw.endswith(b"\n"):
                return
            try:
                # Decoded here: json would look for other encodings first, line after line.
                line = json.loads(raw.decode("utf-8", "surrogateescape"))
            except ValueError:
                line = None
            yield line if isinstance(line, dict) and "kind" in line else None


@attrs.frozen
class MeasuredCells:
    """The cells of the measured lines of a journal, the latest of each row; ``lines`` counts them all."""

    cells: dict[RowRef, dict[str, str]]
    lines: int


def read_cells(path: Path, *, unpatched_only: bool) -> MeasuredCells:
    """Read what was measured; with *unpatched_only* the lines not known to be in the tables."""
    measured: list[tuple[RowRef, dict[str, str]]] = []
    patched = 0
    for line in read_lines(path):
        if line is None:
            continue
        if line["kind"] == "measured":
            measured.append((decode_row(line["row"]), line.get("cells", {})))
        elif line["kind"] == "patched":
            patched = max(patched, line["measured"])
    chosen = measured[patched if unpatched_only else 0 :]
    return MeasuredCells({ref: cells for ref, cells in chosen if cells}, len(measured))


def read_journal(path: Path) -> JournalState:
    """Read what a run did so far, in one pass and without keeping samples."""
    state = JournalState()
    measured = patched = 0
    for line in read_lines(path):
        if line is None:
            state.broken += 1
            continue
        match line["kind"]:
            case "run":
                state.run = line
            case "measured":
                row = decode_row(line["row"])
                state.measured.add(row)
                state.failed.pop(row, None)
                state.passes.pop(row, None)
                measured += 1
            case "failed":
                row = decode_row(line["row"])
                state.measured.discard(row)
                state.failed[row] = line
            case "pass":
                state.passes.setdefault(decode_row(line["row"]), []).append(line)
            case "patched":
                patched = max(patched, line["measured"])
            case "end":
                state.end = line
    state.unpatched = measured - patched
    return state
