"""The measuring loop every device family shares: warm up, batch, repeat until the median is known well enough.

A family brings a :class:`Clock`; the loop itself knows no device, so that a scripted clock tests all of it.
"""

from __future__ import annotations

import gc
import math
import statistics
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

import attrs

from perfcollect_core.measurements import Kernel, Plan, Samples
from perfcollect_core.runner.statistics import achieved_cache, relative_half_width, split_warmup

from .agreement import alone

__all__ = ["BATCH_BELOW_US", "Clock", "Eviction", "measure_samples"]

#: Kernels faster than this are timed several at a time.
BATCH_BELOW_US = 10.0
_BATCH_TARGET_US = 100.0
_MAX_INNER = 500
#: An interval is believed from so many samples on, and not before samples span this time: noise comes in bursts longer
#: than a small kernel.
_MIN_SAMPLES = 10
_MIN_SECONDS = 0.025
_ENOUGH_SAMPLES = 300
_FEWEST_SAMPLES = 3
#: How far past its budget a case may go for them.
_OVERRUN = 4
_MAX_SAMPLES = 3_000
#: Warm-up launches whose durations are kept: the first ones tell compiling from ramping.
_WARMUP_KEPT = 20
#: Share of the budget warming up may take, and the time it takes at least (clocks ramp in milliseconds).
_WARMUP_SHARE = 0.3
_WARMUP_SECONDS = 0.02
_MAX_WARMUP = 1_000
_STABLE_CALLS = 3
_STABLE_SPREAD = 0.1
_LOW_CLOCK = 0.95
#: Clock and budget are looked at this often.
_CHUNK_SECONDS = 0.05


class Clock(Protocol):
    """Times launches on one device."""

    def seconds(self) -> float:
        """Return the time budgets are kept with, in seconds."""

    def take(
        self, call: Callable[[], object], count: int, inner: int, before: Callable[[], None] | None
    ) -> list[float]:
        """Return *count* durations of one launch in microseconds, each over *inner* launches in a row.

        *before* runs before each of the *count* and is not in the number. The device is idle on return.
        """

    def share_of_nominal(self) -> float | None:
        """Return the current clock over the nominal one, ``None`` where it cannot be read."""

    def throttle_reasons(self) -> tuple[str, ...]:
        """Return why the device holds its clock down right now, in words; empty where it does not or cannot say."""


@attrs.frozen(eq=False)
class Eviction:
    """How the cache is emptied before a launch: what to run, the bytes it touches, the cache it must exceed."""

    run: Callable[[], None]
    evicted_bytes: float
    cache_bytes: float | None


@attrs.define
class _Readings:
    """Clock readings around the chunks of samples, and how many samples were taken at a low one."""

    lowest: float = math.inf
    low_samples: int = 0
    samples: int = 0
    taken: int = 0
    reasons: dict[str, int] = attrs.field(factory=dict)

    def add(self, before: float | None, after: float | None, reasons: tuple[str, ...], count: int) -> None:
        self.taken += count
        for reason in reasons:
            self.reasons[reason] = self.reasons.get(reason, 0) + count
        known = [share for share in (before, after) if share is not None]
        if not known:
            return
        self.lowest = min(self.lowest, *known)
        self.samples += count
        if min(known) < _LOW_CLOCK:
            self.low_samples += count

    def flags(self) -> tuple[str, ...]:
        found = [f"{why} in {count} of {self.taken} samples" for why, count in self.reasons.items()]
        if self.low_samples:
            text = f"clock below {_LOW_CLOCK:.0%} of nominal in {self.low_samples} of {self.samples} samples"
            found.append(f"{text} (lowest {self.lowest:.0%})".replace("%", " %"))
        return tuple(found)


def measure_samples(
    kernel: Kernel,
    plan: Plan,
    clock: Clock,
    eviction: Eviction | None = None,
    agree: Callable[[int], int] = alone,
) -> Samples:
    """Measure *kernel* as *plan* says with *clock*.

    Warm-up goes on until three calls in a row agree, at least ``plan.warmup`` calls; ``plan.warmup == 0`` asks for
    none. Launches below 10 us are timed in batches, unless something has to run before each (a reset, a flush).

    Args:
        kernel: The bound call; its ``reset`` runs before every launch outside the number.
        plan: Repeat rule, warm-up, budget and cache policy.
        clock: Clock of the device.
        eviction: What empties the cache; required for ``plan.cache == "cold"`` to be achieved.
        agree: Gives every rank of a case rank 0's value, so that all launch equally often.
    """
    evict = eviction if plan.cache == "cold" else None
    before = _before(kernel.reset, evict.run if evict else None)
    with _no_collection():
        started = clock.seconds()
        warmup, stable = _warm_up(kernel.call, plan, clock, before, started, agree)
        estimate = _estimate(warmup) or clock.take(kernel.call, 1, 1, before)[0]
        inner = 1
        if before is None and estimate < BATCH_BELOW_US and plan.cache == "warm":
            inner = min(_MAX_INNER, math.ceil(_BATCH_TARGET_US / max(estimate, 1e-3)))
        inner = agree(inner)
        durations, stop, readings = _repeat(kernel.call, plan, clock, before, inner, started, agree)
    # After a stable warm-up a slow first sample is noise like any other.
    first, steady = ((), tuple(durations)) if stable else split_warmup(durations)
    cache, warning = achieved_cache(
        plan.cache,
        evicted_bytes=evict.evicted_bytes if evict else 0,
        cache_bytes=evict.cache_bytes if evict else None,
    )
    flags = list(readings.flags())
    if warning:
        flags.append(warning)
    if inner == 1 and statistics.median(steady) < BATCH_BELOW_US:
        flags.append(f"shorter than {BATCH_BELOW_US:g} us and timed one by one")
    return Samples(
        durations_us=steady,
        stop=stop,
        inner=inner,
        warmup_us=(*warmup[:_WARMUP_KEPT], *first),
        cache=cache,
        flags=tuple(flags),
        launches=len(steady) * inner,
    )


