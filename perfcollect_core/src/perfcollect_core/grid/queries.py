"""Manifests of queries: what serving a model asks a database for, and whether its rows answer."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal

import attrs

from perfcollect_core.cases import Row, RowRef
from perfcollect_core.discovery import plugin_index
from perfcollect_core.errors import DataError, TableError
from perfcollect_core.host import compose
from perfcollect_core.loading import load_family, load_operator
from perfcollect_core.specs import Axis, GridRequest, Workload
from perfcollect_core.tables.columns import has_valid_duration
from perfcollect_core.tables.match import raw_key
from perfcollect_core.tables.read import read_table

from .axes import rows_axis
from .cells import GRID_RULE, cells_of, theory_row
from .models import ModelShapes
from .theory import TheoryRow

__all__ = [
    "Answer",
    "Query",
    "check_queries",
    "manifest_hash",
    "model_queries",
    "queries_by_operator",
    "read_queries",
    "write_queries",
]

State = Literal["exact", "interpolable", "missing"]


@attrs.frozen
class Query:
    """One row that a workload asks for; a critical one must be there exactly."""

    workload: str
    operator: str
    cells: Mapping[str, str]
    critical: bool = True

    def line(self) -> str:
        """Return the query as a line of a manifest."""
        fields = {
            "workload_id": self.workload,
            "critical": self.critical,
            "query": {"kernel": self.operator, "cells": dict(self.cells)},
        }
        return json.dumps(fields, ensure_ascii=False, sort_keys=True)


def model_queries(model: ModelShapes, loads: Sequence[Workload], request: GridRequest) -> Iterator[Query]:
    """Yield what each of *loads* asks of every installed operator, without repeats within one workload."""
    device = load_family("cpu")
    names = [name for name in plugin_index().names("operators") if not name.startswith("hcom_")]
    hosts = {name: compose(load_operator(name), device) for name in sorted(names)}
    for load in loads:
        asked = attrs.evolve(request, models=(model,), targeted=True, workloads=(load,))
        workload = f"{model.name} batch={load.batch} seq={load.seq}"
        for name, host in hosts.items():
            seen = set()
            for given in host.generate_rows(host.spec(), (), asked):
                row = given if isinstance(given, TheoryRow) else theory_row(given)  # type: ignore[arg-type]  # cells
                cells = {
                    column: text for column, text in cells_of(row).items() if text and column != GRID_RULE
                }
                key = raw_key(name, cells)
                if key not in seen:
                    seen.add(key)
                    yield Query(workload, name, cells)


def write_queries(queries: Sequence[Query], path: Path) -> str:
    """Write a manifest, one query a line, and return its SHA-256; frozen once it is written.

    Raises:
        DataError: The file exists with other queries, or cannot be written.
    """
    content = "".join(query.line() + "\n" for query in queries).encode("utf-8")
    try:
        if path.exists() and path.read_bytes() != content:
            raise DataError(
                f"{path} exists and holds other queries, expected a new file",
                hint="a manifest is frozen; name another with --queries-out",
            )
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    except OSError as error:
        raise DataError(f"queries {path} cannot be written: {error.strerror or error}") from error
    return hashlib.sha256(content).hexdigest()


def manifest_hash(path: Path) -> str:
    """Return the SHA-256 of a manifest."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def read_queries(path: Path) -> tuple[Query, ...]:
    """Read a manifest; raises ``DataError`` naming the line that is none."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeError) as error:
        raise DataError(
            f"queries {path} cannot be read: {getattr(error, 'strerror', None) or error}"
        ) from error
    found = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            fields = json.loads(line)
            query = fields["query"]
            cells = {str(column): str(text) for column, text in query["cells"].items()}
            found.append(
                Query(
                    str(fields["workload_id"]),
                    str(query["kernel"]),
                    cells,
                    bool(fields.get("critical", False)),
                )
            )
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise DataError(
                f"queries {path} line {number}: {line[:80]!r} is no query, expected workload_id, critical and query",
                hint="perfcollect grid --queries-for MODEL --queries-out FILE writes a manifest",
            ) from error
    return tuple(found)


def queries_by_operator(queries: Sequence[Query]) -> dict[str, list[dict[str, str]]]:
    """Return the cells of the critical queries by operator, each with the rule that explains its row."""
    found: dict[str, list[dict[str, str]]] = {}
    for query in queries:
        if query.critical:
            found.setdefault(query.operator, []).append({**query.cells, GRID_RULE: f"query {query.workload}"})
    return found


@attrs.frozen
class Answer:
    """Whether the rows of a table answer a query: those there are, and those with a valid duration."""

    query: Query
    planned: State
    measured: State
    reason: str = ""

    @property
    def is_short(self) -> bool:
        return self.planned == "missing" or (self.query.critical and self.planned != "exact")

    def __str__(self) -> str:
        shapes = self.query.cells.get("Input Shapes", "").strip('"')
        why = f" ({self.reason})" if self.reason else ""
        measured = "" if self.measured == self.planned else f", measured rows: {self.measured}"
        return f"{self.query.workload}: {self.query.operator} {shapes}: {self.planned}{measured}{why}"


def check_queries(database: Path, queries: Sequence[Query]) -> tuple[Answer, ...]:
    """Return an answer to every query, in their order."""
    by_operator: dict[str, list[int]] = {}
    for index, query in enumerate(queries):
        by_operator.setdefault(query.operator, []).append(index)
    answers: dict[int, Answer] = {}
    for operator, indices in by_operator.items():
        table = _rows_of(database, operator)
        if isinstance(table, str):
            answers |= {i: Answer(queries[i], "missing", "missing", table) for i in indices}
            continue
        lookup = _Lookup(operator, table)
        for index in indices:
            answers[index] = lookup.answer(queries[index])
    return tuple(answers[index] for index in range(len(queries)))


def _rows_of(database: Path, operator: str) -> Sequence[Row] | str:
    path = database / f"{operator}.csv"
    if not path.is_file():
        return f"no table {path.name}"
    try:
        return read_table(path).rows
    except TableError as error:
        return str(error)


class _Lookup:
    """Finds a query among the rows of one table, exactly or between two neighbours along one axis."""

    def __init__(self, operator: str, rows: Sequence[Row]) -> None:
        self._operator = operator
        self._axes: tuple[Axis, ...] = ()
        if plugin_index().providers("operators", operator):
            self._axes = compose(load_operator(operator), load_family("cpu")).spec().axes
        self._exact: dict[tuple[str, ...], bool] = {}
        self._buckets: dict[tuple[object, ...], list[tuple[int, bool]]] = {}
        for row in rows:
            measured = has_valid_duration(row.cells)
            key = row.ref.key
            self._exact[key] = measured or self._exact.get(key, False)
            for bucket, value in self._places(row):
                self._buckets.setdefault(bucket, []).append((value, measured))

    def _places(self, row: Row) -> Iterator[tuple[tuple[object, ...], int]]:
        at = rows_axis(self._axes, row)
        if None in at:
            return
        variant = tuple(row.get(c) for c in ("Input Data Types", "Input Formats", "Output Data Types"))
        for index, axis in enumerate(self._axes):
            value = at[index]
            if axis.continuous and value is not None:
                yield (index, variant, at[:index], at[index + 1 :]), value

    def answer(self, query: Query) -> Answer:
        key = raw_key(self._operator, query.cells)
        row = Row(RowRef("", key), query.cells)
        planned: State = "exact" if key in self._exact else self._between(row, measured=False)
        measured: State = "exact" if self._exact.get(key) else self._between(row, measured=True)
        return Answer(query, planned, measured)

    def _between(self, row: Row, *, measured: bool) -> State:
        for bucket, value in self._places(row):
            values = [v for v, done in self._buckets.get(bucket, ()) if done or not measured]
            if any(v < value for v in values) and any(v > value for v in values):
                return "interpolable"
        return "missing"
