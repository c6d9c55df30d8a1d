"""Give a table many more rows without holding them: what is there is merged with a stream in consumer order."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

import attrs

from .patch import _ColumnPlan, _edited, _ended, _plan_columns, consumer_order
from .read import Table

__all__ = ["Extension", "extended_text", "plan_extension"]


@attrs.frozen
class Extension:
    """How a table is rewritten to take more rows: ``names`` is its new heading, ``added`` its new columns."""

    table: Table
    names: tuple[str, ...]
    added: tuple[str, ...]
    _plan: _ColumnPlan = attrs.field(repr=False, alias="plan")


def plan_extension(table: Table, columns: Collection[str]) -> Extension:
    """Plan to add rows that have text in *columns* to *table*; columns it lacks come at the end."""
    plan = _plan_columns(table, [dict.fromkeys(columns, " ")])
    return Extension(table, plan.names, plan.added, plan)


def extended_text(extension: Extension, lines: Iterable[tuple[tuple[object, ...], str]]) -> Iterator[str]:
    """Yield the text of the table with *lines* among its rows, piece by piece, in consumer order.

    *lines* are (``consumer_order`` key, line with its end) in that order, under the extension's heading. The rows of
    the table keep their text, but for blank cells of new columns; of equal keys they come first.
    """
    table, plan = extension.table, extension._plan
    head, old = _old_lines(table, plan)
    yield head
    rows = iter(sorted(old, key=lambda pair: pair[0], reverse=True))
    waiting = next(rows, None)
    for key, text in lines:
        while waiting is not None and waiting[0] >= key:
            yield waiting[1]
            waiting = next(rows, None)
        yield text
    while waiting is not None:
        yield waiting[1]
        waiting = next(rows, None)
    for index, text in table._pieces:
        if index is None:
            yield _ended(text, table._newline)


def _old_lines(table: Table, plan: _ColumnPlan) -> tuple[str, list[tuple[tuple[object, ...], str]]]:
    reshape = bool(plan.added) or len(plan.sources) != len(table.header)
    renamed = {table.header[index]: name for index, name in plan.renamed.items()}
    head = table._header_text
    if reshape or renamed:
        head = _edited(head, table.header, plan, {**{name: name for name in plan.added}, **renamed})
    old: list[tuple[tuple[object, ...], str]] = []
    for index, raw in table._pieces:
        if index is not None:
            text = _edited(raw, table.header, plan, {}) if reshape else raw
            old.append((consumer_order(table.rows[index].cells), _ended(text, table._newline)))
    bom = "\ufeff" if table._bom else ""
    return bom + table._lead + _ended(head, table._newline), old
