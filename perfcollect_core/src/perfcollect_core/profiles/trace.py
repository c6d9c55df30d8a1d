"""Turn the Chrome trace that TensorCast writes into a table, one row for each complete event."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from pathlib import Path

from perfcollect_core.errors import DataError

__all__ = ["TRACE_COLUMNS", "trace_table"]

TRACE_COLUMNS = (
    "op_name",
    "kernel_type",
    "simulation_shapes",
    "dur_us",
    "source",
    "confidence",
    "composite",
    "sub_kernel_durations",
    "kernel_shapes",
    "shape_match_rule",
    "sub_kernel_shapes",
)


def trace_table(path: Path) -> str:
    """Return the trace at *path* as CSV text with CRLF line ends; only the header where it has no ``traceEvents``.

    Raises:
        DataError: It cannot be read, or is no trace of TensorCast.
    """
    stream = io.StringIO(newline="")
    writer = csv.writer(stream)
    writer.writerow(TRACE_COLUMNS)
    writer.writerows(_rows(path))
    return stream.getvalue()


def _rows(path: Path) -> Iterator[list[object]]:
    events = _events(path)
    for number, event in enumerate(events):
        if not isinstance(event, dict):
            raise DataError(f"{path} event {number}: it is {_kind(event)}, expected an object")
        if event.get("ph") != "X":
            continue
        arguments = event.get("args", {})
        if not isinstance(arguments, dict):
            raise DataError(f"{path} event {number}: 'args' is {_kind(arguments)}, expected an object")
        cells = {**arguments, "op_name": event.get("name", ""), "dur_us": event.get("dur", 0)}
        yield [_text(cells.get(column, "")) for column in TRACE_COLUMNS]


def _events(path: Path) -> list[object]:
    try:
        trace = json.loads(path.read_bytes())
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path} is not JSON: {error}") from error
    if isinstance(trace, list):
        raise DataError(
            f"{path} is a bare array of events, expected an object with 'traceEvents'",
            hint="trace_view.json of a profiler is read by perfcollect parse's inputs kernel_details.csv and "
            "op_summary_*.csv; trace-to-csv is for TensorCast's own trace",
        )
    if not isinstance(trace, dict):
        raise DataError(f"{path} holds {_kind(trace)}, expected an object with 'traceEvents'")
    events = trace.get("traceEvents", [])
    if not isinstance(events, list):
        raise DataError(f"{path}: 'traceEvents' is {_kind(events)}, expected an array")
    return events


def _text(value: object) -> object:
    return "" if value is None else value


def _kind(value: object) -> str:
    return {dict: "an object", list: "an array", str: "text", type(None): "null"}.get(type(value), "a number")
