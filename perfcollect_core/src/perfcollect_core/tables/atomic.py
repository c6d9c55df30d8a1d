"""Replace a file as a whole: the old bytes stay until the new ones are safely on disk."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path

import attrs

from perfcollect_core.errors import TableError

__all__ = [
    "COMMIT_FILE",
    "PARTIAL",
    "Staged",
    "commit_staged",
    "remove_partials",
    "replace_file",
    "stage_file",
]

#: What the name of a file being written ends in; no reader takes such a file for a table.
PARTIAL = ".partial"
#: Names the files a command is about to replace; where it is there, all of them are meant to be.
COMMIT_FILE = ".perfcollect.commit"


def replace_file(path: Path, content: bytes) -> None:
    """Write *content* to *path* through a ``.partial`` file beside it, keeping the mode of the old file.

    A symbolic link stays one: what it points at is replaced.

    Raises:
        TableError: The file cannot be written; the old one is untouched.
    """
    target = Path(os.path.realpath(path))
    partial = target.with_name(target.name + PARTIAL)
    try:
        _write_synced(partial, [content], target.stat() if target.exists() else None)
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


@attrs.frozen
class Staged:
    """New content on disk beside the file it will replace."""

    path: Path
    target: Path
    partial: Path

    def discard(self) -> None:
        """Remove it; the file stays as it was."""
        _remove(self.partial)


def stage_file(path: Path, chunks: Iterable[bytes]) -> Staged:
    """Write the new content of *path* beside it, without touching it; ``commit_staged`` puts it in place.

    Raises:
        TableError: It cannot be written; nothing is left.
    """
    target = Path(os.path.realpath(path))
    partial = target.with_name(target.name + PARTIAL)
    try:
        old = target.stat() if target.exists() else None
        if (old is not None and not os.access(target, os.W_OK)) or (
            old is not None and not old.st_mode & 0o222
        ):
            raise PermissionError(13, "Permission denied")
        _write_synced(partial, chunks, old)
    except OSError as error:
        _remove(partial)
        raise TableError(
            f"{path} cannot be written: {error.strerror or error}",
            hint="no file was changed; make room or rights and run the command again",
            path=path,
        ) from error
    except BaseException:
        _remove(partial)
        raise
    return Staged(path, target, partial)


def commit_staged(directory: Path, staged: Sequence[Staged]) -> None:
    """Put every staged file in place, or none; the caller holds the lock of *directory*.

    A command that is killed half-way leaves a record, and the next holder of the lock finishes its work.

    Raises:
        TableError: A file cannot be replaced; all of them are as they were.
    """
    if not staged:
        return
    record = directory / COMMIT_FILE
    backups: list[tuple[Staged, Path | None]] = []
    try:
        for one in staged:
            backups.append((one, _backup(one.target)))
        entries = [[str(one.partial), str(one.target)] for one in staged]
        _write_synced(record, [json.dumps(entries).encode()], None)
        for one in staged:
            one.partial.replace(one.target)
    except OSError as error:
        _roll_back(backups)
        _remove(record)
        for one in staged:
            one.discard()
        raise TableError(
            f"{error.filename2 or error.filename or directory} cannot be replaced: {error.strerror or error}",
            hint="no file was changed; make room or rights and run the command again",
        ) from error
    _remove(record)
    for _, backup in backups:
        if backup is not None:
            _remove(backup)
    for parent in {one.target.parent for one in staged}:
        _sync_directory(parent)


def _backup(target: Path) -> Path | None:
    if not target.exists():
        return None
    backup = target.with_name(target.name + ".old" + PARTIAL)
    _remove(backup)
    try:
        os.link(target, backup)
    except OSError:
        shutil.copy2(target, backup)
    return backup


def _roll_back(backups: Sequence[tuple[Staged, Path | None]]) -> None:
    for one, backup in backups:
        with contextlib.suppress(OSError):
            if backup is not None:
                backup.replace(one.target)
                # Renaming a file to another name of itself does nothing.
                _remove(backup)
            elif not one.partial.exists():
                _remove(one.target)


def _finish_commit(directory: Path) -> None:
    """Put in place what a killed command had decided to."""
    record = directory / COMMIT_FILE
    try:
        entries = json.loads(record.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        # Not there, or cut off before the first file was replaced.
        _remove(record)
        return
    for partial, target in entries:
        with contextlib.suppress(FileNotFoundError):
            Path(partial).replace(target)
    _remove(record)


def remove_partials(directory: Path) -> tuple[Path, ...]:
    """Remove what killed writers left in *directory*, having finished what they had decided; the caller holds its lock."""
    _finish_commit(directory)
    left = tuple(sorted(p for p in directory.glob(f"*{PARTIAL}") if p.is_file()))
    for partial in left:
        _remove(partial)
    return left


def _write_synced(path: Path, chunks: Iterable[bytes], old: os.stat_result | None) -> None:
    _remove(path)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), 0o666)
    with os.fdopen(descriptor, "wb") as stream:
        for chunk in chunks:
            stream.write(chunk)
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
