"""How a rank times its calls."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable

from perfcollect_core.errors import DataError

from .kernel_records import kernel_samples_us

__all__ = ["time_calls"]


def time_calls(
    timer: str,
    call: Callable[[], object],
    repeat: int,
    refill: Callable[[], object],
    refill_interval: int,
    enter: Callable[[], None],
    synchronize: Callable[[], None],
    kernel_pattern: str = "",
) -> list[float]:
    """Run *call* *repeat* times and return one duration each, in microseconds.

    *refill* restores the input every *refill_interval* calls (0: never), outside the number; *enter* counts a call as begun, before it may
    block. ``host`` takes the clock around a blocking call; ``event`` takes device events and waits once at the end, so
    that no host synchronisation lies inside a sample; ``kernel`` takes the profiler's records of the kernels that match
    *kernel_pattern*; ``virtual`` takes what the call of a simulated library returns, its duration in microseconds.
    """
    # A collection of the garbage collector inside one rank's sample would show as skew of all.
    enabled = gc.isenabled()
    gc.disable()
    try:
        if timer == "event":
            return _event_samples(call, repeat, refill, refill_interval, enter, synchronize)
        if timer == "virtual":
            return [_virtual_sample(call, enter) for _ in range(repeat)]
        if timer == "kernel":

            def before(index: int) -> None:
                if refill_interval and index % refill_interval == 0:
                    refill()
                enter()

            return kernel_samples_us(call, repeat, before, synchronize, kernel_pattern)
        return _host_samples(call, repeat, refill, refill_interval, enter)
    finally:
        if enabled:
            gc.enable()


def _virtual_sample(call: Callable[[], object], enter: Callable[[], None]) -> float:
    enter()
    duration_us = call()
    if not isinstance(duration_us, float):
        raise DataError(f"a simulated call returned {duration_us!r}, expected its duration in microseconds")
    return duration_us


def _host_samples(
    call: Callable[[], object],
    repeat: int,
    refill: Callable[[], object],
    refill_interval: int,
    enter: Callable[[], None],
) -> list[float]:
    clock = time.perf_counter_ns
    samples = []
    for index in range(repeat):
        if refill_interval and index % refill_interval == 0:
            refill()
        enter()
        begin = clock()
        call()
        samples.append((clock() - begin) / 1e3)
    return samples


def _event_samples(
    call: Callable[[], object],
    repeat: int,
    refill: Callable[[], object],
    refill_interval: int,
    enter: Callable[[], None],
    synchronize: Callable[[], None],
) -> list[float]:
    import torch

    pairs = [(torch.Event(enable_timing=True), torch.Event(enable_timing=True)) for _ in range(repeat)]
    for index, (begin, end) in enumerate(pairs):
        if refill_interval and index % refill_interval == 0:
            refill()
        enter()
        begin.record()
        call()
        end.record()
    synchronize()
    return [begin.elapsed_time(end) * 1e3 for begin, end in pairs]