def _before(reset: Callable[[], None] | None, evict: Callable[[], None] | None) -> Callable[[], None] | None:
    if reset is None or evict is None:
        return reset or evict

    def both() -> None:
        # The flush comes last: a reset that writes the operands would warm them again.
        reset()
        evict()

    return both


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


def _warm_up(
    call: Callable[[], object],
    plan: Plan,
    clock: Clock,
    before: Callable[[], None] | None,
    started: float,
    agree: Callable[[int], int],
) -> tuple[list[float], bool]:
    durations: list[float] = []
    if plan.warmup <= 0:
        return durations, False
    while len(durations) < _MAX_WARMUP:
        durations += clock.take(call, 1, 1, before)
        spent = clock.seconds() - started
        ended = 0
        if spent >= _WARMUP_SHARE * plan.max_seconds:
            ended = 1
        elif len(durations) >= plan.warmup and spent >= _WARMUP_SECONDS and _stable(durations, clock):
            ended = 2
        ended = agree(ended)
        if ended:
            return durations, ended == 2
    return durations, False


def _stable(durations: list[float], clock: Clock) -> bool:
    last = durations[-_STABLE_CALLS:]
    if len(last) < _STABLE_CALLS or max(last) > (1 + _STABLE_SPREAD) * min(last) + 0.5:
        return False
    share = clock.share_of_nominal()
    return share is None or share >= _LOW_CLOCK


def _estimate(warmup: list[float]) -> float:
    return statistics.median(warmup[-_STABLE_CALLS:]) if warmup else 0.0


_STOPS = ("", "repeat", "precision", "budget")


def _repeat(
    call: Callable[[], object],
    plan: Plan,
    clock: Clock,
    before: Callable[[], None] | None,
    inner: int,
    started: float,
    agree: Callable[[int], int],
) -> tuple[list[float], str, _Readings]:
    durations: list[float] = []
    readings = _Readings()
    target = plan.repeat or _MIN_SAMPLES
    chunk = 1
    first = clock.seconds()
    while True:
        began, reading = clock.seconds(), clock.share_of_nominal()
        durations += clock.take(call, chunk, inner, before)
        ended = clock.seconds()
        readings.add(reading, clock.share_of_nominal(), clock.throttle_reasons(), chunk)
        stop = ""
        if len(durations) >= target:
            spanned = ended - first >= _MIN_SECONDS or len(durations) >= _ENOUGH_SAMPLES
            if plan.repeat is not None:
                stop = "repeat"
            elif spanned and relative_half_width(durations) <= plan.precision:
                stop = "precision"
            # Geometric growth keeps sorting cheap beside measuring.
            target = min(_MAX_SAMPLES, math.ceil(1.3 * target))
        if plan.repeat is None and not stop:
            full = len(durations) >= _MAX_SAMPLES
            if full or _out_of_time(len(durations), ended - began, ended - started, plan):
                stop = "budget"
        stop = _STOPS[agree(_STOPS.index(stop))]
        if stop:
            return durations, stop, readings
        # Wall time, not the sample: a flush before it can cost far more.
        per_sample = max((ended - began) / chunk, 1e-7)
        chunk = agree(max(1, min(target - len(durations), int(_CHUNK_SECONDS / per_sample))))


def _out_of_time(count: int, last_seconds: float, spent: float, plan: Plan) -> bool:
    """Tell whether the budget ends measuring; a handful of samples is taken in spite of it, unless one alone spends it."""
    if spent < plan.max_seconds:
        return False
    if last_seconds > plan.max_seconds or spent >= _OVERRUN * plan.max_seconds:
        return True
    # Flushing takes most of a cold case's time and cold samples scatter: it gets the few more that make an interval.
    return count >= (_MIN_SAMPLES if plan.cache == "cold" else _FEWEST_SAMPLES)
