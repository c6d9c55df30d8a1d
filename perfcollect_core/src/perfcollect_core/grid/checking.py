"""Judge the tables of a database by the density standard (``perfcollect db check --density``)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from perfcollect_core.discovery import plugin_index
from perfcollect_core.errors import TableError
from perfcollect_core.host import read_spec
from perfcollect_core.loading import load_operator
from perfcollect_core.specs import Axis
from perfcollect_core.tables.read import read_table, table_paths

from .coverage import AxisCoverage, CoverageMeter, TableCoverage
from .data_only import DATA_ONLY
from .standard import AxisStandard

__all__ = ["HEADER", "coverage_lines", "database_coverage"]


def database_coverage(
    database: Path, standards: Mapping[str, AxisStandard]
) -> tuple[tuple[TableCoverage, ...], dict[str, str]]:
    """Return the coverage of every table whose axes are known, and why the others are not judged.

    Raises:
        DataError: The directory cannot be read, or the standard lacks an axis.
    """
    known = set(plugin_index().names("operators"))
    found, skipped = [], {}
    for path in table_paths(database):
        if path.stem not in known and path.stem not in DATA_ONLY:
            skipped[path.name] = "no operator of that name is installed"
            continue
        axes = _axes(path.stem, path.stem in known)
        if not any(axis.standard for axis in axes):
            skipped[path.name] = f"operator {path.stem} has no axis under the standard"
            continue
        meter = CoverageMeter(axes, standards)
        try:
            for row in read_table(path).rows:
                meter.add(row)
        except TableError as error:
            skipped[path.name] = f"cannot be read: {error}"
            continue
        found.append(meter.result(path.name))
    return tuple(found), skipped


def _axes(name: str, installed: bool) -> tuple[Axis, ...]:
    return read_spec(load_operator(name)).axes if installed else DATA_ONLY[name].axes


def coverage_lines(tables: Sequence[TableCoverage]) -> list[tuple[str, ...]]:
    """Return a line of cells for each axis: planned over all rows, and measured beside it in brackets."""
    lines: list[tuple[str, ...]] = []
    for table in tables:
        for planned, measured in zip(table.planned, table.measured, strict=True):
            lines.append(
                (
                    table.table,
                    planned.axis,
                    f"{_anchors(planned)} ({_anchors(measured)})",
                    "yes" if planned.ends_present else "no",
                    f"{planned.violating_pairs} ({measured.violating_pairs})",
                    f"{planned.buckets}",
                    f"{planned.points / planned.buckets:.1f}" if planned.buckets else "-",
                    f"{planned.compliant}/{planned.owned} ({measured.compliant}/{measured.owned})",
                )
            )
    return lines


def _anchors(axis: AxisCoverage) -> str:
    return f"{axis.anchors - len(axis.anchors_missing)}/{axis.anchors}"


HEADER = ("Table", "Axis", "Required", "Ends", "Holes", "Buckets", "Points", "Compliant")
