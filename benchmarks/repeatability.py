"""Run-to-run spread of the value we store beside the best protocols written by hand, interleaved in one script.

Every process measures each kernel with our loop and by hand, in random order; the coefficient of variation is taken over
processes. `python repeatability.py --visit SEED` is such a process and prints its values as JSON.
"""

from __future__ import annotations

import json
import os
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from figures import Figure

__all__ = ["repeatability_figures"]

#: Kernel -> statistic that is compared, in words, and the inner loop the hand protocol uses.
KERNELS = {"GEMM 320^3": ("median", 1), "copy 16 MB": ("median", 1), "tiny add": ("p10", 200)}
HAND_COUNTS = (30, 300)


def _kernels() -> dict[str, Callable[[], object]]:
    import torch

    generator = torch.Generator().manual_seed(1)
    left, right = (torch.randn(320, 320, generator=generator) for _ in range(2))
    source, target = torch.randn(4 << 20, generator=generator), torch.empty(4 << 20)
    small, out = torch.randn(64, generator=generator), torch.empty(64)
    return {
        "GEMM 320^3": lambda: torch.mm(left, right),
        "copy 16 MB": lambda: target.copy_(source),
        "tiny add": lambda: torch.add(small, 1.0, out=out),
    }


def _by_hand(call: Callable[[], object], count: int, inner: int) -> list[float]:
    for _ in range(10):
        call()
    durations = []
    for _ in range(count):
        start = time.perf_counter_ns()
        for _ in range(inner):
            call()
        durations.append((time.perf_counter_ns() - start) / 1000 / inner)
    return durations


def visit(seed: int) -> dict[str, dict[str, float]]:
    """Measure every kernel once with each protocol; protocol -> value in microseconds, by kernel."""
    import torch

    from perfcollect_core.families import cpu
    from perfcollect_core.measurements import Kernel
    from perfcollect_core.runner.statistics import summarise

    torch.set_num_threads(1)
    order = random.Random(seed)
    device, values = cpu.device(0), {name: {} for name in KERNELS}  # type: dict[str, dict[str, float]]
    kernels = _kernels()
    work = [(name, protocol) for name in KERNELS for protocol in ("ours", *HAND_COUNTS)]
    order.shuffle(work)
    for name, protocol in work:
        if protocol == "ours":
            durations = list(cpu.measure(Kernel(kernels[name]), cpu.default_plan(), device).durations_us)
        else:
            with torch.no_grad():
                durations = _by_hand(kernels[name], int(protocol), KERNELS[name][1])
        found = summarise(durations)
        label = "ours" if protocol == "ours" else f"hand n={protocol}"
        values[name].update({f"{label} {s}": found.value(s) for s in ("min", "p10", "median")})
    return values


def repeatability_figures(processes: int) -> list[Figure]:
    """Compare spreads over *processes* fresh processes."""
    env = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    visits = []
    for seed in range(processes):
        argv = [sys.executable, __file__, "--visit", str(seed)]
        done = subprocess.run(argv, env=env, capture_output=True, text=True, check=True)
        visits.append(json.loads(done.stdout))
    figures = []
    for name, (statistic, _) in KERNELS.items():
        spread = {protocol: _cv([v[name][protocol] for v in visits]) for protocol in visits[0][name]}
        hand = {p: cv for p, cv in spread.items() if p.startswith("hand") and p.endswith(statistic)}
        best = min(hand, key=hand.__getitem__)
        ours = spread[f"ours {statistic}"]
        ratio = ours / hand[best] if hand[best] else float("inf")
        stored = "" if statistic == "median" else f"; stored by default: median, {spread['ours median']:.2%}"
        every = ", ".join(f"{p} {cv:.2%}" for p, cv in sorted(spread.items(), key=lambda e: e[1]))
        figures.append(
            Figure(
                f"run-to-run CV, {name}",
                f"{ours:.2%} = {ratio:.2f} x hand",
                "<= 1.2 x hand",
                ratio <= 1.2,
                f"{statistic} over {processes} processes, best by hand {best!r} {hand[best]:.2%}{stored}; all: {every}",
            )
        )
    return figures


def _cv(values: list[float]) -> float:
    return statistics.stdev(values) / statistics.fmean(values)


if __name__ == "__main__":
    if len(sys.argv) != 3 or sys.argv[1] != "--visit":
        sys.exit("started by run_all.py")
    print(json.dumps(visit(int(sys.argv[2]))))
