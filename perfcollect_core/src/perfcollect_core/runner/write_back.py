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

from .journal import Journal
from .plan import PlannedCase, PlannedTable

__all__ = ["TableTally", "TableWriter", "equal_rows"]

#: How long a writer waits for another one: a patch takes well under a second.
LOCK_WAIT_SECONDS = 60.0
_FLUSH_EVERY_SECONDS = 20.0


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

    ``write`` is false where the database cannot be written: then the journal keeps everything for ``db apply``.
    """

    def __init__(self, database: Path, journal: Journal | None, *, write: bool = True) -> None:
        self._database = database
        self._journal = journal
        self._write = write
        self._pending: dict[Path, list[tuple[PlannedCase, Measurement]]] = {}
        self._flushed_at = time.monotonic()
        self._measured: dict[Path, dict[RowRef, tuple[PlannedCase, Measurement]]] = {}
        self.tallies: dict[Path, TableTally] = {}

    def add(self, planned: PlannedCase, measurement: Measurement) -> None:
        """Take a measurement in."""
        self._pending.setdefault(planned.table.path, []).append((planned, measurement))
        light = attrs.evolve(
            measurement, samples=attrs.evolve(measurement.samples, durations_us=(), warmup_us=())
        )
        self._measured.setdefault(planned.table.path, {})[planned.row.ref] = (planned, light)

    def flush_now_and_then(self) -> None:
        """Patch the tables where the last time is long ago; a lock that is held is no error here."""
        if not self._pending or time.monotonic() - self._flushed_at < _FLUSH_EVERY_SECONDS:
            return
        self._flushed_at = time.monotonic()
        if self._write:
            self._patch_asked(wait_seconds=0.5, patient=True)

    def finish(self, *, prune: Mapping[Path, Sequence[RowRef]] | None = None) -> None:
        """Patch what is left, fill rows of equal key, delete what ``--prune-empty-duration-rows`` asks for.

        Raises:
            TableError: A table cannot be read or written.
            DatabaseLockedError: Another process holds the database all the time.
        """
        if not self._write:
            return
        self._patch_asked(wait_seconds=LOCK_WAIT_SECONDS, patient=False)
        prune = prune or {}
        with database_lock(self._database, wait_seconds=LOCK_WAIT_SECONDS):
            for path in dict.fromkeys((*self._measured, *prune)):
                table = read_table(path)
                changes = equal_rows(table, list(self._measured.get(path, {}).values()))
                empty = {row.ref for row in table.rows if not has_valid_duration(row.cells)}
                delete = [ref for ref in prune.get(path, ()) if ref in empty and ref not in changes]
                if changes or delete:
                    self._tally(path).add(patch_table(path, changes, delete=delete), delete)

    def _patch_asked(self, *, wait_seconds: float, patient: bool) -> None:
        if not self._pending:
            return
        try:
            with database_lock(self._database, wait_seconds=wait_seconds):
                for path in list(self._pending):
                    changes: dict[RowRef, Mapping[str, str]] = {}
                    for planned, measurement in self._pending[path]:
                        changes[planned.row.ref] = cells_for(planned, measurement, [planned.row])[0]
                    self._tally(path).add(patch_table(path, changes))
                    del self._pending[path]
        except PerfcollectError:
            if not patient:
                raise
            # The journal has everything: the next time, or the end of the run, tries again and reports.
            return
        if self._journal is not None:
            self._journal.append({"kind": "patched"}, durable=False)

    def _tally(self, path: Path) -> TableTally:
        return self.tallies.setdefault(path, TableTally())


def cells_for(
    planned: PlannedCase, measurement: Measurement, rows: Sequence[Row]
) -> Sequence[Mapping[str, str]]:
    """Return the cells to set in *rows*."""
    return planned.table.host.write_back(planned.case, measurement, rows)


def equal_rows(
    table: Table, measured: Sequence[tuple[PlannedCase, Measurement]]
) -> dict[RowRef, Mapping[str, str]]:
    """Return the cells of further rows that a measurement fills: equal canonical key, no valid duration yet."""
    if not measured:
        return {}
    asked = {planned.row.ref for planned, _ in measured}
    empty = [row for row in table.rows if row.ref not in asked and not has_valid_duration(row.cells)]
    if not empty:
        return {}
    owner: PlannedTable = measured[0][0].table
    by_key = {owner.host.canonical_key(owner.spec, planned.row): (planned, m) for planned, m in measured}
    changes: dict[RowRef, Mapping[str, str]] = {}
    for row in empty:
        found = by_key.get(owner.host.canonical_key(owner.spec, row))
        if found is not None:
            changes[row.ref] = cells_for(found[0], found[1], [row])[0]
    return changes
