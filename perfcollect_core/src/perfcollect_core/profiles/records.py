"""Split CSV text into records exactly, one at a time: the slow path for files that are not plain."""

from __future__ import annotations

import re
from collections.abc import Iterator

import attrs

__all__ = ["Record", "cell_count", "split_records"]

# A quoted cell may hold line ends and doubled quotes; a quote inside an unquoted cell is an ordinary character.
_CELL = re.compile(r'(?:"([^"]*(?:""[^"]*)*)"|((?!")[^,\r\n]*))(,|\r?\n|\Z)')

#: An open quote is not followed further than this: the line is torn, and what follows is not its content.
_MAX_OPEN_CHARS = 1 << 20


@attrs.frozen
class Record:
    """One record: its first physical line (from 0 within the text) and its cells, or why it is none (``fault``)."""

    line: int
    cells: tuple[str, ...] = ()
    fault: str = ""
    end: int = 0


def split_records(text: str, width: int, *, final: bool) -> Iterator[Record]:
    """Yield the records of *text*, which begins a record; blank lines yield nothing.

    A line that is no record of *width* cells comes with its fault, and reading goes on at the next physical line. A
    record that is not ended is left to the caller, who finds where in the ``end`` of the last one (*final*: no more
    text follows, so it is a fault).
    """
    position, line = 0, 0
    while position < len(text):
        cells, end, closed = _record(text, position)
        if not closed:
            opened = cells is None and text.count('"', position) and _may_close(text, position)
            if not final and (cells is not None or (opened and len(text) - position < _MAX_OPEN_CHARS)):
                return
        following = text.find("\n", position) + 1 or len(text)
        torn = not closed and following == len(text) and not text.endswith("\n")
        if torn:
            yield Record(line, fault="last line is not ended, the file may have been cut", end=len(text))
            return
        if cells is not None and closed and len(cells) == 1 and not cells[0].strip() and width > 1:
            position, line = end, line + text.count("\n", position, end)
            continue
        if cells is None or not closed:
            yield Record(line, fault="quotes do not match", end=following)
            position, line = following, line + 1
        elif len(cells) != width:
            yield Record(line, fault=f"{len(cells)} cells, header has {width}", end=following)
            position, line = following, line + 1
        else:
            yield Record(line, cells, end=end)
            position, line = end, line + text.count("\n", position, end)


def _may_close(text: str, position: int) -> bool:
    """Tell whether the first cell that does not match from *position* on is a quote still open at the end."""
    while True:
        match = _CELL.match(text, position)
        if match is None:
            quotes = len(text) - position - len(text[position:].replace('"', ""))
            return text[position] == '"' and quotes % 2 == 1
        position = match.end()
        if not match[3] or match[3] != ",":
            return False


def _record(text: str, position: int) -> tuple[tuple[str, ...] | None, int, bool]:
    """Return (cells, end, ended by a line end) of the record at *position*; cells ``None`` where quotes break."""
    cells: list[str] = []
    while True:
        match = _CELL.match(text, position)
        if match is None:
            return None, position, False
        quoted, plain, mark = match.groups()
        cells.append(plain if quoted is None else quoted.replace('""', '"'))
        position = match.end()
        if mark != ",":
            return tuple(cells), position, bool(mark)


def cell_count(line: str) -> int:
    """Count the cells of one physical line without its line end."""
    if '"' not in line:
        return line.count(",") + 1
    cells, _, _ = _record(line.rstrip("\r\n"), 0)
    return len(cells or ())
