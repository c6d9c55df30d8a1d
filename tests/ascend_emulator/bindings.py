"""Replay the sample database on emulated NPUs and hold what was launched against what its rows record.

What torch_npu passed to CANN comes from the emulator's own log, not from perfcollect; the kernels and slots come from
the stand-in profiler's table of launches.
"""

from __future__ import annotations

import csv
import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from perfcollect_core.profiles.op_summary import read_session
from perfcollect_core.tensors import NZ, TensorSpec, nz_storage_shape, parse_signature

__all__ = ["DEVICE", "SAMPLES", "Comparison", "compare", "derive", "fixed_durations", "replay", "run_command"]

SAMPLES = Path(__file__).resolve().parents[2] / "samples" / "database"
DEVICE = "ATLAS_800_A3_752T_128G_DIE"
#: ACL's numbers of the dtypes rows name.
ACL_DTYPES = {
    0: "FLOAT",
    1: "FLOAT16",
    2: "INT8",
    3: "INT32",
    4: "UINT8",
    6: "INT16",
    9: "INT64",
    10: "UINT64",
    11: "DOUBLE",
    12: "BOOL",
    27: "BF16",
    29: "INT4",
}
ACL_NZ = 29
#: Every launch takes its own whole number of quarter microseconds, so that a duration tells which one it is of.
FIRST_US, STEP_US = 20.0, 0.25
COMMAND = (sys.executable, "-c", "import sys; from perfcollect_core.cli import main; sys.exit(main())")


@dataclass
class Row:
    """A measured row: how its slots and its operands compare, and its duration beside the fixed one."""

    operator: str
    key: Sequence[str]
    written_us: str
    fixed_us: float
    slots: str
    missing: list[str]
    further: int
    launched: str


@dataclass
class Comparison:
    """The measured rows and those that failed or were skipped, with their reasons."""

    rows: list[Row] = field(default_factory=list)
    failed: list[tuple[str, Sequence[str], str]] = field(default_factory=list)

    def operators(self) -> list[str]:
        return sorted({row.operator for row in self.rows})


def run_command(
    *arguments: str, env: Mapping[str, str], timeout: float = 900
) -> subprocess.CompletedProcess[str]:
    """Run perfcollect in this interpreter's environment."""
    return subprocess.run(
        [*COMMAND, *arguments], env=dict(env), capture_output=True, text=True, timeout=timeout, check=False
    )


def derive(database: Path, env: Mapping[str, str], operators: Sequence[str] = ()) -> None:
    """Derive the sample database for the emulated device, of *operators* only where some are named."""
    done = run_command("db", "derive", str(SAMPLES), str(database), "--device", DEVICE, "--emulated", env=env)
    if done.returncode:
        raise RuntimeError(done.stderr)
    for table in database.glob("*.csv"):
        if operators and table.stem not in operators:
            table.unlink()


def fixed_durations() -> dict[str, float]:
    """Return a duration of its own for every launch the stand-in profiler knows."""
    from lowering import _RULES

    return {name: FIRST_US + STEP_US * index for index, name in enumerate(sorted(_RULES))} | {"*": 13.0}


def replay(
    database: Path, env: Mapping[str, str], *options: str, devices: int = 1
) -> subprocess.CompletedProcess[str]:
    """Measure *database* on so many emulated devices, durations fixed, profiles kept."""
    rules = " ".join(f"{name}={value}" for name, value in fixed_durations().items())
    logs = database.parent / f"{database.name}_launches"
    shutil.rmtree(logs, ignore_errors=True)
    logs.mkdir()
    more = {
        "CANN_EMU_DEVICES": str(devices),
        "CANN_EMU_DURATIONS": rules,
        "CANN_EMU_LOG": str(logs / "%p.jsonl"),
    }
    command = ("run", "--database-path", str(database), "--family", "ascend", "--keep-profiles", *options)
    return run_command(*command, env={**env, **more})


def compare(database: Path) -> Comparison:
    """Hold the last run of *database* against its rows."""
    run_dir = max((database / "reports" / "runs").iterdir())
    lines = [json.loads(line) for line in (run_dir / "journal.jsonl").read_text().splitlines()]
    launches = sorted(_launches(database.parent / f"{database.name}_launches"), key=lambda r: r["start_ns"])
    tasks = {
        folder.name: read_session(folder).tasks
        for folder in (run_dir / "profiles").glob("device_*")
        if folder.is_dir()
    }
    table_rows = {path.name: _read(path) for path in database.glob("*.csv")}
    launched = {json.dumps(line["row"]): line for line in lines if line["kind"] == "launched"}
    found = Comparison()
    for line in lines:
        where = line.get("row")
        if line["kind"] == "failed":
            found.failed.append((line["operator"], where[1], f"{line['failure']}: {line['reason']}"))
        if line["kind"] != "measured":
            continue
        visit = launched[json.dumps(where)]
        low, high = visit["window_ns"]
        inside = [r for r in launches if low <= r["start_ns"] <= high and r["device"] == visit["device"]]
        own = [
            t for t in tasks[visit["session"]] if low <= t.start_ns <= high and t.kernel == line["observed"]
        ]
        row = [r for r in table_rows[where[0]] if _same(r, where[1])][where[2]]
        found.rows.append(_row(line, row, inside, own, visit["launches"]))
    return found


