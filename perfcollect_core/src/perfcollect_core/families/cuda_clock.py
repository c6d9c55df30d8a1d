"""Time launches on a GPU with device events, the host out of the number."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol

from .cuda_health import DeviceHealth
from .sampling import Eviction

__all__ = ["CudaEvent", "CudaRuntime", "EventClock", "l2_eviction"]

#: A flush of this many times the cache leaves nothing of it: sets are filled by hash, not in order.
_FLUSH_FACTOR = 2
#: Samples queued before the host waits: enough to hide its work, few enough to keep the launch queue from filling up.
_QUEUED = 32
#: The spin that lets the host get ahead is this much longer than queueing took last time, within these bounds.
_HEADROOM = 1.5
_LONGEST_SPIN_US = 20_000.0
_CALIBRATION_CYCLES = 1_000_000


class CudaEvent(Protocol):
    """A timing event as ``torch.cuda.Event`` is one."""

    def record(self) -> None: ...

    def synchronize(self) -> None: ...

    def elapsed_time(self, end: CudaEvent) -> float:
        """Return milliseconds from this event to *end*."""


class CudaRuntime(Protocol):
    """The part of ``torch.cuda`` that is used."""

    def event(self) -> CudaEvent:
        """Return a new timing event."""

    def spin(self, cycles: int) -> None:
        """Queue a kernel that spins for *cycles*; may do nothing."""


class EventClock:
    """A :class:`~.sampling.Clock` of pairs of events.

    Launching takes the host longer than small kernels take the device. A spin queued before the first event of a
    sample lets the host queue the whole sample meanwhile, so that the events enclose kernels back to back and no gaps.
    """

    def __init__(
        self,
        runtime: CudaRuntime,
        health: DeviceHealth | None = None,
        now: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._runtime = runtime
        self._health = health
        self._now = now
        self._pairs: list[tuple[CudaEvent, CudaEvent]] = []
        self._queueing_us: dict[int, float] = {}
        self._cycles_per_us = self._calibrate()

    def _pair(self, index: int) -> tuple[CudaEvent, CudaEvent]:
        while len(self._pairs) <= index:
            self._pairs.append((self._runtime.event(), self._runtime.event()))
        return self._pairs[index]

    def _calibrate(self) -> float:
        start, end = self._pair(0)
        self._runtime.spin(_CALIBRATION_CYCLES)
        start.record()
        self._runtime.spin(_CALIBRATION_CYCLES)
        end.record()
        end.synchronize()
        spent = start.elapsed_time(end) * 1000
        return _CALIBRATION_CYCLES / spent if spent > 1 else 0.0

    def seconds(self) -> float:
        return self._now()

    def take(
        self, call: Callable[[], object], count: int, inner: int, before: Callable[[], None] | None
    ) -> list[float]:
        durations: list[float] = []
        while len(durations) < count:
            queued = min(_QUEUED, count - len(durations))
            for index in range(queued):
                self._queue_sample(self._pair(index), call, inner, before)
            # Events end in order: the last one of the queue says that all have.
            self._pairs[queued - 1][1].synchronize()
            for start, end in self._pairs[:queued]:
                # The resolution of an event is half a microsecond; a shorter launch is not free.
                durations.append(max(start.elapsed_time(end) * 1000, 0.5) / inner)
        return durations

    def _queue_sample(
        self,
        pair: tuple[CudaEvent, CudaEvent],
        call: Callable[[], object],
        inner: int,
        before: Callable[[], None] | None,
    ) -> None:
        start, end = pair
        if before is not None:
            before()
        spin_us = min(_HEADROOM * self._queueing_us.get(inner, 0.0), _LONGEST_SPIN_US)
        if spin_us and self._cycles_per_us:
            self._runtime.spin(int(spin_us * self._cycles_per_us))
        start.record()
        began = self._now()
        for _ in range(inner):
            call()
        took = (self._now() - began) * 1e6
        end.record()
        # The quickest queueing seen: a first call compiles, a full queue blocks.
        self._queueing_us[inner] = min(took, self._queueing_us.get(inner, took))

    def share_of_nominal(self) -> float | None:
        return self._health.share_of_nominal() if self._health else None

    def throttle_reasons(self) -> tuple[str, ...]:
        return self._health.throttle_reasons() if self._health else ()


def l2_eviction(l2_bytes: int | None, allocate: Callable[[int], Callable[[], object]]) -> Eviction:
    """Return how to empty the L2 cache.

    Args:
        l2_bytes: Size of the cache, ``None`` or 0 where it is not known.
        allocate: Makes a buffer of so many bytes and returns what overwrites it on the device.
    """
    size = _FLUSH_FACTOR * l2_bytes if l2_bytes else 256 << 20
    overwrite = allocate(size)

    def flush() -> None:
        overwrite()

    return Eviction(flush, float(size), float(l2_bytes) if l2_bytes else None)
