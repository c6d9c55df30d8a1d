"""Read the header of a profiler file, and refuse what is no such file with a message that says why."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import attrs

from perfcollect_core.errors import DataError
from perfcollect_core.tensors import SIGNATURE_COLUMNS

from .layouts import DURATION, LAYOUTS, REQUIRED, TYPE, Layout
from .records import split_records

__all__ = ["ProfileHeader", "read_header"]

_LFS = b"version https://git-lfs.github.com/spec/"
_BOM = b"\xef\xbb\xbf"
_MAX_HEADER_BYTES = 1 << 20


@attrs.frozen
class ProfileHeader:
    """The header of a profiler file.

    Attributes:
        path: The file.
        layout: Which of the two files it is.
        columns: Column names in our spelling, by position.
        body: Offset of the first byte after the header.
        line: Physical line of the first record, from 1.
    """

    path: Path
    layout: Layout
    columns: tuple[str, ...]
    body: int
    line: int


def read_header(path: Path) -> ProfileHeader:
    """Read the header of *path*.

    Raises:
        DataError: It cannot be read, is empty, a Git-LFS pointer, in another encoding or dialect, or lacks columns.
    """
    try:
        with path.open("rb") as stream:
            start = stream.read(_MAX_HEADER_BYTES)
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror or error}") from error
    _refuse_other_kinds(path, start)
    skipped = len(_BOM) if start.startswith(_BOM) else 0
    try:
        text = start[skipped:].decode("utf-8")
    except UnicodeDecodeError as error:
        text = start[skipped : skipped + error.start].decode("utf-8")
        if "\n" not in text:
            raise DataError(
                f"{path} is not UTF-8: byte 0x{start[skipped + error.start]:02x} at offset "
                f"{skipped + error.start}, in the header",
                hint="save it again as CSV in UTF-8, or export the profile again",
            ) from None
    first = next(split_records(text, 0, final=True), None)
    if first is None:
        raise DataError(f"{path} is empty, expected the header of a profiler file")
    raw = text[: first.end]
    if "\r" in raw.replace("\r\n", ""):
        raise DataError(
            f"{path} ends its lines with CR alone, expected LF or CRLF", hint="export the profile again"
        )
    names = tuple(name.strip() for name in _cells(raw))
    _refuse_other_dialects(path, names, raw)
    layout = max(LAYOUTS, key=lambda known: len({TYPE, DURATION} & set(known.canonical(names))))
    columns = layout.canonical(names)
    _refuse_missing(path, layout, columns)
    return ProfileHeader(path, layout, columns, skipped + len(raw.encode("utf-8")), 1 + raw.count("\n"))


def _cells(raw: str) -> tuple[str, ...]:
    width = 1
    for record in split_records(raw + ("" if raw.endswith("\n") else "\n"), 0, final=True):
        counted = re.match(r"([0-9]+) cells", record.fault)
        width = int(counted[1]) if counted else width
        break
    for record in split_records(raw + ("" if raw.endswith("\n") else "\n"), width, final=True):
        return record.cells
    return ()


def _refuse_other_kinds(path: Path, start: bytes) -> None:
    if start.startswith(_LFS):
        size = re.search(rb"^size ([0-9]+)\r?$", start, re.MULTILINE)
        real = f" (real size {size[1].decode()} bytes)" if size else ""
        raise DataError(
            f"{path} is a Git LFS pointer{real}, expected a profiler file", hint="run git lfs pull"
        )
    head = start[:64]
    if head.startswith((b"\xff\xfe", b"\xfe\xff")) or head[1::2].count(0) > 8 or head[::2].count(0) > 8:
        raise DataError(f"{path} is UTF-16, expected UTF-8", hint="save it again as CSV in UTF-8")
    if not start.strip():
        raise DataError(f"{path} is empty, expected the header of a profiler file")


def _refuse_other_dialects(path: Path, names: tuple[str, ...], raw: str) -> None:
    for separator, word in ((";", "';'"), ("\t", "a tab")):
        if len(names) <= 2 and raw.count(separator) >= 5:
            raise DataError(
                f"{path} has the delimiter {word}, expected ','",
                hint="the file was saved by a spreadsheet; export the profile again and do not open it in one",
            )


def _refuse_missing(path: Path, layout: Layout, columns: tuple[str, ...]) -> None:
    missing = [column for column in REQUIRED if column not in columns]
    if (
        missing
        and set(missing) <= {*SIGNATURE_COLUMNS, "OP State"}
        and set(SIGNATURE_COLUMNS) <= set(missing)
    ):
        raise DataError(
            f"{path} holds no shapes: the profile was taken at Level0",
            hint="take it again with profiler_level=Level1, which records shapes, dtypes and formats",
        )
    if missing:
        shown = ", ".join(repr(layout.spelling(column)) for column in missing)
        raise DataError(
            f"{path} lacks the column{'s' if len(missing) > 1 else ''} {shown}, "
            f"expected those of {layout.name}",
            hint="name a kernel_details.csv of torch_npu.profiler or an op_summary_*.csv of msprof, unchanged",
        )
    twice = [name for name, count in Counter(columns).items() if count > 1 and name in REQUIRED]
    if twice:
        raise DataError(
            f"{path} has the column {layout.spelling(twice[0])!r} twice in its header",
            hint="export the profile again",
        )
