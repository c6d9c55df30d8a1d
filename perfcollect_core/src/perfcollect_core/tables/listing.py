"""The databases below a root, in version order."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path

import attrs
from packaging.version import InvalidVersion, Version

from perfcollect_core.errors import DataError

from .identity import IDENTITY_FILE
from .versions import StackVersions, parse_directory_name

__all__ = ["DatabaseEntry", "directories", "list_databases"]


@attrs.frozen
class DatabaseEntry:
    """One database below a root; ``stack`` is ``None`` outside ``vllm_ascend``."""

    path: Path
    device: str
    stack: StackVersions | None = None

    @property
    def variant(self) -> bool:
        return self.stack is not None and bool(self.stack.variant)


def list_databases(root: Path) -> tuple[DatabaseEntry, ...]:
    """Return the databases below *root*: by device, then in version order, variants after the version they belong to.

    Raises:
        DataError: *root* is no directory.
    """
    if not root.is_dir():
        raise DataError(
            f"data root {root} is not a directory", hint="name the root as perfcollect db list ROOT"
        )
    entries = []
    for device in directories(root):
        for directory in directories(device / "vllm_ascend"):
            if stack := parse_directory_name(directory.name):
                entries.append(DatabaseEntry(directory, device.name, stack))
        entries.extend(DatabaseEntry(d, device.name) for d in directories(device / "hccl"))
        entries.extend(
            DatabaseEntry(directory, device.name)
            for directory in directories(device)
            if directory.name.startswith("torch") or (directory / IDENTITY_FILE).is_file()
        )
    return tuple(sorted(entries, key=_entry_order))


def _entry_order(entry: DatabaseEntry) -> tuple[object, ...]:
    if entry.stack is not None:
        vllm, torch, cann, variant = entry.stack.order
        return (entry.device, 0, vllm, torch, cann, variant)
    word = re.sub(r"^(torch|v)", "", entry.path.name)
    try:
        return (entry.device, 1, entry.path.parent.name, Version(word), entry.path.name)
    except InvalidVersion:
        return (entry.device, 2, str(entry.path))


def directories(path: Path) -> Iterator[Path]:
    """Yield the visible directories directly in *path*, by name; none where it cannot be listed."""
    with contextlib.suppress(OSError):
        yield from sorted(p for p in path.iterdir() if p.is_dir() and not p.name.startswith("."))
