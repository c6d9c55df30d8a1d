"""Real runs (plan, workers, journal, tables) of kernels that do nothing or sleep, with the time of every message."""

from __future__ import annotations

import itertools
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import attrs
from timed_family import BEGAN, ENDED

from perfcollect_core.executors.local import LocalExecutor
from perfcollect_core.loading import load_family
from perfcollect_core.runner.context import RunContext
from perfcollect_core.runner.execution import Said, WorkerEvent, WorkerOrder
from perfcollect_core.runner.launch import execute
from perfcollect_core.runner.options import RunOptions
from perfcollect_core.runner.plan import build_plan
from perfcollect_core.runner.protocol import Message
from perfcollect_core.tables.patch import write_table
from perfcollect_core.testing import write_distribution
from perfcollect_core.testing.simulated import DEVICES_VARIABLE

__all__ = ["OPERATOR", "RunTimes", "install_operator", "make_database", "run_on"]

OPERATOR = "BenchmarkKernel"
_COLUMNS = ("Input Shapes", "Input Data Types", "Output Shapes", "Output Data Types", "Fault", "Sleep Ms")


def install_operator(site: Path) -> None:
    """Make the simulated families and their operator findable in this process and its workers."""
    groups = {
        "operators": {OPERATOR: "perfcollect_core.testing.faults:operator"},
        "families": {
            "noop": "perfcollect_core.testing.simulated:noop",
            "sleeping": "perfcollect_core.testing.simulated:sleeping",
            "timednoop": "timed_family:timed_noop",
        },
    }
    write_distribution(site, "perfcollect-benchmarks", "1.0", groups)
    sys.path.append(str(site))


def make_database(directory: Path, sleeps_ms: Sequence[float]) -> Path:
    """Write a table with one row for each kernel."""
    directory.mkdir(parents=True)
    rows = [
        dict(zip(_COLUMNS, (f"{i + 1},8", "FLOAT", f"{i + 1},8", "FLOAT", "ok", f"{ms:g}"), strict=True))
        for i, ms in enumerate(sleeps_ms)
    ]
    write_table(directory / f"{OPERATOR}.csv", _COLUMNS, rows)
    return directory


@attrs.define
class RunTimes:
    """When things happened, in seconds of one clock.

    Attributes:
        started: The run was asked for; planning is over.
        ready: Worker -> when it was ready.
        ended: When each case's result was durable, in order.
        kernel_seconds: Time all kernels took by the family's own clock.
        gaps_seconds: Time between the end of a kernel and the begin of the next, in order, where the family says.
        devices: How many there were.
    """

    devices: int
    started: float = 0.0
    ready: dict[int, float] = attrs.field(factory=dict)
    ended: list[float] = attrs.field(factory=list)
    kernel_seconds: float = 0.0
    gaps_seconds: list[float] = attrs.field(factory=list)

    @property
    def wall_seconds(self) -> float:
        return self.ended[-1] - self.started

    @property
    def busy_share(self) -> float:
        """Kernel time over the time the devices were open, from each worker's start to the last result."""
        return self.kernel_seconds / sum(self.ended[-1] - ready for ready in self.ready.values())


@attrs.define
class _Recorder:
    """A local executor that notes when workers become ready; also the plugin that opens it."""

    times: RunTimes
    inner: LocalExecutor = attrs.field(init=False)

    def open_executor(self, run_dir: Path) -> _Recorder:
        self.inner = LocalExecutor(run_dir)
        return self

    def start(self, order: WorkerOrder) -> int:
        return self.inner.start(order)

    def send(self, worker: int, message: Message) -> None:
        self.inner.send(worker, message)

    def events(self, timeout_seconds: float) -> Sequence[WorkerEvent]:
        found = self.inner.events(timeout_seconds)
        for event in found:
            if isinstance(event, Said) and event.message.get("kind") == "ready":
                self.times.ready[event.worker] = time.perf_counter()
        return found

    def stop(self, worker: int, *, force: bool = False) -> None:
        self.inner.stop(worker, force=force)

    def close(self) -> None:
        self.inner.close()


def run_on(database: Path, family: str, devices: int = 1) -> RunTimes:
    """Run the whole table and return its times.

    Raises:
        RuntimeError: A case was not measured: its figures would be of something else.
    """
    os.environ[DEVICES_VARIABLE] = str(devices)
    loaded = load_family(family)
    options = RunOptions(operators=(OPERATOR,))
    plan = build_plan(database, options, loaded)
    if plan.skips or not plan.cases:
        raise RuntimeError(f"{len(plan.skips)} benchmark cases were skipped: {plan.skips[:1]}")
    times = RunTimes(devices)
    recorder = _Recorder(times)
    context = RunContext(
        database=database,
        run_dir=database / "reports/runs" / f"{family}-{devices}",
        family=loaded,
        devices=loaded.plugin.probe().devices,  # type: ignore[attr-defined]  # a device family
        versions={},
        executor=recorder,
    )

    def note(result: object) -> None:
        times.ended.append(time.perf_counter())

    times.started = time.perf_counter()
    outcome = execute(plan, options, context, (), on_result=note)
    if outcome.run_error or outcome.write_error:
        raise RuntimeError("the benchmark's run failed") from (outcome.run_error or outcome.write_error)
    calls: list[tuple[float, float]] = []
    for result in outcome.campaign.results:
        if result.measurement is None:
            raise RuntimeError(f"a benchmark case ended as {result.outcome}")
        times.kernel_seconds += result.measurement.statistics.mean * result.measurement.statistics.n * 1e-6
        counters = result.measurement.samples.counters
        if BEGAN in counters:
            calls.append((counters[BEGAN], counters[ENDED]))
    calls.sort()
    times.gaps_seconds = [after[0] - before[1] for before, after in itertools.pairwise(calls)]
    if len(times.ended) != len(plan.cases):
        raise RuntimeError(f"{len(times.ended)} of {len(plan.cases)} benchmark cases ended")
    return times
