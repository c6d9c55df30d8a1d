"""What the runner itself costs: overhead a case, device-busy share, sharding, planning of a resumed run."""

from __future__ import annotations

import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from figures import Figure
from simulated_runs import OPERATOR, RunTimes, install_operator, make_database, run_on

from perfcollect_core.runner.journal import JOURNAL_NAME
from perfcollect_core.runner.protocol import encode_row
from perfcollect_core.tables.identity import adopt_identity
from perfcollect_core.tables.read import read_table

__all__ = ["runner_figures"]

#: Starting a Python process is not what is measured: the first results of a worker come with imports.
_SETTLE = 50


def runner_figures(full: bool) -> list[Figure]:
    """Measure everything of this module; about a minute, three with *full*."""
    with tempfile.TemporaryDirectory(prefix="perfcollect-benchmark-") as directory:
        root = Path(directory)
        install_operator(root / "site")
        return [
            *overhead(root, 10_000 if full else 3_000),
            *busy_share(root, 8.0 if full else 4.0),
            *sharding(root, short_ms=20.0 if full else 10.0, longs=16 if full else 8),
            resume_plan(root),
        ]


def overhead(root: Path, cases: int) -> list[Figure]:
    """Time between the end of a kernel and the begin of the next one on the device, kernels that do nothing.

    The record of each case is on disk before the run ends; a run that could not keep up would let the device wait.
    """
    times = run_on(make_database(root / "overhead", [0.0] * cases), "timednoop")
    gaps = sorted(gap * 1e3 for gap in times.gaps_seconds[_SETTLE:])
    mean = (times.ended[-1] - times.ended[_SETTLE]) / (cases - 1 - _SETTLE) * 1e3
    p50, p99 = statistics.median(gaps), gaps[int(0.99 * len(gaps))]
    floor = _floor_ms(root, cases)
    note = (
        f"gaps between {cases} no-op kernels; mean time from one durable record to the next {mean:.2f} ms; a bare pipe "
        f"round trip with append and fsync on this machine right now: p50 {statistics.median(floor):.2f} ms, "
        f"p99 {floor[int(0.99 * len(floor))]:.2f} ms"
    )
    return [
        Figure("core overhead a case, p50", f"{p50:.2f} ms", "<= 1 ms", p50 <= 1.0),
        Figure("core overhead a case, p99", f"{p99:.2f} ms", "<= 5 ms", p99 <= 5.0, note),
    ]


def _floor_ms(root: Path, count: int) -> list[float]:
    """Return the sorted times of what no runner can do without: ask a process, append its answer, sync the file."""
    echo = "import sys\nfor line in sys.stdin:\n    sys.stdout.write(line)\n    sys.stdout.flush()"
    child = subprocess.Popen(
        [sys.executable, "-c", echo], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0
    )
    assert child.stdin is not None
    assert child.stdout is not None
    times = []
    with (root / "floor.jsonl").open("ab", buffering=0) as journal:
        for _ in range(count):
            began = time.perf_counter()
            child.stdin.write(b"x" * 400 + b"\n")
            journal.write(child.stdout.readline())
            os.fsync(journal.fileno())
            times.append((time.perf_counter() - began) * 1e3)
    child.stdin.close()
    child.stdout.close()
    child.wait()
    return sorted(times)


def busy_share(root: Path, seconds: float) -> list[Figure]:
    """Share of the device's time in which a kernel ran."""
    figures = []
    for kernel_ms, target in ((20.0, 0.95), (2.0, 0.80)):
        count = int(seconds * 1000 / kernel_ms)
        share = run_on(make_database(root / f"busy{kernel_ms:g}", [kernel_ms] * count), "sleeping").busy_share
        figures.append(
            Figure(
                f"device-busy share, {kernel_ms:g} ms kernels",
                f"{share:.1%}",
                f">= {target:.0%}",
                share >= target,
                f"{count} cases of one launch each, first to last result and the wait for the first included",
            )
        )
    return figures


