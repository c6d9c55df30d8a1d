"""Launch a case inside brackets of host time, for a profiler to say how long it took (worker side).

The device is idle around every bracket for longer than its clock can be off, so that warm-up, resets and flushes never
fall into one.
"""

from __future__ import annotations

import gc
import math
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Protocol

import attrs

from perfcollect_core.measurements import Kernel, Plan, Samples
from perfcollect_core.profiles.op_summary import range_name
from perfcollect_core.runner.statistics import achieved_cache

from .sampling import Eviction

__all__ = ["GUARD_SECONDS", "NpuRuntime", "has_ranges", "measure_in_brackets"]

#: Idle time before and after a bracket: more than twice the slack attribution allows the clocks.
GUARD_SECONDS = 0.001
_FEWEST = 10
#: A case never fills a session alone.
_MOST = 500
_MOST_BRACKETED = 100
_MOST_WARMUP = 50
_WARMUP_SHARE = 0.3
_STABLE_CALLS = 3
_STABLE_SPREAD = 0.1
#: Standard errors of a median: 1.96 sigma for 95 %, times 1.2533 because it is a median and no mean.
_MEDIAN_ERRORS = 1.96 * 1.2533
_SIGMA_OF_MAD = 1.4826
_RANGES_LIBRARY = "libmspti.so"


class NpuRuntime(Protocol):
    """The part of ``torch.npu`` that measuring needs."""

    def synchronize(self) -> None:
        """Wait until the device is idle; what failed before is raised here."""

    def time_us(self, call: Callable[[], object]) -> float:
        """Run *call* between two device events, wait for it and return the microseconds between them."""

    def open_range(self, name: str) -> int:
        """Begin a range of the profiler's; 0 where there are none."""

    def close_range(self, number: int) -> None:
        """End a range."""


def has_ranges(environ: Mapping[str, str]) -> bool:
    """Tell whether ranges reach the profiler: torch_npu drops them unless this library is preloaded."""
    return _RANGES_LIBRARY in environ.get("LD_PRELOAD", "")


@attrs.define(eq=False)
class _Brackets:
    runtime: NpuRuntime
    sleep: Callable[[float], None]
    now_ns: Callable[[], int]

    def run(self, call: Callable[[], object], launches: int) -> tuple[int, int]:
        """Launch *call* so often with an idle device before and after; return the host times around."""
        self.runtime.synchronize()
        self.sleep(GUARD_SECONDS)
        start = self.now_ns()
        number = self.runtime.open_range(range_name(start))
        for _ in range(launches):
            call()
        self.runtime.synchronize()
        self.runtime.close_range(number)
        end = self.now_ns()
        self.sleep(GUARD_SECONDS)
        return start, end


def measure_in_brackets(
    kernel: Kernel,
    plan: Plan,
    runtime: NpuRuntime,
    eviction: Eviction | None = None,
    *,
    ranks: int = 1,
    sleep: Callable[[float], None] = time.sleep,
    now_ns: Callable[[], int] = time.time_ns,
) -> Samples:
    """Launch *kernel* as *plan* says and return when, the durations to come.

    Without a count in *plan*, device events of the warm-up say how many launches the asked precision needs.

    Args:
        kernel: The bound call; its ``reset`` runs before every launch, outside the brackets.
        plan: Repeat rule, warm-up, budget and cache policy.
        runtime: The device.
        eviction: What empties the cache, for ``plan.cache == "cold"``.
        ranks: Ranks that measure together; they must launch equally often, so they do not judge for themselves.
        sleep, now_ns: The host's clock.
    """
    evict = eviction.run if eviction is not None and plan.cache == "cold" else None
    before = [step for step in (kernel.reset, evict) if step is not None]
    with _no_collection():
        warmup = _warm_up(kernel.call, before, plan, runtime, together=ranks > 1)
        launches = _count(plan, warmup, bracketed=bool(before), together=ranks > 1)
        brackets = _Brackets(runtime, sleep, now_ns)
        if before:
            windows = []
            for _ in range(launches):
                for step in before:
                    step()
                windows.append(brackets.run(kernel.call, 1))
        else:
            windows = [brackets.run(kernel.call, launches)]
    cache, warning = achieved_cache(
        plan.cache,
        evicted_bytes=eviction.evicted_bytes if evict and eviction else 0,
        cache_bytes=eviction.cache_bytes if evict and eviction else None,
    )
    return Samples(
        stop="repeat",
        warmup_us=tuple(warmup),
        cache=cache,
        flags=(warning,) if warning else (),
        window_ns=(windows[0][0], windows[-1][1]),
        launches=launches,
        brackets_ns=tuple(windows) if before else (),
    )


def _warm_up(
    call: Callable[[], object],
    before: list[Callable[[], None]],
    plan: Plan,
    runtime: NpuRuntime,
    *,
    together: bool,
) -> list[float]:
    """Launch until three in a row agree, at least as often as the plan says; one launch at least tells the duration."""
    durations: list[float] = []
    started = time.perf_counter()
    while len(durations) < max(1, plan.warmup, 0 if together else _MOST_WARMUP):
        for step in before:
            step()
        durations.append(runtime.time_us(call))
        if together or len(durations) < max(1, plan.warmup):
            continue
        spent = time.perf_counter() - started
        if plan.warmup == 0 or _stable(durations) or spent >= _WARMUP_SHARE * plan.max_seconds:
            break
    return durations


def _stable(durations: list[float]) -> bool:
    last = durations[-_STABLE_CALLS:]
    return len(last) == _STABLE_CALLS and max(last) <= (1 + _STABLE_SPREAD) * min(last) + 0.5


def _count(plan: Plan, warmup: list[float], *, bracketed: bool, together: bool) -> int:
    """Return how many launches the plan asks for, or its precision needs and its budget allows."""
    if plan.repeat is not None:
        return plan.repeat
    most = _MOST_BRACKETED if bracketed else _MOST
    if together:
        return 2 * _FEWEST
    steady = warmup[len(warmup) // 2 :] or warmup
    median = statistics.median(steady)
    spread = _SIGMA_OF_MAD * statistics.median(abs(value - median) for value in steady) / max(median, 1e-3)
    needed = math.ceil((_MEDIAN_ERRORS * spread / plan.precision) ** 2)
    once_seconds = median / 1e6 + (2 * GUARD_SECONDS if bracketed else 0.0)
    affordable = int(plan.max_seconds / max(once_seconds, 1e-7))
    return max(1, min(max(needed, _FEWEST), most, max(affordable, 3)))


@contextmanager
def _no_collection() -> Iterator[None]:
    enabled = gc.isenabled()
    gc.collect(0)
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
