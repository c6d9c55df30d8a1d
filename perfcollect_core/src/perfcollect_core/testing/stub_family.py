"""A device family that runs on the host and keeps no clock: durations are the caller's to choose."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import attrs

from perfcollect_core.environment import Device, DeviceInfo, Launch, Probe, TaskRecord
from perfcollect_core.measurements import Kernel, Plan, Samples
from perfcollect_core.values import TORCH_DTYPES

__all__ = ["StubFamily"]


@attrs.define
class StubFamily:
    """Runs every kernel once a sample and reports ``duration_us`` for each; everything else as on the CPU."""

    duration_us: float = 1.0
    name: str = "stub"
    cores: tuple[str, ...] = ("CPU",)
    dtypes: frozenset[str] = frozenset(TORCH_DTYPES)

    def probe(self) -> Probe:
        return Probe(devices=(DeviceInfo(0, "STUB", 1 << 34),))

    def default_plan(self) -> Plan:
        return Plan(repeat=3, warmup=1)

    def launch(self, argv: Sequence[str], ranks: int, device: int, run_dir: Path) -> Launch:
        return Launch(tuple(argv))

    def device(self, index: int) -> Device:
        return Device(family="cpu", index=index, torch_device="cpu", core=self.cores[0])

    def environment(self, device: Device) -> Mapping[str, str]:
        return {"family": self.name}

    def measure(self, kernel: Kernel, plan: Plan, device: Device) -> Samples:
        for _ in range(plan.warmup):
            kernel.call()
        repeat = plan.repeat or 3
        for _ in range(repeat):
            if kernel.reset:
                kernel.reset()
            kernel.call()
        return Samples((self.duration_us,) * repeat)

    def synchronize(self, device: Device) -> None:
        return None

    def read_profile(self, profile_dir: Path) -> Sequence[TaskRecord]:
        return ()
