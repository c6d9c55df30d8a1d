"""Theory rows as the text of a table: cells by column, and whole lines."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache

from perfcollect_core.cases import Row, RowRef
from perfcollect_core.tables.columns import column_meanings, is_measurement
from perfcollect_core.tables.match import raw_key
from perfcollect_core.tensors import INPUT_COLUMNS, OUTPUT_COLUMNS, parse_signature

from .theory import Form, TheoryRow, shapes_text

__all__ = ["GRID_RULE", "LineWriter", "cells_of", "needed_columns", "row_of", "theory_row"]

GRID_RULE = "Grid Rule"
_STATE = "OP State"
_MOST_TEXTS = 200_000
#: Cells of what a row waits for: the numbers are 0, the words blank.
_WORDS = frozenset(
    {"Accelerator Core", "Observed Kernel", "Cache Policy", "Measured With", "Runtime replay_status"}
)


def cells_of(row: TheoryRow) -> dict[str, str]:
    """Return the cells of *row* by column, without those a table's other columns need."""
    one = row.form
    return {
        _STATE: one.state,
        INPUT_COLUMNS[0]: f'"{shapes_text(row.inputs)}"',
        INPUT_COLUMNS[1]: ";".join(one.input_dtypes),
        INPUT_COLUMNS[2]: ";".join(one.input_formats),
        OUTPUT_COLUMNS[0]: f'"{shapes_text(row.outputs)}"',
        OUTPUT_COLUMNS[1]: ";".join(one.output_dtypes),
        OUTPUT_COLUMNS[2]: ";".join(one.output_formats),
        **(row.extra or {}),
        GRID_RULE: row.rule,
    }


def theory_row(cells: Mapping[str, str]) -> TheoryRow:
    """Return the theory row of *cells* that a rule gave by column."""
    signature = parse_signature(cells)

    def split(name: str, count: int) -> tuple[str, ...]:
        words = (cells.get(name) or "").strip().strip('"').split(";")
        return tuple([*words, *[""] * count][:count])

    inputs, outputs = len(signature.inputs), len(signature.outputs)
    one = Form(
        split(INPUT_COLUMNS[1], inputs),
        split(INPUT_COLUMNS[2], inputs),
        split(OUTPUT_COLUMNS[1], outputs),
        split(OUTPUT_COLUMNS[2], outputs),
        state=cells.get(_STATE) or "dynamic",
    )
    known = {*INPUT_COLUMNS, *OUTPUT_COLUMNS, _STATE, GRID_RULE}
    return TheoryRow(
        tuple(t.shape or () for t in signature.inputs),
        tuple(t.shape or () for t in signature.outputs),
        one,
        cells.get(GRID_RULE) or "rule of the operator",
        extra={name: text for name, text in cells.items() if name not in known},
    )


def row_of(table: str, operator: str, row: TheoryRow) -> Row:
    """Return *row* as one that stands in *table*."""
    cells = cells_of(row)
    return Row(RowRef(table, raw_key(operator, cells), 0), cells)


def needed_columns(row: TheoryRow, header: Sequence[str]) -> dict[str, str]:
    """Return the columns that *row* has text for; the state only where the table has it."""
    return {name: text for name, text in cells_of(row).items() if text and (name != _STATE or name in header)}


class _ShapeTexts(dict[tuple[int, ...], str]):
    """The text of each shape, made once: shapes repeat far more often than rows do."""

    def __missing__(self, shape: tuple[int, ...]) -> str:
        if len(self) > _MOST_TEXTS:
            self.clear()
        text = self[shape] = ",".join(map(str, shape))
        return text


class LineWriter:
    """Writes theory rows as lines under a header; what is constant for a form is put together once."""

    def __init__(self, header: Sequence[str], newline: str) -> None:
        self._header = tuple(header)
        self._newline = newline
        self._formats: dict[object, tuple[str, Callable[[TheoryRow], tuple[str, ...]]]] = {}
        self._text_of = _ShapeTexts().__getitem__
        # Formats are found by identity (hashing a form costs more than the line): they must outlive the writer.
        self._forms: list[Form] = []

    def line(self, row: TheoryRow) -> str:
        """Return the line of *row* with its line end."""
        extra = row.extra
        key: object = id(row.form) if extra is None else (id(row.form), tuple(extra))
        found = self._formats.get(key)
        if found is None:
            self._forms.append(row.form)
            found = self._formats[key] = self._prepare(row)
        return found[0] % found[1](row)

    def _prepare(self, row: TheoryRow) -> tuple[str, Callable[[TheoryRow], tuple[str, ...]]]:
        constant = cells_of(row)
        extra, text_of = row.extra or {}, self._text_of
        fields: list[Callable[[TheoryRow], str]] = []
        columns: list[str] = []
        names: list[str] = []
        for name in self._header:
            if name == INPUT_COLUMNS[0]:
                columns.append('"""%s"""')
                names.append("in")
                fields.append(lambda r: ";".join(map(text_of, r.inputs)))
            elif name == OUTPUT_COLUMNS[0]:
                columns.append('"""%s"""')
                names.append("out")
                fields.append(lambda r: ";".join(map(text_of, r.outputs)))
            elif name == GRID_RULE:
                columns.append("%s")
                names.append("rule")
                fields.append(lambda r: _cell(r.rule))
            elif name in extra:
                columns.append("%s")
                names.append("extra")
                fields.append(lambda r, name=name: _cell((r.extra or {}).get(name, "")))  # type: ignore[misc]  # bound per column
            elif name in constant:
                columns.append(_cell(constant[name]).replace("%", "%%"))
            else:
                columns.append(_unmeasured(name))
        template = ",".join(columns) + self._newline
        if names == ["in", "out", "rule"]:
            return template, lambda r: (
                ";".join(map(text_of, r.inputs)),
                ";".join(map(text_of, r.outputs)),
                _cell(r.rule),
            )
        return template, lambda r: tuple([field(r) for field in fields])


def _unmeasured(name: str) -> str:
    """Return what stands in a column nobody has filled: 0 where a number of a measurement belongs, else nothing."""
    if name in _WORDS or name in column_meanings().key or not is_measurement(name):
        return ""
    return "0"


@lru_cache(maxsize=65536)
def _cell(text: str) -> str:
    if any(mark in text for mark in ',"\r\n'):
        return '"' + text.replace('"', '""') + '"'
    return text
