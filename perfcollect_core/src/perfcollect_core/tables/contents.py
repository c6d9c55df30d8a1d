"""What a database holds, in numbers (``perfcollect db info``)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import attrs

from perfcollect_core.errors import DataError, TableError

from .columns import AVERAGE, PROFILING_AVERAGE, duration_us, has_valid_duration
from .identity import Identity, read_identity
from .read import is_collective_table, read_table, table_paths

__all__ = ["DatabaseContents", "TableContents", "database_contents"]

MAPPING_FILE = "op_mapping.yaml"


@attrs.frozen
class TableContents:
    """One table: ``measured`` rows have any valid duration, ``average`` and ``profiling`` count those columns.

    ``problem`` says why a table that cannot be read has no counts.
    """

    name: str
    rows: int = 0
    measured: int = 0
    average: int = 0
    profiling: int = 0
    problem: str = ""


@attrs.frozen
class DatabaseContents:
    """A database: what it holds, its tables, and what a user should know."""

    path: Path
    identity: Identity | None
    tables: tuple[TableContents, ...]
    notes: tuple[str, ...]

    def as_dict(self) -> Mapping[str, object]:
        """Return what ``--format json`` prints."""
        identity = attrs.asdict(self.identity) if self.identity else None
        return {
            "path": str(self.path),
            "identity": identity,
            "tables": [attrs.asdict(table) for table in self.tables],
            "notes": list(self.notes),
        }


def database_contents(database: Path) -> DatabaseContents:
    """Count what is in *database*; raises ``DataError`` where the directory cannot be read."""
    tables = tuple(_count(path) for path in table_paths(database, collectives=True))
    notes = []
    try:
        identity = read_identity(database)
    except DataError as error:
        identity = None
        notes.append(str(error))
    notes.extend(_mapping_notes(database, tables))
    return DatabaseContents(database, identity, tables, tuple(notes))


def _count(path: Path) -> TableContents:
    try:
        table = read_table(path, required=() if is_collective_table(path) else ("Input Shapes",))
    except TableError as error:
        return TableContents(path.name, problem=str(error).removeprefix(f"{path} "))
    latencies = [c for c in table.header if "duration" in c.lower()] if is_collective_table(path) else []
    return TableContents(
        path.name,
        rows=len(table.rows),
        measured=sum(
            has_valid_duration(row.cells) or any(duration_us(row.cells.get(c)) is not None for c in latencies)
            for row in table.rows
        ),
        average=sum(duration_us(row.cells.get(AVERAGE)) is not None for row in table.rows),
        profiling=sum(duration_us(row.cells.get(PROFILING_AVERAGE)) is not None for row in table.rows),
    )


def _mapping_notes(database: Path, tables: tuple[TableContents, ...]) -> list[str]:
    """Say what keeps TensorCast from using the tables: it opens only those its mapping names."""
    path = database / MAPPING_FILE
    try:
        mapping = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return [f"{MAPPING_FILE} is missing: TensorCast treats every operator as unmapped"]
    except (OSError, UnicodeDecodeError) as error:
        return [f"{MAPPING_FILE} cannot be read: {error}"]
    if not mapping.strip():
        return [f"{MAPPING_FILE} is empty: TensorCast stops on it"]
    names = [table.name.removesuffix(".csv") for table in tables]
    # Kernel types stand as whole words in keys, lists and values; the file is never interpreted otherwise.
    words = set(re.findall(r"[A-Za-z0-9_]+", mapping))
    unnamed = [name for name in names if name not in words]
    if names and len(unnamed) == len(names):
        return [f"{MAPPING_FILE} names no table that is here: TensorCast opens none of the {len(names)}"]
    return (
        [f"{MAPPING_FILE} does not name {', '.join(unnamed)}: TensorCast never opens them"] if unnamed else []
    )
