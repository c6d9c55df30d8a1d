"""Stand in for CANN's msprof: run a program on the emulated CANN and export what it launched as op_summary tables."""

from __future__ import annotations

import csv
import fnmatch
import json
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

# A script's own directory is not on the path where PYTHONSAFEPATH is set.
sys.path.insert(0, str(Path(__file__).resolve().parent))

from columns import COUNTERS, HEADERS, RANGE_HEADER
from lowering import Kernel, Slot, lower

__all__ = ["main"]

_NOT_COLLECTED = Slot("N/A", "N/A", "N/A")


@dataclass
class _Behaviour:
    """How this msprof misbehaves; ``CANN_EMU_MSPROF`` and ``CANN_EMU_LOSE``, words separated by blanks."""

    words: set[str] = field(default_factory=set)
    values: dict[str, str] = field(default_factory=dict)
    lose_head: int = 0
    lose_tail: int = 0
    lose_rules: list[str] = field(default_factory=list)

    @classmethod
    def read(cls) -> _Behaviour:
        made = cls()
        for word in os.environ.get("CANN_EMU_MSPROF", "").split():
            name, equals, value = word.partition("=")
            made.values[name] = value
            if not equals:
                made.words.add(name)
        for word in os.environ.get("CANN_EMU_LOSE", "").split():
            name, _, value = word.partition("=")
            if name == "head":
                made.lose_head = int(value)
            elif name == "tail":
                made.lose_tail = int(value)
            else:
                made.lose_rules.append(word)
        return made


def main(arguments: Sequence[str]) -> int:
    """Run the application named by the arguments and export its records; return its exit status."""
    options, command = _split(arguments)
    if not command:
        print("[ERROR] msprof: no application: use --application= or put the command last", file=sys.stderr)
        return 1
    behaviour = _Behaviour.read()
    output = Path(options.get("output") or ".").resolve()
    output.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".msprof-", dir=output) as scratch:
        status = _run(command, Path(scratch))
        if "fail" in behaviour.words:
            print("[ERROR] msprof: profiling failed", file=sys.stderr)
            return 1
        print("[INFO] Start export data in PROF directories", flush=True)
        time.sleep(float(behaviour.values.get("slow-export", 0) or 0))
        for number, log in enumerate(sorted(Path(scratch).glob("*.jsonl")), start=1):
            _export(_profile_directory(output, number, log), log, options, behaviour)
    print(f"[INFO] Process profiling data complete. Data is saved in {output}", flush=True)
    return int(behaviour.values["rc"]) if "rc" in behaviour.values else status


def _split(arguments: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """Tell msprof's options (``--name=value`` or ``--name value`` for output) from the command that follows."""
    options: dict[str, str] = {}
    rest = list(arguments)
    while rest and rest[0].startswith("--"):
        name, equals, value = rest.pop(0)[2:].partition("=")
        if not equals and rest and name in {"output", "application"}:
            value = rest.pop(0)
        options[name] = value
    return options, rest or shlex.split(options.get("application", ""))


def _run(command: Sequence[str], scratch: Path) -> int:
    environment = {**os.environ, "CANN_EMU_PROFILE": str(scratch / "%p.jsonl")}
    try:
        process = subprocess.Popen(command, env=environment)
    except OSError as error:
        print(f"[ERROR] msprof: cannot run {command[0]}: {error}", file=sys.stderr)
        return 127

    def forward(number: int, frame: FrameType | None) -> None:
        process.send_signal(number)

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, forward)
    return process.wait() % 256


def _profile_directory(output: Path, number: int, log: Path) -> Path:
    letters = "".join(chr(ord("A") + int(digit)) for digit in log.stem.zfill(8)[-8:])
    stamp = time.strftime("%Y%m%d%H%M%S") + "000"
    directory = output / f"PROF_{number:06d}_{stamp}_{letters}"
    directory.mkdir()
    return directory


