"""Read a table as text, keeping every byte that a later patch must give back."""

from __future__ import annotations

import csv
import io
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import attrs

from perfcollect_core.cases import Row, RowRef
from perfcollect_core.errors import DataError, TableError

from .columns import column_meanings
from .encoding import broken_table, read_text
from .match import operator_name, raw_keys

__all__ = [
    "REQUIRED_COLUMNS",
    "Table",
    "TornRow",
    "is_collective_table",
    "new_table",
    "read_table",
    "scan_table",
    "table_paths",
]

REQUIRED_COLUMNS = ("Input Shapes", "Output Shapes")

_BOM = "\ufeff"


@attrs.frozen
class TornRow:
    """A line that is no row under the header: too few or too many cells, or the header once more."""

    line: int
    reason: str


@attrs.frozen(eq=False)
class Table:
    """A table in memory.

    Attributes:
        path: Where it came from.
        header: Column names, stripped, older headings under their present name.
        rows: The data rows; ``cells`` holds the text of each cell after CSV unquoting.
        lines: Physical line in the file on which each row begins, from 1.
        torn: Lines that are no rows; ``read_table`` refuses a table that has any.
    """

    path: Path
    header: tuple[str, ...]
    rows: tuple[Row, ...]
    lines: tuple[int, ...]
    torn: tuple[TornRow, ...] = ()
    _bom: bool = attrs.field(default=False, repr=False)
    _newline: str = attrs.field(default="\r\n", repr=False)
    _lead: str = attrs.field(default="", repr=False)
    _header_text: str = attrs.field(default="", repr=False)
    #: The text of each row with its line end, and what is between rows (blank lines) with index ``None``.
    _pieces: tuple[tuple[int | None, str], ...] = attrs.field(default=(), repr=False)

    @property
    def operator(self) -> str:
        return operator_name(self.path.name)

    @property
    def newline(self) -> str:
        """The line end of the file."""
        return self._newline


def new_table(path: Path, header: Sequence[str]) -> Table:
    """Return the table that *path* will be: a heading under the rules for new files, and no row."""
    names = tuple(header)
    return Table(path, names, (), (), header_text=",".join(names) + "\r\n", newline="\r\n")


def is_collective_table(path: Path) -> bool:
    """Tell whether a table belongs to ``comm``: run, parse and grid leave it alone."""
    return path.name.startswith("hcom_")


def table_paths(database: Path, *, collectives: bool = False) -> tuple[Path, ...]:
    """Return the tables of a database: ``*.csv`` directly in it, by name; ``hcom_*`` only with *collectives*.

    Raises:
        DataError: The directory is missing or cannot be listed.
    """
    try:
        entries = sorted(database.iterdir())
    except OSError as error:
        raise DataError(
            f"database {database} cannot be read: {error.strerror or error}",
            hint="name the directory that holds the tables with --database-path",
        ) from error
    return tuple(
        path
        for path in entries
        if path.suffix == ".csv"
        and not path.name.startswith(".")
        and path.is_file()
        and (collectives or not is_collective_table(path))
    )


def read_table(path: Path, *, required: Sequence[str] = REQUIRED_COLUMNS) -> Table:
    """Read the table at *path*.

    Raises:
        TableError: It is missing, empty, a Git-LFS pointer, not UTF-8, not separated by commas, lacks a *required*
            column, or has a row that does not fit its header; the message names the physical line.
    """
    table = scan_table(path, required=required)
    if table.torn:
        first, *others = table.torn
        more = f" (and {len(others)} more such line{'' if len(others) == 1 else 's'})" if others else ""
        raise TableError(
            f"{path} line {first.line}: {first.reason}{more}",
            hint="perfcollect db check lists every such line; correct them by hand",
            path=path,
            line=first.line,
        )
    return table


