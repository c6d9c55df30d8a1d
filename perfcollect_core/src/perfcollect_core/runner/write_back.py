"""Put measurements into the tables: which rows a sample fills, and when (decision 5; parent side)."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import attrs

from perfcollect_core.cases import Row, RowRef
from perfcollect_core.errors import PerfcollectError
from perfcollect_core.measurements import Measurement
from perfcollect_core.tables.columns import has_valid_duration
from perfcollect_core.tables.lock import database_lock
from perfcollect_core.tables.patch import PatchResult, patch_table
from perfcollect_core.tables.read import Table, read_table

from .journal import Journal, read_cells
from .plan import PlannedCase, PlannedTable

__all__ = ["LOCK_WAIT_SECONDS", "TableTally", "TableWriter", "equal_rows"]

#: How long a writer waits for another one: a patch takes well under a second.
LOCK_WAIT_SECONDS = 60.0
_FLUSH_EVERY_SECONDS = 20.0

Cells = Mapping[str, str]


@attrs.define
class TableTally:
    """What happened to one table so far."""

    updated: int = 0
    unchanged: int = 0
    added: int = 0
    deleted: int = 0
    gone: list[RowRef] = attrs.field(factory=list)
    deleted_rows: list[RowRef] = attrs.field(factory=list)

    def add(self, result: PatchResult, deleted: Iterable[RowRef] = ()) -> None:
        """Count what a patch did."""
        self.updated += result.updated
        self.unchanged += result.unchanged
        self.added += result.added
        self.deleted += result.deleted
        self.gone += result.missing
        self.deleted_rows += deleted


class TableWriter:
    """Collects measurements and patches the tables now and then, under the database's lock.

    Args:
        database: Directory of the tables.
        journal: Told what is in the tables.
        write: False where the database cannot be written: the journal keeps everything for ``db apply``.
        earlier: Journal of a run taken up again: what it measured and did not write is written too.
    """

    def __init__(
        self,
        database: Path,
        journal: Journal,
        *,
        write: bool = True,
        earlier: Path | None = None,
    ) -> None:
        self._database = database
        self._journal = journal
        self._write = write
        self._pending: dict[Path, dict[RowRef, Cells]] = {}
        self._measured: dict[Path, list[tuple[PlannedCase, Measurement]]] = {}
        self._observed: dict[Path, list[tuple[PlannedCase, Measurement]]] = {}
        self._flushed_at = time.monotonic()
        self.tallies: dict[Path, TableTally] = {}
        self._earlier = earlier
        #: Measured lines of the journal that were taken in: those in the tables once they are patched.
        self._lines = 0
        if earlier is not None:
            left = read_cells(earlier, unpatched_only=True)
            self._lines = left.lines
            for ref, cells in left.cells.items():
                self._pending.setdefault(database / ref.table, {})[ref] = cells

    def add(self, planned: PlannedCase, measurement: Measurement, cells: Cells) -> None:
        """Take a measurement in, in the order of the journal."""
        self._lines += 1
        path = planned.table.path
        self._pending.setdefault(path, {})[planned.row.ref] = cells
        kept = (planned, measurement)
        self._measured.setdefault(path, []).append(kept)
        if measurement.observed_kernel not in ("", planned.table.operator):
            # Another kernel of the family ran: rows of equal work in its own table are filled too.
            observed = self._database / f"{measurement.observed_kernel}.csv"
            self._observed.setdefault(observed, []).append(kept)

    def flush_now_and_then(self) -> None:
        """Patch the tables where the last time is long ago; a failure waits for the end of the run."""
        if not self._write or not self._pending or time.monotonic() - self._flushed_at < _FLUSH_EVERY_SECONDS:
            return
        self._flushed_at = time.monotonic()
        try:
            self._patch(wait_seconds=0.5)
        except PerfcollectError:
            # The journal has everything, and the end of the run tries again and reports.
            return

    def finish(self, *, prune: Mapping[Path, Sequence[RowRef]] | None = None) -> None:
        """Patch what is left, fill rows of equal key, delete what ``--prune-empty-duration-rows`` asks for.

        Raises:
            TableError: A table cannot be read or written.
            DatabaseLockedError: Another process holds the database all the time.
        """
        prune = prune or {}
        if not self._write or not (self._pending or self._measured or prune):
            return
        self._patch(wait_seconds=LOCK_WAIT_SECONDS, prune=prune, last=True)

    def _patch(
        self, *, wait_seconds: float, prune: Mapping[Path, Sequence[RowRef]] | None = None, last: bool = False
    ) -> None:
        if not (self._pending or last):
            return
        # A table must never say more than the journal.
        self._journal.sync()
        prune = prune or {}
        with database_lock(self._database, wait_seconds=wait_seconds):
            for path in dict.fromkeys((*self._pending, *(self._measured if last else ()), *prune)):
                changes = dict(self._pending.get(path, {}))
                delete: list[RowRef] = []
                if last:
                    table = read_table(path, required=())
                    changes |= equal_rows(table, self._measured.get(path, ()), self._cells_before(path))
                    empty = {row.ref for row in table.rows if not has_valid_duration(row.cells)}
                    delete = [ref for ref in prune.get(path, ()) if ref in empty and ref not in changes]
                if changes or delete:
                    self._tally(path).add(patch_table(path, changes, delete=delete, required=()), delete)
                self._pending.pop(path, None)
            for path, measured in self._observed.items() if last else ():
                if path.is_file() and (changes := equal_rows(read_table(path, required=()), measured)):
                    self._tally(path).add(patch_table(path, changes, required=()))
        # Not "every line before": results that are not yet delivered stand before this line too.
        self._journal.append({"kind": "patched", "measured": self._lines}, durable=False)

    def _cells_before(self, path: Path) -> Mapping[RowRef, Cells]:
        """Return what an earlier part of the run measured of a table."""
        if self._earlier is None:
            return {}
        found = read_cells(self._earlier, unpatched_only=False).cells
        return {ref: cells for ref, cells in found.items() if ref.table == path.name}

    def _tally(self, path: Path) -> TableTally:
        return self.tallies.setdefault(path, TableTally())


def equal_rows(
    table: Table,
    measured: Sequence[tuple[PlannedCase, Measurement]],
    before: Mapping[RowRef, Cells] | None = None,
) -> dict[RowRef, Cells]:
    """Return the cells of further rows that a measurement fills: equal canonical key, no valid duration yet.

    *before* are the cells of rows of this table that an earlier part of the run measured.
    """
    before = before or {}
    if not measured:
        return {}
    asked = {planned.row.ref for planned, _ in measured} | set(before)
    empty = [row for row in table.rows if row.ref not in asked and not has_valid_duration(row.cells)]
    if not empty:
        return {}
    owner: PlannedTable = measured[0][0].table

    def key(row: Row) -> tuple[str, ...]:
        return owner.host.canonical_key(owner.spec, row)

    earlier = {key(row): before[row.ref] for row in table.rows if row.ref in before}
    by_key = {key(planned.row): (planned, m) for planned, m in measured}
    changes: dict[RowRef, Cells] = {}
    for row in empty:
        wanted = key(row)
        if wanted in by_key:
            planned, measurement = by_key[wanted]
            changes[row.ref] = planned.table.host.write_back(planned.case, measurement, [row])[0]
        elif wanted in earlier:
            changes[row.ref] = earlier[wanted]
    return changes