def _export(directory: Path, log: Path, options: Mapping[str, str], behaviour: _Behaviour) -> None:
    host = directory / "host"
    host.mkdir()
    (host / "sample.json").write_text(json.dumps({"options": dict(options), "pid": log.stem}))
    if "noexport" in behaviour.words:
        return
    records = [json.loads(line) for line in log.read_text().splitlines() if line.endswith("}")]
    results = directory / "mindstudio_profiler_output"
    results.mkdir()
    stamp = time.strftime("%Y%m%d%H%M%S")
    rows = _kept(list(_rows(records)), behaviour)
    header = HEADERS[behaviour.values.get("header") or "8.x"]
    unshaped = behaviour.values.get("na", "")
    parts = max(1, int(behaviour.values.get("slices", 0) or 0))
    for part in range(parts):
        name = f"op_summary_slice_{part}_{stamp}.csv" if parts > 1 else f"op_summary_{stamp}.csv"
        share = rows[part * len(rows) // parts : (part + 1) * len(rows) // parts]
        _write(results / name, header, [_cells(row, unshaped, behaviour) for row in share])
    if options.get("msproftx") == "on":
        _write(results / f"msprof_tx_{stamp}.csv", RANGE_HEADER, list(_ranges(records)))


def _rows(records: Sequence[Mapping[str, Any]]) -> Iterator[tuple[Mapping[str, Any], Kernel, int, int]]:
    """Yield record, kernel, start and duration for every row, in the order of their starts."""
    found = []
    for record in records:
        if record["kind"] in ("mstx", "hcclinit") or record.get("captured"):
            continue
        start = record["start_ns"]
        for kernel in lower(record):
            duration = record["duration_ns"] if kernel.duration_ns is None else kernel.duration_ns
            found.append((record, kernel, start, duration))
            if kernel.task_type == "COMMUNICATION":
                # The profiler shows a collective a second time, off every stream.
                found.append(({**record, "stream": "N/A"}, kernel, start, duration))
            start += duration
    return iter(sorted(found, key=lambda row: row[2]))


def _kept(rows: list[Any], behaviour: _Behaviour) -> list[Any]:
    end = len(rows) - behaviour.lose_tail
    counts: dict[str, int] = {}
    kept = []
    for position, row in enumerate(rows):
        lost = position < behaviour.lose_head or position >= end
        for rule in behaviour.lose_rules:
            lost = _is_lost(rule, row, counts) or lost
        if not lost:
            kept.append(row)
    return kept


def _is_lost(rule: str, row: Any, counts: dict[str, int]) -> bool:
    """Apply one ``NAME[SHAPES]@NTH`` rule; the name is an API's or a kernel's."""
    record, kernel, _, _ = row
    pattern, _, nth = rule.partition("@")
    name, bracket, shapes = pattern.partition("[")
    if not any(fnmatch.fnmatchcase(text, name) for text in (record["name"], kernel.op_type)):
        return False
    if bracket and not f"{record.get('shapes', '')};".startswith(f"{shapes.rstrip(']')};"):
        return False
    counts[rule] = counts.get(rule, 0) + 1
    return not nth or counts[rule] == int(nth)


def _cells(row: Any, unshaped: str, behaviour: _Behaviour) -> dict[str, str]:
    record, kernel, start_ns, duration_ns = row
    inputs, outputs = kernel.inputs, kernel.outputs
    if kernel.task_type == "COMMUNICATION" or (unshaped and fnmatch.fnmatchcase(kernel.op_type, unshaped)):
        inputs = outputs = (_NOT_COLLECTED,)
    duration = f"{duration_ns / 1000:.3f}"
    cells = {
        "Device_id": str(record["device"]),
        "Model ID": "4294967295",
        "Task ID": str(record["seq"]),
        "Stream ID": str(record["stream"]),
        "Op Name": f"{record['name']}_{kernel.op_type}_{kernel.op_type}",
        "OP Type": kernel.op_type,
        "OP State": "N/A" if kernel.task_type == "COMMUNICATION" else "dynamic",
        "Task Type": kernel.task_type,
        "Task Start Time(us)": f"{start_ns // 1000}.{start_ns % 1000:03d}\t",
        "Task Duration(us)": duration,
        "Task Wait Time(us)": "0.500",
        "Block Dim": "24",
        "Block Num": "24",
        "Mix Block Dim": "48" if kernel.task_type.startswith("MIX") else "0",
        "Mix Block Num": "48" if kernel.task_type.startswith("MIX") else "0",
        "HF32 Eligible": "NO",
        "Input Shapes": _shapes(inputs, behaviour),
        "Input Data Types": ";".join(slot.dtype for slot in inputs),
        "Input Formats": ";".join(slot.format for slot in inputs),
        "Output Shapes": _shapes(outputs, behaviour),
        "Output Data Types": ";".join(slot.dtype for slot in outputs),
        "Output Formats": ";".join(slot.format for slot in outputs),
        "Context ID": "N/A",
    }
    return {**cells, **_counters(kernel.task_type, duration_ns / 1000)}


def _shapes(slots: Sequence[Slot], behaviour: _Behaviour) -> str:
    if slots == (_NOT_COLLECTED,):
        return "N/A"
    text = ";".join(slot.shape for slot in slots)
    return text if "plain-quotes" in behaviour.words else f'"{text}"'


def _counters(task_type: str, duration_us: float) -> dict[str, str]:
    """Return invented counters: shares of the duration for the core that ran, ``N/A`` where nothing is collected."""
    if task_type in {"COMMUNICATION", "AI_CPU"}:
        return dict.fromkeys(COUNTERS, "N/A")
    cells = {}
    for name in COUNTERS:
        cube = not name.startswith("aiv")
        runs = task_type.startswith("MIX") or cube == (task_type == "AI_CORE")
        if not runs:
            cells[name] = "0"
        elif name.endswith("_cycles"):
            cells[name] = str(round(duration_us * 1850))
        elif name.endswith("(us)"):
            cells[name] = (
                f"{duration_us * (0.9 if 'aic' + 'ore' in name or name == 'aiv_time(us)' else 0.25):.3f}"
            )
        else:
            cells[name] = "40.5" if name.endswith("(%)") else "0.25"
    return cells


def _ranges(records: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, str]]:
    starts = {}
    for record in records:
        if record["kind"] != "mstx":
            continue
        if record["name"] == "range_start":
            starts[record["id"]] = record
        elif record["name"] == "range_end" and record["id"] in starts:
            yield _range(starts.pop(record["id"]), record, "start/end")
        elif record["name"] == "mark":
            yield _range(record, record, "marker")
    for record in starts.values():
        yield _range(record, record, "start/end")


def _range(start: Mapping[str, Any], end: Mapping[str, Any], event: str) -> dict[str, str]:
    def device(record: Mapping[str, Any]) -> str:
        return f"{record['device_ns'] / 1000:.3f}\t" if "device_ns" in record else "N/A"

    return {
        "pid": str(start["pid"]),
        "tid": str(start["tid"]),
        "category": "0",
        "event_type": event,
        "payload_type": "0",
        "payload_value": "0",
        "Start_time(us)": f"{start['host_ns'] // 1000}.{start['host_ns'] % 1000:03d}\t",
        "End_time(us)": f"{end['host_ns'] // 1000}.{end['host_ns'] % 1000:03d}\t",
        "message_type": "0",
        "message": start["message"],
        "domain": start.get("domain", "default"),
        "Device Start_time(us)": device(start),
        "Device End_time(us)": device(end),
    }


def _write(path: Path, header: Sequence[str], rows: Sequence[Mapping[str, str]]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, header, extrasaction="ignore", restval="N/A", lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
