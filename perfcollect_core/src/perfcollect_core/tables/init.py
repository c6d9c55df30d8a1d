"""Make the tables of a new database out of example rows (``perfcollect db init``)."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path

from perfcollect_core.errors import DataError

from .atomic import replace_file
from .columns import AVERAGE, BASE_COLUMNS, CORE, is_measurement
from .lock import database_lock
from .patch import write_table
from .read import is_collective_table

__all__ = ["init_database"]


def init_database(database: Path, examples: Mapping[str, Sequence[Mapping[str, str]]]) -> dict[str, int]:
    """Write ``<operator>.csv`` for each of *examples*, its rows without durations; return the rows written by file.

    Raises:
        DataError: A table is already there, or the directory cannot be made; nothing is written.
        TableError: A table cannot be written.
    """
    paths = {operator: database / f"{operator}.csv" for operator in examples}
    there = [str(path) for path in paths.values() if path.exists()]
    if there:
        raise DataError(
            f"{', '.join(there)} already exists, expected no table of that operator",
            hint="init only makes new tables; leave the operator out",
        )
    try:
        database.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(
            f"{database} cannot be created: {error.strerror}", hint="name a directory you may write"
        ) from error
    made = {}
    with database_lock(database):
        for operator, rows in examples.items():
            if is_collective_table(paths[operator]):
                replace_file(paths[operator], _collective_table(rows))
            else:
                write_table(paths[operator], _header(rows), [_unmeasured(row) for row in rows])
            made[paths[operator].name] = len(rows)
    return made


def _header(rows: Sequence[Mapping[str, str]]) -> tuple[str, ...]:
    standard = (*BASE_COLUMNS, AVERAGE)
    further = dict.fromkeys(c for row in rows for c in row if c not in standard and not is_measurement(c))
    return (*standard, *further)


def _unmeasured(row: Mapping[str, str]) -> dict[str, str]:
    cells = {column: text for column, text in row.items() if not is_measurement(column)}
    return {"OP State": "dynamic", **cells, CORE: "", AVERAGE: ""}


def _collective_table(rows: Sequence[Mapping[str, str]]) -> bytes:
    """Return a table of collectives: message sizes instead of shapes, and the columns of the rows as they are."""
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, list(dict.fromkeys(c for row in rows for c in row)), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue().encode("utf-8")
