"""Replace a file as a whole: the old bytes stay until the new ones are safely on disk."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from perfcollect_core.errors import TableError

__all__ = ["PARTIAL", "remove_partials", "replace_file"]

#: What the name of a file being written ends in; no reader takes such a file for a table.
PARTIAL = ".partial"


def replace_file(path: Path, content: bytes) -> None:
    """Write *content* to *path* through a ``.partial`` file beside it, keeping the mode of the old file.

    A symbolic link stays one: what it points at is replaced.

    Raises:
        TableError: The file cannot be written; the old one is untouched.
    """
    target = Path(os.path.realpath(path))
    partial = target.with_name(target.name + PARTIAL)
    try:
        _write_synced(partial, content, target.stat() if target.exists() else None)
        partial.replace(target)
    except OSError as error:
        _remove(partial)
        raise TableError(
            f"{path} cannot be written: {error.strerror or error}",
            hint="the file is as it was; make room or rights and run the command again",
            path=path,
        ) from error
    except BaseException:
        _remove(partial)
        raise
    _sync_directory(target.parent)


def remove_partials(directory: Path) -> tuple[Path, ...]:
    """Remove what killed writers left in *directory*; the caller holds its lock."""
    left = tuple(sorted(p for p in directory.glob(f"*{PARTIAL}") if p.is_file()))
    for partial in left:
        _remove(partial)
    return left


def _write_synced(path: Path, content: bytes, old: os.stat_result | None) -> None:
    _remove(path)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), 0o666)
    with os.fdopen(descriptor, "wb") as stream:
        stream.write(content)
        stream.flush()
        if old is not None:
            path.chmod(old.st_mode & 0o7777)
            # An administrator's run must not take the file from its owner; others may not give files away.
            with contextlib.suppress(OSError, AttributeError):
                os.chown(path, old.st_uid, old.st_gid)
        os.fsync(stream.fileno())


def _remove(path: Path) -> None:
    with contextlib.suppress(OSError):
        path.unlink()


def _sync_directory(directory: Path) -> None:
    # Windows cannot open a directory; a file system that cannot sync one has replaced the file all the same.
    with contextlib.suppress(OSError):
        descriptor = os.open(directory, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