def scan_table(path: Path, *, required: Sequence[str] = REQUIRED_COLUMNS) -> Table:
    """Read the table at *path*, leaving lines that are no rows in ``torn`` instead of refusing them."""
    text = read_text(path)
    bom = text.startswith(_BOM)
    lines = list(io.StringIO(text[1:] if bom else text, newline=""))
    records = _records(path, lines)
    lead = ""
    header_line, header_text, names = next(records, (0, "", []))
    while header_line and not any(name.strip() for name in names):
        lead += header_text
        header_line, header_text, names = next(records, (0, "", []))
    if not names:
        raise broken_table(
            path, "is empty, expected a header", "restore the file; an empty table has its header line"
        )
    header = _header(path, header_line, names, header_text, required)
    physical = [name.strip() for name in names]
    cells_of: list[dict[str, str]] = []
    row_lines: list[int] = []
    torn: list[TornRow] = []
    pieces: list[tuple[int | None, str]] = []
    width = len(header)
    for line, raw, cells in records:
        if not cells or (len(cells) == 1 < width and not cells[0].strip()):
            pieces.append((None, raw))
        elif _is_heading(cells, physical):
            torn.append(TornRow(line, "header repeated"))
        elif len(cells) != width:
            torn.append(TornRow(line, f"{len(cells)} cells, header has {width}"))
        else:
            pieces.append((len(cells_of), raw))
            cells_of.append(dict(zip(header, cells, strict=True)))
            row_lines.append(line)
    return Table(
        path=path,
        header=header,
        rows=_rows(path.name, header, cells_of),
        lines=tuple(row_lines),
        torn=tuple(torn),
        bom=bom,
        newline=_line_end(header_text) or "\r\n",
        lead=lead,
        header_text=header_text,
        pieces=tuple(pieces),
    )


def _rows(table: str, header: Sequence[str], cells_of: Sequence[dict[str, str]]) -> tuple[Row, ...]:
    seen: Counter[tuple[str, ...]] = Counter()
    rows = []
    for key, cells in zip(raw_keys(operator_name(table), header, cells_of), cells_of, strict=True):
        rows.append(Row(RowRef(table, key, seen[key]), cells))
        seen[key] += 1
    return tuple(rows)


def _records(path: Path, lines: list[str]) -> Iterator[tuple[int, str, list[str]]]:
    """Yield (first physical line, text with line ends, cells) of each record; a blank line has no cells."""
    reader = csv.reader(lines)
    start = 0
    try:
        for cells in reader:
            end = reader.line_num
            raw = lines[start] if end == start + 1 else "".join(lines[start:end])
            if end == len(lines) and _is_open(raw):
                raise broken_table(
                    path,
                    f"line {start + 1}: a quoted cell is never closed",
                    "correct the quotes by hand",
                    line=start + 1,
                )
            yield start + 1, raw, cells
            start = end
    except csv.Error as error:
        raise broken_table(
            path, f"line {start + 1}: {error}", "correct the line by hand", line=start + 1
        ) from error


_CELL = re.compile(r'(?:"(?:[^"]|"")*"[^,\r\n]*|(?!")[^,\r\n]*)(?:,|[\r\n]+\Z|\Z)')


def _is_open(raw: str) -> bool:
    position = 0
    while position < len(raw):
        match = _CELL.match(raw, position)
        if match is None:
            return True
        position = match.end()
    return False


def _header(path: Path, line: int, names: list[str], text: str, required: Sequence[str]) -> tuple[str, ...]:
    renamed = column_meanings().renamed
    stripped = [name.strip() for name in names]
    header = tuple(
        renamed[name] if name in renamed and renamed[name] not in stripped else name for name in stripped
    )
    missing = [column for column in required if column not in header]
    if missing:
        for separator, word in ((";", "';'"), ("\t", "a tab")):
            if missing[0] in [name.strip().strip('"') for name in text.strip().split(separator)]:
                raise broken_table(
                    path,
                    f"is separated by {word}, expected ','",
                    "the file was saved by a spreadsheet; export it again with commas and decimal points",
                    line=line,
                )
        raise broken_table(
            path,
            f"line {line}: no column {', '.join(map(repr, missing))}, the header has {_listed(header)}",
            "a table has one row per call, with its tensors in the columns "
            "Input Shapes, Input Data Types, Input Formats, Output Shapes, ...",
            line=line,
            column=missing[0],
        )
    twice = [name for name, count in Counter(header).items() if count > 1 and name]
    if twice:
        raise broken_table(
            path,
            f"line {line}: column {twice[0]!r} stands twice in the header",
            "remove one of the two by hand",
            line=line,
            column=twice[0],
        )
    return header


def _is_heading(cells: Sequence[str], header: Sequence[str]) -> bool:
    """Tell whether a record is a header once more, of this schema or of another one welded on."""
    if "Input Shapes" in cells:
        return True
    return cells[0].strip().removeprefix(_BOM) == header[0] and {c.strip() for c in cells} >= set(header[1:])


def _line_end(text: str) -> str:
    return text[len(text.rstrip("\r\n")) :]


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(repr(name) for name in names[:6])
    return f"{shown}, ... ({len(names)} columns)" if len(names) > 6 else shown
