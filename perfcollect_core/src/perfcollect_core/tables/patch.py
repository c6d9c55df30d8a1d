"""Change rows of a table and nothing else: every byte that is not changed stays."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path

import attrs

from perfcollect_core.cases import RowRef
from perfcollect_core.errors import TableError
from perfcollect_core.tensors import parse_signature, split_slots

from .atomic import replace_file
from .columns import column_meanings
from .read import REQUIRED_COLUMNS, Table, read_table

__all__ = ["PatchResult", "blanked", "consumer_order", "patch_table", "write_table"]

_NEWLINE = "\r\n"
_SHAPES = ("Input Shapes", "Output Shapes")


@attrs.frozen
class PatchResult:
    """What a patch did, in rows.

    ``missing``: rows that are no longer in the table, their changes not applied. ``refused``: rows not appended
    because a shape cell does not parse (a consumer fails on the whole table for one such row), with the reason.
    ``added_columns`` stand at the end of the header, or before their ``Profiling`` twin.
    """

    updated: int = 0
    unchanged: int = 0
    added: int = 0
    deleted: int = 0
    missing: tuple[RowRef, ...] = ()
    refused: tuple[tuple[Mapping[str, str], str], ...] = ()
    added_columns: tuple[str, ...] = ()


def patch_table(
    path: Path,
    changes: Mapping[RowRef, Mapping[str, str]],
    *,
    append: Sequence[Mapping[str, str]] = (),
    delete: Collection[RowRef] = (),
    required: Sequence[str] = REQUIRED_COLUMNS,
) -> PatchResult:
    """Set cells of rows, append rows and delete rows; the caller holds the database's lock.

    Rows not named keep their bytes; in a changed row the other cells keep text and quoting. A column is added only
    where a row has text for it. With *append* the whole table goes into consumer order, without it nothing moves.
    The file is replaced in one step, and not written at all where nothing changes.

    Raises:
        TableError: The table cannot be read, or not be written; it is as it was.
    """
    table = read_table(path, required=required)
    index_of = {row.ref: index for index, row in enumerate(table.rows)}
    missing = tuple(dict.fromkeys(ref for ref in (*changes, *delete) if ref not in index_of))
    gone = {index_of[ref] for ref in delete if ref in index_of}
    edits: dict[int, dict[str, str]] = {}
    unchanged = 0
    for ref, cells in changes.items():
        if ref not in index_of or index_of[ref] in gone:
            continue
        old = table.rows[index_of[ref]].cells
        new = {column: text for column, text in cells.items() if text != old.get(column, "")}
        if new:
            edits[index_of[ref]] = new
        else:
            unchanged += 1
    rows, refused = _appendable(append)
    if not (edits or rows or gone):
        return PatchResult(unchanged=unchanged, missing=missing, refused=refused)
    plan = _plan_columns(table, [*edits.values(), *rows])
    replace_file(path, _rewritten(table, plan, edits, rows, gone).encode("utf-8"))
    return PatchResult(len(edits), unchanged, len(rows), len(gone), missing, refused, plan.added)


def blanked(table: Table, columns: Collection[str]) -> bytes:
    """Return the bytes of *table* with every cell of *columns* blank and all else as it is."""
    edits = {
        index: cells
        for index, row in enumerate(table.rows)
        if (cells := {column: "" for column in columns if row.cells.get(column)})
    }
    return _rewritten(table, _plan_columns(table, ()), edits, (), ()).encode("utf-8")


def write_table(path: Path, header: Sequence[str], rows: Iterable[Mapping[str, str]]) -> None:
    """Write a new table: UTF-8, no BOM, CRLF, inner quotes in shape cells, rows in consumer order.

    Raises:
        TableError: The file exists, a row has a shape that does not parse, or it cannot be written.
    """
    if path.exists():
        raise TableError(f"{path} exists, expected a new file", hint="remove it or choose another", path=path)
    kept, refused = _appendable(list(rows))
    if refused:
        raise TableError(f"{path}: a row cannot be written: {refused[0][1]}", path=path)
    ordered = sorted(kept, key=consumer_order, reverse=True)
    lines = [_line(header), *(_line([row.get(column, "") for column in header]) for row in ordered)]
    replace_file(path, "".join(line + _NEWLINE for line in lines).encode("utf-8"))


def consumer_order(cells: Mapping[str, str]) -> tuple[tuple[tuple[int, ...], ...], ...]:
    """Return the sort key of a row: numeric output shape, then input shape; tables are in descending order.

    The consumer takes the first row that fits, padded or not, so larger shapes must come first.
    """
    return _numbers(cells.get("Output Shapes", "")), _numbers(cells.get("Input Shapes", ""))


def _numbers(cell: str) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(int(dim) for dim in re.findall(r"[0-9]+", slot)) for slot in split_slots(cell))


def _appendable(
    rows: Sequence[Mapping[str, str]],
) -> tuple[list[dict[str, str]], tuple[tuple[Mapping[str, str], str], ...]]:
    kept, refused = [], []
    for row in rows:
        try:
            signature = parse_signature(row)
            if not any(tensor.shape is not None for tensor in signature.inputs):
                raise ValueError(f"column 'Input Shapes': no shape in {row.get('Input Shapes', '')!r}")
        except ValueError as error:
            refused.append((row, str(error)))
            continue
        kept.append({**row, **{column: _inner_quoted(row.get(column, "")) for column in _SHAPES}})
    return kept, tuple(refused)


def _inner_quoted(cell: str) -> str:
    text = cell.strip()
    return text if len(text) >= 2 and text[0] == text[-1] == '"' else f'"{text}"'


@attrs.frozen
class _ColumnPlan:
    """The new heading: for each column its old index (``None`` for a new one), and which ones are new."""

    names: tuple[str, ...]
    sources: tuple[int | None, ...]
    added: tuple[str, ...]
    renamed: Mapping[int, str]


def _plan_columns(table: Table, new_cells: Iterable[Mapping[str, str]]) -> _ColumnPlan:
    known = column_meanings()
    columns: list[tuple[str, int | None]] = [
        (name, index) for index, name in enumerate(table.header) if name not in known.dropped
    ]
    needed = dict.fromkeys(c for cells in new_cells for c, text in cells.items() if text)
    added = [column for column in needed if column not in table.header]
    for column in added:
        twin = "Profiling Average " + column.removeprefix("MicroBench ")
        names = [name for name, _ in columns]
        at = names.index(twin) if column.startswith("MicroBench ") and twin in names else len(columns)
        columns.insert(at, (column, None))
    physical = next(csv.reader(io.StringIO(table._header_text, newline="")))
    renamed = {
        index: name
        for index, name in enumerate(table.header)
        if physical[index].strip() in known.renamed and name != physical[index].strip()
    }
    return _ColumnPlan(tuple(n for n, _ in columns), tuple(s for _, s in columns), tuple(added), renamed)


def _rewritten(
    table: Table,
    plan: _ColumnPlan,
    edits: Mapping[int, Mapping[str, str]],
    appended: Sequence[Mapping[str, str]],
    gone: Collection[int],
) -> str:
    reshape = bool(plan.added) or len(plan.sources) != len(table.header)
    header_cells = {name: name for name in plan.added}
    header_edits = {table.header[index]: name for index, name in plan.renamed.items()}
    head = table._header_text
    if reshape or header_edits:
        head = _edited(head, table.header, plan, {**header_cells, **header_edits})
    pieces: list[tuple[int | None, str]] = []
    for index, raw in table._pieces:
        if index is None:
            pieces.append((None, raw))
        elif index not in gone:
            changed = edits.get(index, {})
            text = _edited(raw, table.header, plan, changed) if changed or reshape else raw
            pieces.append((index, text))
    start = ("\ufeff" if table._bom else "") + table._lead
    if not appended:
        return start + head + "".join(text for _, text in pieces)
    rows = [
        *(({**table.rows[i].cells, **edits.get(i, {})}, text) for i, text in pieces if i is not None),
        *((cells, _line([cells.get(name, "") for name in plan.names])) for cells in appended),
    ]
    rows.sort(key=lambda pair: consumer_order(pair[0]), reverse=True)
    blanks = [text for index, text in pieces if index is None]
    ended = (_ended(text, table._newline) for text in (head, *(text for _, text in rows), *blanks))
    return start + "".join(ended)


def _edited(raw: str, header: Sequence[str], plan: _ColumnPlan, changed: Mapping[str, str]) -> str:
    """Return the text of a row under the new heading, with the cells of *changed* set."""
    body = raw.rstrip("\r\n")
    tokens = _tokens(body)
    parts = []
    for name, source in zip(plan.names, plan.sources, strict=True):
        if name in changed:
            quoted = source is not None and tokens[source].startswith('"')
            parts.append(_cell(changed[name], quoted))
        else:
            parts.append("" if source is None else tokens[source])
    return ",".join(parts) + raw[len(body) :]


_TOKEN = re.compile(r'"(?:[^"]|"")*"[^,]*|[^,]*')


def _tokens(body: str) -> list[str]:
    """Split the text of a record at its commas, each cell as it is written."""
    if '"' not in body:
        return body.split(",")
    tokens, position = [], 0
    while True:
        match = _TOKEN.match(body, position)
        assert match is not None  # the pattern matches the empty text
        tokens.append(match[0])
        position = match.end() + 1
        if position > len(body):
            return tokens


def _cell(text: str, quoted: bool) -> str:
    if quoted or any(mark in text for mark in ',"\r\n'):
        return '"' + text.replace('"', '""') + '"'
    return text


def _line(cells: Sequence[str]) -> str:
    return ",".join(_cell(cell, False) for cell in cells)


def _ended(text: str, newline: str) -> str:
    return text if text.endswith(("\n", "\r")) else text + newline
