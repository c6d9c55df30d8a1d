"""The text of a table file, or in one sentence why it has none: a pointer, another encoding, nothing at all."""

from __future__ import annotations

import re
from pathlib import Path

from perfcollect_core.errors import TableError

__all__ = ["broken_table", "read_text"]

_LFS = b"version https://git-lfs.github.com/spec/"


def read_text(path: Path) -> str:
    """Return the text of *path*, a byte-order mark included.

    Raises:
        TableError: It cannot be read, is empty, a Git-LFS pointer, or not UTF-8 (offset and line are named).
    """
    return _decode(path, _content(path))


def _content(path: Path) -> bytes:
    try:
        content = path.read_bytes()
    except OSError as error:
        raise broken_table(path, f"cannot be read: {error.strerror or error}") from error
    if content.startswith(_LFS):
        size = re.search(rb"^size ([0-9]+)\r?$", content, re.MULTILINE)
        real = f" (real size {size[1].decode()} bytes)" if size else ""
        raise broken_table(path, f"is a Git LFS pointer{real}, expected a table", "run git lfs pull")
    if not content.strip():
        raise broken_table(
            path, "is empty, expected a header", "restore the file; an empty table has its header line"
        )
    return content


def _decode(path: Path, content: bytes) -> str:
    head = content[:64]
    if head.startswith((b"\xff\xfe", b"\xfe\xff")) or head[1::2].count(0) > 8 or head[::2].count(0) > 8:
        raise broken_table(path, "is UTF-16, expected UTF-8", "save it again as CSV in UTF-8")
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        before = content[: error.start]
        line = len(before.splitlines()) + (before.endswith((b"\n", b"\r")) or not before)
        raise broken_table(
            path,
            f"is not UTF-8: byte 0x{content[error.start]:02x} at offset {error.start}, line {line}",
            "save it again as CSV in UTF-8",
            line=line,
        ) from error


def broken_table(
    path: Path, what: str, hint: str | None = None, *, line: int | None = None, column: str | None = None
) -> TableError:
    """Make the error of an unusable table: its path, then *what* is wrong with it."""
    return TableError(f"{path} {what}", hint=hint, path=path, line=line, column=column)
