"""The lines of new rows of one table, and the text of the table with them among its own."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from perfcollect_core.tables.extend import Extension, extended_text, plan_extension
from perfcollect_core.tables.read import Table

from .cells import LineWriter, cells_of
from .spool import Spool
from .theory import TheoryRow

__all__ = ["LineCollector"]


class LineCollector:
    """Collects the lines of new rows; a column first seen late is blank in the lines before."""

    def __init__(self, table: Table, spool: Spool) -> None:
        self._table, self._spool = table, spool
        self._columns: dict[str, None] = {}
        self._extension: Extension = plan_extension(table, ())
        self._writer, self._width = LineWriter(self._extension.names, ""), len(self._extension.names)
        self._known: set[object] = set()

    @property
    def added(self) -> tuple[str, ...]:
        return self._extension.added

    def extend(self, rows: Iterable[TheoryRow]) -> None:
        """Add the lines of *rows*."""
        known, add = self._known, self._spool.add
        for row in rows:
            extra = row.extra
            kind: object = id(row.form)
            if extra is not None:
                kind = (kind, tuple([name for name, text in extra.items() if text]))
            if kind not in known:
                known.add(kind)
                self._learn(row)
            add(row.outputs, row.inputs, self._writer.line(row), self._width)

    def _learn(self, row: TheoryRow) -> None:
        needed = [
            name
            for name, text in cells_of(row).items()
            if text and name not in self._columns and (name != "OP State" or name in self._table.header)
        ]
        self._columns |= dict.fromkeys(needed)
        extension = plan_extension(self._table, self._columns)
        if extension.names != self._extension.names:
            self._extension = extension
            self._writer, self._width = LineWriter(extension.names, ""), len(extension.names)

    def text(self) -> Iterator[str]:
        width, newline = len(self._extension.names), self._table.newline
        pads = {n: "," * (width - n) + newline for n in range(width + 1)}
        lines = ((key, line + pads[columns]) for key, line, columns in self._spool.ordered())
        return extended_text(self._extension, lines)
