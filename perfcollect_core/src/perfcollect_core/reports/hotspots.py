"""Rows whose measured value and profiling average disagree, and the CSV file that lists them."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Sequence

from .summary import Hotspot, RowResult

__all__ = ["CALM_RANGE", "HOTSPOT_COLUMNS", "find_hotspots", "render_hotspots"]

#: Ratios of measured to profiled inside this range are no hotspot.
CALM_RANGE = (0.8, 1.2)
HOTSPOT_COLUMNS = (
    "Operator",
    "CSV Name",
    "MicroBench(us)",
    "Profiling(us)",
    "Abs Diff(us)",
    "MB/Profile",
    "Shape",
)


def find_hotspots(results: Iterable[RowResult]) -> tuple[Hotspot, ...]:
    """Return the measured rows with a profiling average that lie outside the calm range, worst first.

    Worst is the larger of ratio and its inverse, then the difference, then the name.
    """
    found = []
    for result in results:
        measured, profiled = result.value_us, result.profiling_us
        if result.outcome.state != "measured" or not _positive(measured) or not _positive(profiled):
            continue
        assert measured is not None
        assert profiled is not None
        hotspot = Hotspot(result.operator, result.table, result.row, measured, profiled)
        if not CALM_RANGE[0] <= hotspot.ratio <= CALM_RANGE[1]:
            found.append(hotspot)
    found.sort(key=lambda h: (max(h.ratio, 1 / h.ratio), h.difference_us, h.operator), reverse=True)
    return tuple(found)


def _positive(value: float | None) -> bool:
    return value is not None and math.isfinite(value) and value > 0


def render_hotspots(hotspots: Sequence[Hotspot]) -> str:
    """Write *hotspots* as CSV text, numbers with six decimals."""
    stream = io.StringIO(newline="")
    writer = csv.writer(stream)
    writer.writerow(HOTSPOT_COLUMNS)
    for spot in hotspots:
        numbers = (spot.measured_us, spot.profiling_us, spot.difference_us, spot.ratio)
        writer.writerow((spot.operator, spot.table, *(f"{n:.6f}" for n in numbers), spot.row))
    return stream.getvalue()
