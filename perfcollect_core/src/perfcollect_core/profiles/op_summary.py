"""Read the device tasks of a profiling session out of msprof's ``op_summary`` files."""

from __future__ import annotations

import csv
import io
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from pathlib import Path

import attrs

from perfcollect_core.environment import TaskRecord
from perfcollect_core.errors import DataError

from .headers import ProfileHeader, read_header
from .layouts import CORE, DEVICE, DURATION, START, STREAM, TASK, TYPE
from .numbers import duration_fault, parse_number

__all__ = ["SessionRecords", "core_of", "find_summaries", "parse_epoch_ns", "range_name", "read_session"]

_SUMMARY = re.compile(r"op_summary.*\.csv", re.IGNORECASE)
_FOLDER = "mindstudio_profiler_output"
_RANGE_PREFIX = "perfcollect:"
_RANGE_COLUMNS = (("Device Start_time(us)", "Device End_time(us)"), ("Start_time(us)", "End_time(us)"))
_EPOCH_US = re.compile(r"[0-9]+(?:\.[0-9]*)?", re.ASCII)


@attrs.frozen
class SessionRecords:
    """The tasks of one session, in the order they started.

    Attributes:
        tasks: Device tasks, exact repetitions of one task taken once.
        files: The files they come from.
        torn: Lines that are no record, as a killed exporter leaves.
        faults: Files that could not be read, and why.
        ranges: Brackets as the profiler saw them, by the host time the worker opened them at; empty where it was not
            asked for ranges.
    """

    tasks: tuple[TaskRecord, ...] = ()
    files: tuple[Path, ...] = ()
    torn: int = 0
    faults: tuple[str, ...] = ()
    ranges: Mapping[int, tuple[int, int]] = attrs.field(factory=dict)


def find_summaries(directory: Path) -> list[Path]:
    """Return the ``op_summary`` files below *directory*: those of ``PROF_*/mindstudio_profiler_output`` alone."""
    found = []
    for folder, folders, names in os.walk(directory):
        folders.sort()
        here = Path(folder)
        if here.name == _FOLDER and here.parent.name.startswith("PROF_"):
            found += [here / name for name in sorted(names) if _SUMMARY.fullmatch(name)]
    return found


def read_session(directory: Path) -> SessionRecords:
    """Read every ``op_summary`` below *directory*; a session without one gives no task."""
    files = find_summaries(directory)
    tasks: list[TaskRecord] = []
    faults, torn = [], 0
    for path in files:
        try:
            header = read_header(path)
            found, cut = _read_file(header)
        except (DataError, OSError, UnicodeDecodeError) as error:
            faults.append(f"{path.name}: {error}")
            continue
        tasks += found
        torn += cut
    return SessionRecords(tuple(_in_order(tasks)), tuple(files), torn, tuple(faults), _ranges(files))


def range_name(start_ns: int) -> str:
    """Return the name of the range whose host bracket begins at *start_ns*."""
    return f"{_RANGE_PREFIX}{start_ns}"


def _ranges(files: Sequence[Path]) -> dict[int, tuple[int, int]]:
    """Read the ranges beside the summaries: in the device's time where it is recorded, else the host's."""
    found = {}
    for path in {other for file in files for other in file.parent.glob("msprof_tx*.csv")}:
        with path.open(encoding="utf-8-sig", newline="") as stream:
            for row in csv.DictReader(stream):
                cells = {
                    name.strip(): (text or "").strip() for name, text in row.items() if isinstance(name, str)
                }
                name = cells.get("message", cells.get("Message", ""))
                if not name.removeprefix(_RANGE_PREFIX).isdigit() or not name.startswith(_RANGE_PREFIX):
                    continue
                for start, end in _RANGE_COLUMNS:
                    times = parse_epoch_ns(cells.get(start, "")), parse_epoch_ns(cells.get(end, ""))
                    if all(times):
                        found[int(name.removeprefix(_RANGE_PREFIX))] = times
                        break
    return found


def parse_epoch_ns(text: str) -> int:
    """Parse ``Task Start Time(us)``, exactly: a float of that size has lost its fraction. 0 where it is no time."""
    plain = text.strip().strip('"').strip()
    return int(Decimal(plain) * 1000) if _EPOCH_US.fullmatch(plain) else 0


def _read_file(header: ProfileHeader) -> tuple[list[TaskRecord], int]:
    with header.path.open("rb") as stream:
        stream.seek(header.body)
        text = stream.read().decode("utf-8")
    tasks, torn = [], 0
    # Where the exporter was ended in a line, a number in it may have lost its last digits.
    whole, _, cut = text.rpartition("\n")
    torn += bool(cut.strip())
    for cells in _rows(whole):
        if len(cells) != len(header.columns):
            torn += 1
            continue
        # msprof pads times with tabs so that a spreadsheet leaves them alone.
        by_column = {name: cell.strip() for name, cell in zip(header.columns, cells, strict=True)}
        tasks.append(_task(by_column))
    return tasks, torn


def _rows(text: str) -> Iterator[list[str]]:
    for cells in csv.reader(io.StringIO(text, newline="")):
        if any(cell.strip() for cell in cells):
            yield cells


def _task(cells: dict[str, str]) -> TaskRecord:
    duration = cells[DURATION]
    device = parse_number(cells.get(DEVICE))
    return TaskRecord(
        kernel=cells[TYPE],
        start_ns=parse_epoch_ns(cells.get(START, "")),
        duration_us=None if duration_fault(duration) else parse_number(duration),
        cells=cells,
        device=-1 if device is None else int(device),
        stream=cells.get(STREAM, ""),
    )


def _in_order(tasks: Sequence[TaskRecord]) -> Iterator[TaskRecord]:
    # A session of several PROF folders may export a task twice; no device starts two at one time on one stream.
    seen = set()
    for task in sorted(tasks, key=lambda task: task.start_ns):
        identity = (
            task.start_ns,
            task.device,
            task.stream,
            task.kernel,
            task.cells.get(TASK),
            task.duration_us,
        )
        if task.start_ns and identity in seen:
            continue
        seen.add(identity)
        yield task


def core_of(task: TaskRecord) -> str:
    """Return what ran *task* (``AI_CORE``), empty where the file does not say."""
    return task.cells.get(CORE, "")
