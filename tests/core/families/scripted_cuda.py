"""A scripted ``torch.cuda``: a host and a device with a queue between them, on simulated time."""

from __future__ import annotations

from collections.abc import Callable

import attrs


@attrs.define
class ScriptedEvent:
    cuda: ScriptedCuda
    at_us: float = -1.0

    def record(self) -> None:
        self.cuda.host_us += self.cuda.event_host_us
        self.at_us = self.cuda.queue(0.0)

    def synchronize(self) -> None:
        assert self.at_us >= 0, "waiting for an event that was never recorded"
        self.cuda.waits += 1
        self.cuda.host_us = max(self.cuda.host_us, self.at_us)

    def elapsed_time(self, end: ScriptedEvent) -> float:
        assert self.cuda.host_us >= end.at_us, "read an event before it had ended"
        return (end.at_us - self.at_us) / 1000


@attrs.define
class ScriptedCuda:
    """One GPU: each launch costs the host time, runs after what is queued before it and not before it is launched."""

    launch_us: float = 5.0
    event_host_us: float = 1.0
    cycles_per_us: float = 1_500.0
    can_spin: bool = True
    host_us: float = 0.0
    device_us: float = 0.0
    waits: int = 0
    events: int = 0
    spins: list[float] = attrs.field(factory=list)

    def queue(self, duration_us: float) -> float:
        self.device_us = max(self.device_us, self.host_us) + duration_us
        return self.device_us

    def kernel(self, duration_us: float) -> Callable[[], None]:
        def call() -> None:
            self.host_us += self.launch_us
            self.queue(duration_us)

        return call

    def event(self) -> ScriptedEvent:
        self.events += 1
        return ScriptedEvent(self)

    def spin(self, cycles: int) -> None:
        if self.can_spin:
            self.host_us += self.launch_us
            self.spins.append(cycles / self.cycles_per_us)
            self.queue(cycles / self.cycles_per_us)

    def now(self) -> float:
        return self.host_us * 1e-6