def sharding(root: Path, short_ms: float, longs: int) -> list[Figure]:
    """Speed-up over simulated devices with case times skewed 100:1, all in one run of this script."""
    sleeps = [100 * short_ms] * longs + [short_ms] * (longs * 100)
    random.Random(4).shuffle(sleeps)
    runs: dict[int, RunTimes] = {}
    for devices in (8, 1, 2):
        runs[devices] = run_on(make_database(root / f"shard{devices}", sleeps), "sleeping", devices)
    figures = []
    for devices, target in ((2, 1.9), (8, 7.2)):
        one, many = runs[1], runs[devices]
        started = one.wall_seconds / many.wall_seconds
        # Relative to one device that is busy as much of its time as the single one was.
        steady = devices * many.busy_share / one.busy_share
        figures.append(
            Figure(
                f"sharding over {devices} devices",
                f"{steady:.2f}x",
                f">= {target}x",
                steady >= target,
                f"{len(sleeps)} cases of {short_ms:g} ms and {100 * short_ms:g} ms, {sum(sleeps) / 1000:.0f} s of "
                f"kernels; {started:.2f}x with the start of {devices} workers on {os.cpu_count()} processors",
            )
        )
    return figures


def resume_plan(root: Path, cases: int = 50_000, done: int = 49_000) -> Figure:
    """Time and memory of planning a run that is nearly through, in a process of its own."""
    database = make_database(root / "resume", [0.0] * cases)
    run_dir = database / "reports/runs/earlier"
    _write_journal(database, run_dir, done)
    command = "from perfcollect_core.cli import main; main()"
    argv = [sys.executable, "-c", command, "run", "--resume", str(run_dir), "--dry-run", "--format", "json"]
    script = (
        "import json, resource, subprocess, sys, time\n"
        "began = time.perf_counter()\n"
        "done = subprocess.run(sys.argv[1:], capture_output=True, text=True)\n"
        "spent = time.perf_counter() - began\n"
        "used = resource.getrusage(resource.RUSAGE_CHILDREN)\n"
        "print(json.dumps([spent, used.ru_utime + used.ru_stime, used.ru_maxrss, done.returncode, done.stdout, done.stderr]))\n"
    )
    env = {**os.environ, "PYTHONPATH": str(root / "site")}
    answer = subprocess.run(
        [sys.executable, "-c", script, *argv], env=env, capture_output=True, text=True, check=True
    )
    spent, cpu, peak_kib, code, out, err = json.loads(answer.stdout)
    if code != 0:
        raise RuntimeError(f"planning the resumed run ended with {code}: {err.strip() or out.strip()}")
    plan = json.loads(out)
    left = sum(entry["cases"] for entry in plan["operators"])
    if (left, plan["measured_before"]) != (cases - done, done):
        raise RuntimeError(
            f"planned {left} cases and {plan['measured_before']} done, expected {cases - done} and {done}"
        )
    peak = peak_kib / 1024
    return Figure(
        f"resume plan of {cases} cases, {done} done",
        f"{spent:.1f} s, {peak:.0f} MiB",
        "<= 5 s, <= 300 MiB",
        spent <= 5.0 and peak <= 300.0,
        f"whole process of `perfcollect run --resume RUN --dry-run`; {cpu:.1f} s of processor time",
    )


def _write_journal(database: Path, run_dir: Path, done: int) -> None:
    """Write what a run that measured the first *done* rows would have left."""
    run_dir.mkdir(parents=True)
    # The run would have said what the database holds before its first case.
    adopt_identity(database, family="noop", device="NOOP")
    rows = read_table(database / f"{OPERATOR}.csv").rows
    samples = {"us": [round(20.0 + 0.1 * (i % 5), 4) for i in range(30)], "stop": "precision", "launches": 30}
    statistic = {"n": 30, "min": 20.0, "p10": 20.0, "median": 20.2, "mean": 20.2, "mad": 0.1}
    with (run_dir / JOURNAL_NAME).open("w", encoding="utf-8") as stream:
        start = {
            "kind": "run",
            "id": run_dir.name,
            "tool": "perfcollect",
            "database": str(database.resolve()),
            "family": "noop",
            "devices": [[0, "NOOP"]],
            "versions": {},
            "started_at": time.time(),
            "options": {"operators": [OPERATOR]},
            "cases": len(rows),
            "done_before": 0,
        }
        stream.write(json.dumps(start) + "\n")
        for row in rows[:done]:
            line = {
                "kind": "measured",
                "row": encode_row(row.ref),
                "operator": OPERATOR,
                "device": 0,
                "environment": 0,
                "seed": 1,
                "samples": samples,
                "statistics": statistic,
                "statistic": "median",
                "observed": OPERATOR,
                "core": "SIMULATED",
                "with": "noop, perfcollect, median, n=30",
            }
            stream.write(json.dumps(line, separators=(",", ":")) + "\n")
