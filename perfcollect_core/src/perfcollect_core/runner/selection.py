"""Which rows of a table a run takes up: row selectors and update modes."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence

from perfcollect_core.cases import Row, RowRef
from perfcollect_core.errors import UsageError
from perfcollect_core.tables.columns import AVERAGE, PROFILING_AVERAGE, duration_us

__all__ = ["is_unmeasured", "parse_rows", "select_rows"]

_RANGE = re.compile(r"([0-9]+)(?:-([0-9]*))?", re.ASCII)


def parse_rows(selector: str) -> Callable[[int], bool]:
    """Parse ``1-50,60`` into a test of data row numbers, which count from 1 in each table; ``60-`` is open.

    Raises:
        UsageError: The selector does not parse, or names row 0.
    """
    ranges = []
    for part in filter(None, (word.strip() for word in selector.split(","))):
        match = _RANGE.fullmatch(part)
        first = int(match[1]) if match else 0
        last = first if match is None or match[2] is None else int(match[2]) if match[2] else None
        if match is None or first < 1 or (last is not None and last < first):
            raise UsageError(
                f"row selector {part!r}: expected row numbers from 1, such as 1-50,60 or 100-",
                hint="data rows are counted from 1 in each table, the header is not counted",
            )
        ranges.append((first, last))
    if not ranges:
        raise UsageError("row selector is empty: expected row numbers from 1, such as 1-50,60")
    return lambda number: any(first <= number and (last is None or number <= last) for first, last in ranges)


def is_unmeasured(row: Row) -> bool:
    """Tell whether ``missing-only`` takes a row: neither a measured nor a profiled duration."""
    return all(duration_us(row.cells.get(column)) is None for column in (AVERAGE, PROFILING_AVERAGE))


def select_rows(
    rows: Sequence[Row],
    *,
    numbers: Callable[[int], bool] | None,
    missing_only: bool,
    taken_before: Collection[RowRef] = (),
) -> tuple[list[Row], int]:
    """Return the rows a run takes up, and how many were left out because they have a valid duration.

    *taken_before* are rows an earlier part of the run measured: they were selected then and still are.
    """
    named = [row for number, row in enumerate(rows, start=1) if numbers is None or numbers(number)]
    if not missing_only:
        return named, 0
    selected = [row for row in named if is_unmeasured(row) or row.ref in taken_before]
    return selected, len(named) - len(selected)
