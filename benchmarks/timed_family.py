"""A device family whose kernels do nothing and say when: the gaps between them are what the program costs a device."""

from __future__ import annotations

import time

from perfcollect_core.environment import Device
from perfcollect_core.measurements import Kernel, Plan, Samples
from perfcollect_core.testing.simulated import SimulatedFamily

__all__ = ["BEGAN", "ENDED", "timed_noop"]

#: Counters of a sample: seconds of the clock all processes of a machine share.
BEGAN = "Began(s)"
ENDED = "Ended(s)"


class TimedFamily(SimulatedFamily):
    """As the no-op family, with the time of each call among the counters."""

    def measure(self, kernel: Kernel, plan: Plan, device: Device) -> Samples:
        began = time.monotonic()
        kernel.call()
        return Samples((1.0,), counters={BEGAN: began, ENDED: time.monotonic()}, cache=plan.cache)


#: Called "noop" because operators list the families they run on.
timed_noop = TimedFamily("noop", Plan(repeat=1, warmup=0, max_seconds=0.1))
