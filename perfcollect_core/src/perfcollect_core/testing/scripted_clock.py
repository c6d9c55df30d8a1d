"""A clock whose time is written down beforehand: what tests of measuring logic use instead of waiting."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import attrs

__all__ = ["ScriptedClock"]


@attrs.define
class ScriptedClock:
    """Satisfies ``families.sampling.Clock`` without a device: every launch takes the time the script says.

    Attributes:
        script: Microseconds of the first launches, in order (a compiling first call, noise).
        steady_us: Microseconds of every launch after the script.
        before_us: Microseconds that what runs before a launch takes; budget time, never part of a sample.
        overhead_us: Microseconds reading the clock adds to each sample.
        shares: Clock over nominal at successive readings, the last one staying; empty where clocks are unreadable. A
            launch at a low clock takes as much longer.
        reasons: What the device gives as reason for a low clock, at every reading.
        calls, resets: How often the kernel and what comes before it have run.
        batches: ``inner`` of every sample taken.
    """

    script: Sequence[float] = ()
    steady_us: float = 100.0
    before_us: float = 0.0
    overhead_us: float = 0.0
    shares: Sequence[float] = ()
    reasons: tuple[str, ...] = ()
    now_us: float = 0.0
    calls: int = 0
    resets: int = 0
    batches: list[int] = attrs.field(factory=list)
    _readings: int = 0
    _share: float = 1.0

    def seconds(self) -> float:
        return self.now_us * 1e-6

    def take(
        self, call: Callable[[], object], count: int, inner: int, before: Callable[[], None] | None
    ) -> list[float]:
        durations = []
        for _ in range(count):
            if before is not None:
                before()
                self.resets += 1
                self.now_us += self.before_us
            sample = self.overhead_us
            for _ in range(inner):
                call()
                sample += self._launch_us() / self._share
                self.calls += 1
            self.now_us += sample
            self.batches.append(inner)
            durations.append(sample / inner)
        return durations

    def _launch_us(self) -> float:
        return self.script[self.calls] if self.calls < len(self.script) else self.steady_us

    def share_of_nominal(self) -> float | None:
        if not self.shares:
            return None
        self._share = self.shares[min(self._readings, len(self.shares) - 1)]
        self._readings += 1
        return self._share

    def throttle_reasons(self) -> tuple[str, ...]:
        return self.reasons
