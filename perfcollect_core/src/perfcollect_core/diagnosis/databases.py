"""Check the databases under the data root: can each be read, and does it know what it holds."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from perfcollect_core.errors import DataError, TableError
from perfcollect_core.tables.encoding import read_text
from perfcollect_core.tables.identity import read_identity
from perfcollect_core.tables.layout import DatabaseOptions, data_root, list_databases
from perfcollect_core.tables.read import table_paths

from .findings import Finding, Scope

__all__ = ["databases"]

_CHECK = "databases"
#: A pointer of Git LFS and an empty file are smaller; larger tables are `db check`'s to read.
_SMALL_BYTES = 1024


def databases(scope: Scope) -> Iterator[Finding]:
    """Name the data root, and each database below it with what keeps it from being used."""
    root, origin = data_root(DatabaseOptions())
    if not root.is_dir():
        yield Finding(
            _CHECK,
            "info",
            f"data root {root}",
            f"is not there ({origin})",
            "make a database with perfcollect db init, db derive or parse, or export PERFCOLLECT_DATA_ROOT",
        )
        return
    entries = list_databases(root)
    if not entries:
        yield Finding(
            _CHECK,
            "info",
            f"data root {root}",
            f"holds no database ({origin})",
            "make one with perfcollect db init, db derive or parse",
        )
    for entry in entries:
        yield from _database(entry.path)


def _database(path: Path) -> Iterator[Finding]:
    tables = table_paths(path, collectives=True)
    broken = list(_unreadable(tables))
    if broken:
        table, error = broken[0]
        more = f" (and {len(broken) - 1} more tables)" if len(broken) > 1 else ""
        message = str(error).removeprefix(f"{table} ")
        yield Finding(_CHECK, "warning", str(table), f"{message}{more}", error.hint or _check(path))
        return
    try:
        identity = read_identity(path)
    except DataError as error:
        message = str(error).removeprefix(f"database {path} ")
        yield Finding(_CHECK, "warning", str(path), message, error.hint or _check(path))
        return
    held = f"{identity.family} {identity.device}" if identity else "nothing measured yet"
    emulated = ", emulated" if identity and identity.emulated else ""
    yield Finding(_CHECK, "ok", str(path), f"{len(tables)} tables, {held}{emulated}")


def _check(path: Path) -> str:
    return f"perfcollect db check {path} lists everything"


def _unreadable(tables: tuple[Path, ...]) -> Iterator[tuple[Path, TableError]]:
    for path in tables:
        try:
            if path.stat().st_size <= _SMALL_BYTES:
                read_text(path)
        except TableError as error:
            yield path, error
        except OSError as error:
            yield (
                path,
                TableError(f"{path} cannot be read: {error.strerror}", hint="check its rights", path=path),
            )
