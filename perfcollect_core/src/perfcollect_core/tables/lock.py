"""One writer a database at a time, and a name to ask when it is somebody else's turn."""

from __future__ import annotations

import contextlib
import json
import os
import platform
import sys
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path

from filelock import BaseFileLock, FileLock, Timeout

from perfcollect_core.errors import DatabaseLockedError, DataError

from .atomic import remove_partials

__all__ = ["LOCK_FILES", "database_lock"]

_LOCK = ".perfcollect.lock"
_OWNER = ".perfcollect.owner"
LOCK_FILES = (_LOCK, _OWNER)


@contextlib.contextmanager
def database_lock(database: Path, *, wait_seconds: float = 0.0) -> Iterator[None]:
    """Hold *database* for writing; the operating system frees it when the process ends, however it ends.

    Leftovers of killed writers are removed on entry.

    Raises:
        DatabaseLockedError: Another process has held it for *wait_seconds*; the message names it.
        DataError: The directory is missing or not writable.
    """
    if not database.is_dir():
        raise DataError(f"database {database} is not a directory", hint="name an existing one")
    lock = FileLock(str(database / _LOCK), timeout=wait_seconds)
    _acquire(lock, database, wait_seconds)
    try:
        _write_owner(database)
        remove_partials(database)
        yield
    finally:
        with contextlib.suppress(OSError):
            (database / _OWNER).unlink()
        lock.release()


def _acquire(lock: BaseFileLock, database: Path, wait_seconds: float) -> None:
    try:
        lock.acquire()
    except Timeout:
        waited = f" after {wait_seconds:g} s" if wait_seconds > 0 else ""
        raise DatabaseLockedError(
            f"database {database} is held by {_holder(database)}{waited}",
            hint="wait until that process ends, or end it; two writers at once would lose rows",
        ) from None
    except (OSError, NotImplementedError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise DataError(
            f"database {database} cannot be written: {reason}",
            hint="give yourself write access to the directory, or work on a copy (perfcollect db derive)",
        ) from error


def _write_owner(database: Path) -> None:
    owner = {
        "pid": os.getpid(),
        "host": platform.node(),
        "command": " ".join([Path(sys.argv[0]).name, *sys.argv[1:]])[:400],
        "since": datetime.now(timezone.utc).isoformat(timespec="seconds"),
    }
    # The record only makes the message better; a full disk must not stop a reader of it.
    with contextlib.suppress(OSError):
        (database / _OWNER).write_text(json.dumps(owner), encoding="utf-8")


def _holder(database: Path) -> str:
    try:
        owner = json.loads((database / _OWNER).read_text(encoding="utf-8"))
        return f"process {owner['pid']} on {owner['host']} since {owner['since']} ({owner['command']})"
    except (OSError, ValueError, KeyError, TypeError):
        return "another process"
