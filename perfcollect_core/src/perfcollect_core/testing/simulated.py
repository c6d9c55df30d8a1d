"""Device families without a device: no-op kernels and sleeping ones, any number of devices, no torch.

Name one in the entry points of a test distribution (``noop = "perfcollect_core.testing.simulated:noop"``) or in a
benchmark. Kernels are whatever the operator binds; this family calls them and reads the host's clock.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import attrs

from perfcollect_core.environment import Device, DeviceInfo, Launch, Missing, Probe, TaskRecord
from perfcollect_core.measurements import Kernel, Plan, Samples
from perfcollect_core.values import TORCH_DTYPES

__all__ = ["DEVICES_VARIABLE", "DOWN_VARIABLE", "SICK_VARIABLE", "SimulatedFamily", "noop", "sleeping"]

#: How many devices a simulated family finds.
DEVICES_VARIABLE = "PERFCOLLECT_SIMULATED_DEVICES"
#: Devices (``0,2``) whose every start fails.
DOWN_VARIABLE = "PERFCOLLECT_SIMULATED_DOWN"
#: Devices (``0,2``) that open and on which every kernel fails.
SICK_VARIABLE = "PERFCOLLECT_SIMULATED_SICK"


@attrs.frozen
class SimulatedFamily:
    """Calls kernels on the host and times them; ``fixed_us`` reports that instead, for repeatable tables."""

    name: str
    plan: Plan
    fixed_us: float | None = None
    cores: tuple[str, ...] = ("SIMULATED",)
    dtypes: frozenset[str] = frozenset(TORCH_DTYPES)
    max_ranks: int = 64

    def probe(self) -> Probe:
        count = int(os.environ.get(DEVICES_VARIABLE, "1"))
        if count < 1:
            missing = Missing(
                "a simulated device", f"{DEVICES_VARIABLE}={count}", f"set {DEVICES_VARIABLE} to 1 or more"
            )
            return Probe(missing=(missing,))
        return Probe(tuple(DeviceInfo(index, self.name.upper(), 1 << 34) for index in range(count)))

    def default_plan(self) -> Plan:
        return self.plan

    def launch(self, argv: Sequence[str], ranks: int, device: int, run_dir: Path) -> Launch:
        if ranks == 1:
            return Launch(tuple(argv))
        launcher = [sys.executable, "-m", "perfcollect_core.testing.ranks", str(ranks)]
        return Launch((*launcher, *argv))

    def device(self, index: int) -> Device:
        if _listed(index, DOWN_VARIABLE):
            raise RuntimeError(f"simulated device {index} does not answer")
        rank, ranks = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
        return Device(self.name, index, "cpu", rank, ranks, self.cores[0])

    def environment(self, device: Device) -> Mapping[str, str]:
        return {"family": self.name}

    def measure(self, kernel: Kernel, plan: Plan, device: Device) -> Samples:
        if _listed(device.index, SICK_VARIABLE):
            raise RuntimeError(f"fake error 507015: simulated device {device.index} is lost")
        for _ in range(plan.warmup):
            kernel.call()
        durations = []
        for _ in range(plan.repeat or 1):
            if kernel.reset is not None:
                kernel.reset()
            start = time.perf_counter_ns()
            kernel.call()
            durations.append(max(time.perf_counter_ns() - start, 1) / 1000)
        if self.fixed_us is not None:
            durations = [self.fixed_us] * len(durations)
        return Samples(tuple(durations), cache=plan.cache)

    def synchronize(self, device: Device) -> None:
        return None

    def read_profile(self, profile_dir: Path) -> Sequence[TaskRecord]:
        return ()


def _listed(index: int, variable: str) -> bool:
    return str(index) in os.environ.get(variable, "").split(",")


#: Kernels that do nothing: what is left is the program's own cost. Every duration is 1 us.
noop = SimulatedFamily("noop", Plan(repeat=1, warmup=0, max_seconds=0.1), fixed_us=1.0)
#: Kernels that sleep, on several devices at once.
sleeping = SimulatedFamily("sleeping", Plan(repeat=1, warmup=0, max_seconds=1.0))
