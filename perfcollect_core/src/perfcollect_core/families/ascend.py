"""The Ascend device family: NPUs driven through torch_npu, durations out of msprof."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from perfcollect_core.environment import Device, Launch, Probe, TaskRecord
from perfcollect_core.errors import DeviceUnavailableError
from perfcollect_core.measurements import Kernel, Plan, Samples
from perfcollect_core.values import TORCH_DTYPES

from .ascend_probe import probe_ascend

name = "ascend"
cores = ("AI_CORE", "AI_VECTOR_CORE", "MIX_AIC", "MIX_AIV", "AI_CPU")
#: INT4 is built packed, two elements a byte, through torch_npu.
dtypes = frozenset(TORCH_DTYPES) | {"INT4"}


def probe() -> Probe:
    """Find NPUs, torch_npu, CANN, driver and msprof; what is missing is said with its fix. Never another family."""
    return probe_ascend()


def default_plan() -> Plan:
    """Return a plan for device time out of the profiler, which is steadier than a host clock."""
    return Plan(repeat=None, warmup=5, precision=0.01, max_seconds=2.0)


def launch(argv: Sequence[str], ranks: int, device: int, run_dir: Path) -> Launch:
    """Refuse: workers under msprof are not part of this version."""
    raise _unavailable("launching workers under msprof")


def device(index: int) -> Device:
    """Refuse, as ``launch`` does."""
    raise _unavailable(f"opening NPU {index}")


def environment(device: Device) -> Mapping[str, str]:
    """Refuse, as ``launch`` does."""
    raise _unavailable("reading the environment of an NPU")


def measure(kernel: Kernel, plan: Plan, device: Device) -> Samples:
    """Refuse, as ``launch`` does."""
    raise _unavailable("measuring on an NPU")


def synchronize(device: Device) -> None:
    """Refuse, as ``launch`` does."""
    raise _unavailable("synchronizing an NPU")


def read_profile(profile_dir: Path) -> Sequence[TaskRecord]:
    """Return nothing yet: no session is ever started."""
    return ()


def _unavailable(what: str) -> DeviceUnavailableError:
    return DeviceUnavailableError(
        f"{what} is not available in this version of perfcollect",
        hint="this version measures on cpu and cuda; `perfcollect doctor` shows what was found of the NPUs",
    )
