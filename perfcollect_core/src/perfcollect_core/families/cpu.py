"""The CPU device family: kernels run by torch on this machine's processors, timed on the host."""

from __future__ import annotations

import os
import platform
import re
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from importlib import metadata
from pathlib import Path

from perfcollect_core.environment import Device, DeviceInfo, Launch, Missing, Probe, TaskRecord
from perfcollect_core.measurements import Kernel, Plan, Samples
from perfcollect_core.values import TORCH_DTYPES

from . import cpu_facts
from .agreement import rank_agreement
from .launching import thread_env, torchrun_argv, worker_env
from .sampling import Eviction, measure_samples

name = "cpu"
cores = ("CPU",)
dtypes = frozenset(TORCH_DTYPES)
#: Ranks are processes here and may outnumber the cores: right results, and times that say so by themselves.
max_ranks = 64

#: A flush buffer of this many times the last-level cache leaves nothing of it under any replacement policy seen.
_FLUSH_FACTOR = 2
_MAX_FLUSH_SHARE = 0.2


def probe() -> Probe:
    """Describe this machine as one device; it is missing where torch is not installed."""
    try:
        versions = {"torch": metadata.version("torch")}
    except metadata.PackageNotFoundError:
        return Probe(
            missing=(
                Missing(
                    what="torch",
                    looked=f"in the packages of {sys.prefix}",
                    fix="install torch into this environment (pip install torch, or the CPU build of pytorch.org)",
                ),
            )
        )
    info = DeviceInfo(
        index=0,
        name=f"CPU_{re.sub(r'[^A-Z0-9]+', '_', platform.machine().upper())}",
        memory_bytes=cpu_facts.memory_bytes(),
        details={"model": cpu_facts.cpu_model(), "threads": str(cpu_facts.usable_threads())},
    )
    return Probe(devices=(info,), versions=versions)


def default_plan() -> Plan:
    """Return a plan that reaches 1 % on compute-bound kernels within two seconds."""
    return Plan(repeat=None, warmup=3, precision=0.01, max_seconds=2.0)


def launch(argv: Sequence[str], ranks: int, device: int, run_dir: Path) -> Launch:
    """Return the worker's command; several ranks run under torchrun on the loopback, each with its share of cores."""
    env = {**worker_env(), **thread_env(max(1, cpu_facts.usable_threads() // ranks))}
    return Launch(torchrun_argv(argv, ranks) if ranks > 1 else tuple(argv), env)


def device(index: int) -> Device:
    """Open the CPU as a device."""
    return Device(
        family=name,
        index=index,
        torch_device="cpu",
        rank=int(os.environ.get("RANK", "0")),
        ranks=int(os.environ.get("WORLD_SIZE", "1")),
        core=cores[0],
    )


def environment(device: Device) -> Mapping[str, str]:
    """Return versions, threads, clocks, load and operating system."""
    import torch

    facts = {
        "torch": str(torch.__version__),
        "python": platform.python_version(),
        "os": platform.platform(),
        "cpu": cpu_facts.cpu_model(),
        "threads": str(torch.get_num_threads()),
        "cpus_allowed": str(len(cpu_facts.allowed_cpus())),
        "governor": cpu_facts.governor(),
        "clock_mhz": _number(cpu_facts.current_mhz()),
        "nominal_clock_mhz": _number(cpu_facts.nominal_mhz()),
        "last_level_cache_bytes": _number(cpu_facts.last_level_cache_bytes()),
        "load_1min": f"{os.getloadavg()[0]:.2f}" if hasattr(os, "getloadavg") else "",
        "blas": "mkl" if torch.backends.mkl.is_available() else "other",
    }
    return {key: value for key, value in facts.items() if value}


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.0f}"


class _HostClock:
    """Times calls with the host's monotonic clock; a call on the CPU is done when it returns."""

    def __init__(self) -> None:
        nominal = cpu_facts.nominal_mhz()
        self._nominal = nominal if nominal and cpu_facts.current_mhz() else None

    def seconds(self) -> float:
        return time.perf_counter()

    def take(
        self, call: Callable[[], object], count: int, inner: int, before: Callable[[], None] | None
    ) -> list[float]:
        now = time.perf_counter_ns
        durations = []
        for _ in range(count):
            if before is not None:
                before()
            if inner == 1:
                start = now()
                call()
                end = now()
            else:
                launches = range(inner)
                start = now()
                for _ in launches:
                    call()
                end = now()
            durations.append(max(end - start, 1) / (1000 * inner))
        return durations

    def share_of_nominal(self) -> float | None:
        if self._nominal is None:
            return None
        current = cpu_facts.current_mhz()
        return current / self._nominal if current else None

    def throttle_reasons(self) -> tuple[str, ...]:
        return ()


@lru_cache(maxsize=1)
def _eviction() -> Eviction:
    # One buffer a worker: allocating it costs more than most cases.
    import torch

    cache = cpu_facts.last_level_cache_bytes()
    wanted = _FLUSH_FACTOR * (cache or 64 << 20)
    size = int(min(wanted, _MAX_FLUSH_SHARE * cpu_facts.memory_bytes()))
    buffer = torch.zeros(size // 4, dtype=torch.int32)

    def flush() -> None:
        buffer.add_(1)

    return Eviction(flush, float(size), cache)


def measure(kernel: Kernel, plan: Plan, device: Device) -> Samples:
    """Measure *kernel* on the host clock, garbage collection off, autograd off."""
    import torch

    eviction = _eviction() if plan.cache == "cold" else None
    with torch.no_grad():
        return measure_samples(kernel, plan, _HostClock(), eviction, rank_agreement(device))


def synchronize(device: Device) -> None:
    """Return at once: a call on the CPU is done when it returns."""


def read_profile(profile_dir: Path) -> Sequence[TaskRecord]:
    """Return nothing: ``measure`` gives the durations."""
    return ()
