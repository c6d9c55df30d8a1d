"""Write the journal of a run back into its database (``perfcollect db apply RUN``); needs no plugin and no device."""

from __future__ import annotations

from pathlib import Path

import attrs

from perfcollect_core.cases import RowRef
from perfcollect_core.tables.identity import adopt_identity, check_identity
from perfcollect_core.tables.lock import database_lock
from perfcollect_core.tables.patch import patch_table

from .journal import JOURNAL_NAME, Journal, read_cells, read_journal
from .run_dir import database_of
from .write_back import LOCK_WAIT_SECONDS

__all__ = ["AppliedRun", "apply_run"]


@attrs.frozen
class AppliedRun:
    """What writing a journal back did; ``gone`` rows had left their table, their samples stay in the journal."""

    run: str
    database: str
    tables: dict[str, int]
    updated: int
    unchanged: int
    gone: int
    broken_lines: int

    def __str__(self) -> str:
        parts = [f"{self.updated} rows updated", f"{self.unchanged} unchanged"]
        if self.gone:
            parts.append(f"{self.gone} rows are no longer in their table, their samples stay in the journal")
        if self.broken_lines:
            parts.append(f"{self.broken_lines} lines of the journal are broken and were passed over")
        return f"{self.database}: {', '.join(parts)}"


def apply_run(directory: Path) -> AppliedRun:
    """Write every measured row of a run into its table; doing it twice changes nothing.

    Raises:
        DataError: There is no journal, or the database is not there.
        DatabaseMismatchError: The database holds another family's durations by now.
        DatabaseLockedError: Another process holds it.
    """
    journal_path = directory / JOURNAL_NAME
    state = read_journal(journal_path)
    database = database_of(state.run, directory)
    by_table: dict[str, dict[RowRef, dict[str, str]]] = {}
    measured = read_cells(journal_path, unpatched_only=False)
    for ref, cells in measured.cells.items():
        by_table.setdefault(ref.table, {})[ref] = cells
    family = str(state.run["family"])
    device = str(state.run["devices"][0][1]) if state.run.get("devices") else ""
    emulated = bool(state.run.get("emulated", False))
    check_identity(database, family=family, device=device, emulated=emulated)
    tables: dict[str, int] = {}
    updated = unchanged = gone = 0
    if by_table:
        with database_lock(database, wait_seconds=LOCK_WAIT_SECONDS):
            versions = state.run.get("versions", {})
            adopt_identity(database, family=family, device=device, versions=versions, emulated=emulated)
            for name, changes in by_table.items():
                result = patch_table(database / name, changes, required=())
                tables[name] = result.updated
                updated += result.updated
                unchanged += result.unchanged
                gone += len(result.missing)
        _note_patched(journal_path, measured.lines)
    return AppliedRun(directory.name, str(database), tables, updated, unchanged, gone, state.broken)


def _note_patched(path: Path, lines: int) -> None:
    journal = Journal(path)
    try:
        journal.append({"kind": "patched", "measured": lines})
        journal.sync()
    finally:
        journal.close()