def _row(
    line: Mapping[str, Any],
    cells: Mapping[str, str],
    inside: Sequence[Mapping[str, Any]],
    own: Sequence[Any],
    count: int,
) -> Row:
    signature = parse_signature(cells)
    wanted = Counter(_tensor_of_slot(spec) for spec in signature.inputs if spec.shape is not None)
    # What is written in place is an operand too, and is passed once.
    wanted |= Counter(_tensor_of_slot(spec) for spec in signature.outputs if spec.shape is not None)
    once = inside[: max(1, len(inside) // max(1, count))]
    passed = Counter(tensor for record in once for tensor in _tensors(record))
    lists = {length for record in once for length in _list_lengths(record)}
    missing = _missing(wanted, passed, lists)
    name = once[0]["name"] if once else "nothing"
    durations = {task.duration_us for task in own}
    return Row(
        operator=line["operator"],
        key=line["row"][1],
        written_us=cells["Average Duration(us)"],
        fixed_us=durations.pop() if len(durations) == 1 else -1.0,
        slots=_slot_difference(signature, own[0].cells) if own else "no task",
        missing=missing,
        further=max(0, sum(passed.values()) - sum(wanted.values())),
        launched="+".join(dict.fromkeys(record["name"] for record in once)) or name,
    )


def _slot_difference(row: Any, task_cells: Mapping[str, str]) -> str:
    """Return how the profiled slots differ from the row's, empty where every slot is equal and every absent one absent."""
    task = parse_signature(task_cells)
    for side, ours, theirs in (("input", row.inputs, task.inputs), ("output", row.outputs, task.outputs)):
        for index in range(max(len(ours), len(theirs))):
            mine = ours[index] if index < len(ours) else TensorSpec()
            other = theirs[index] if index < len(theirs) else TensorSpec()
            if _base(mine) != _base(other):
                return f"{side} {index}: row {_words(mine)}, launched {_words(other)}"
    return ""


def _base(spec: TensorSpec) -> tuple[Any, ...]:
    if spec.shape is None:
        return (None, bool(spec.dtype))
    return _tensor_of_slot(spec)


def _words(spec: TensorSpec) -> str:
    return "absent" if spec.is_absent else f"{spec.shape} {spec.dtype} {spec.format}"


def _tensor_of_slot(spec: TensorSpec) -> tuple[tuple[int, ...], str, bool]:
    shape = spec.shape or ()
    if spec.format == NZ and not spec.is_nz_storage and len(shape) >= 2:
        shape = nz_storage_shape(shape, spec.dtype)
    return shape, spec.dtype, spec.format == NZ


def _tensors(record: Mapping[str, Any]) -> Iterator[tuple[tuple[int, ...], str, bool]]:
    for argument in (*record.get("args", ()), *record.get("outputs", ())):
        if not isinstance(argument, dict):
            continue
        for tensor in argument.get("tensors", [argument]):
            if isinstance(tensor, dict) and "view" in tensor:
                stored = tensor.get("format") == ACL_NZ
                shape = tuple(tensor["storage"] if stored else tensor["view"])
                yield shape, ACL_DTYPES.get(tensor["dtype"], str(tensor["dtype"])), stored


def _list_lengths(record: Mapping[str, Any]) -> Iterator[int]:
    """Yield the lengths of the lists a call takes from the host, which the profiler shows as small tensors."""
    for argument in record.get("args", ()):
        if isinstance(argument, dict):
            yield from (len(argument[kind]) for kind in ("ints", "bools") if kind in argument)


def _missing(wanted: Counter[Any], passed: Counter[Any], lists: set[int]) -> list[str]:
    """Return the row's tensors that no argument is.

    A transposed view of a stored tensor counts as what it stores, a list of the host as the small tensor the kernel
    takes of it, and indices as the narrower ones the kernel gives.
    """
    left = wanted - passed
    views: Counter[Any] = Counter()
    for (shape, dtype, stored), count in passed.items():
        if len(shape) >= 2 and not stored:
            views[((*shape[:-2], shape[-1], shape[-2]), dtype, stored)] += count
        if dtype == "INT64":
            views[(shape, "INT32", stored)] += count
    left -= views
    return [
        f"{'x'.join(map(str, shape))} {dtype}{' NZ' if nz else ''}"
        for shape, dtype, nz in left.elements()
        # Axes, paddings, permutations: the kernel's own tensors, which no caller passes as such.
        if not (len(shape) == 1 and dtype.startswith("INT") and (shape[0] in lists or shape[0] <= 4))
    ]


def _launches(directory: Path) -> Iterator[dict[str, Any]]:
    for path in sorted(directory.glob("*.jsonl")):
        for line in path.read_text().splitlines():
            record = json.loads(line)
            if record["kind"] in ("aclnn", "aclop", "atb", "hccl") or (
                record["kind"] == "memcpy" and "start_ns" in record
            ):
                yield record


def _read(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8-sig", newline="") as file:
        return list(csv.DictReader(file))


def _same(cells: Mapping[str, str], key: Sequence[str]) -> bool:
    # The raw key begins with the type and the six columns in one spelling.
    from perfcollect_core.tables.match import raw_key

    return raw_key(key[0], cells) == tuple(key)


def environment() -> dict[str, str]:
    """Return the environment of the emulated CANN beside this process's own."""
    from build import build
    from build import environment as of

    return {**os.environ, **of(build())}
