"""Devices and what an operator needs from the machine around it; the protocol of a device family."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol, runtime_checkable

import attrs

if TYPE_CHECKING:
    from .measurements import Kernel, Plan, Samples

__all__ = ["Device", "DeviceFamily", "DeviceInfo", "Launch", "Missing", "Need", "Probe", "TaskRecord"]


@attrs.frozen
class Need:
    """Something outside perfcollect that an operator needs on a family; checked in the parent before any work.

    ``kind``: ``env`` (an environment variable that names an existing path), ``library`` (a shared object that loads),
    ``module`` (an importable distribution), ``schema`` (a registered torch operator). ``hint`` is the fix in words.
    """

    kind: Literal["env", "library", "module", "schema"]
    name: str
    hint: str = ""
    families: tuple[str, ...] = ("ascend",)


@attrs.frozen
class Missing:
    """One need that is not met: what, where it was looked for, how to fix it."""

    what: str
    looked: str
    fix: str


@attrs.frozen
class DeviceInfo:
    """One device as probed: ``name`` is the directory name of its databases (``CPU_X86_64``)."""

    index: int
    name: str
    memory_bytes: int
    details: Mapping[str, str] = attrs.field(factory=dict)


@attrs.frozen
class Probe:
    """What a family finds on this machine; ``missing`` says in words what it lacks where ``devices`` is empty."""

    devices: tuple[DeviceInfo, ...] = ()
    missing: tuple[Missing, ...] = ()
    versions: Mapping[str, str] = attrs.field(factory=dict)

    @property
    def emulated(self) -> bool:
        """Whether the devices are an emulator's, whose numbers never go among real ones."""
        return any(device.details.get("emulated") == "yes" for device in self.devices)


@attrs.frozen
class Device:
    """An opened device in a worker. ``torch_device`` is what torch takes (``"cpu"``, ``"cuda:0"``)."""

    family: str
    index: int
    torch_device: str
    rank: int = 0
    ranks: int = 1
    core: str = ""


@attrs.frozen
class Launch:
    """How to start the processes of a worker: the argument vector and environment additions (``None`` unsets).

    ``profile_dir`` is where the profiler around them leaves its data, ``None`` where there is none.
    """

    argv: tuple[str, ...]
    env: Mapping[str, str | None] = attrs.field(factory=dict)
    profile_dir: Path | None = None


@attrs.frozen
class TaskRecord:
    """One device task out of a profile; times in microseconds, ``start_ns`` in host epoch nanoseconds."""

    kernel: str
    start_ns: int
    duration_us: float | None
    cells: Mapping[str, str]
    device: int = 0
    stream: str = ""


@runtime_checkable
class DeviceFamily(Protocol):
    """What a device-family plugin offers: a module with these names, or an object.

    It may implement hooks as well (``perfcollect_measure`` rarely: core's default calls ``measure`` below).
    Everything that touches torch imports it inside the function. ``max_ranks`` may say how many ranks one launch can
    have; without it, as many as there are devices. ``deferred`` says that durations come out of the profile of a
    worker after its end, ``exit_seconds`` how long writing that may take, and ``worker_environment()`` gives the
    environment additions of its workers, by which the needs of operators are checked, and
    ``launch_unprofiled`` is ``launch`` without the profiler.
    """

    name: str
    #: Values of ``Accelerator Core`` in rows this family measured, the first one for rows that have none.
    cores: tuple[str, ...]
    #: Normalised dtype words it can build.
    dtypes: frozenset[str]

    def probe(self) -> Probe:
        """Find devices. Parent process: never imports torch there, a child process may."""

    def default_plan(self) -> Plan:
        """Return the plan of a case where the command line says nothing."""

    def launch(self, argv: Sequence[str], ranks: int, device: int, run_dir: Path) -> Launch:
        """Return the command that runs *argv* (the worker) with *ranks* ranks on *device*. Parent process."""

    def device(self, index: int) -> Device:
        """Open a device. Worker process."""

    def environment(self, device: Device) -> Mapping[str, str]:
        """Return versions, settings and clocks worth keeping beside the numbers. Worker process."""

    def measure(self, kernel: Kernel, plan: Plan, device: Device) -> Samples:
        """Warm up, then run *kernel* as *plan* says. Worker process."""

    def synchronize(self, device: Device) -> None:
        """Wait until the device is idle. Worker process."""

    def read_profile(self, profile_dir: Path) -> Sequence[TaskRecord]:
        """Return the device tasks of a finished profiling session; empty where ``measure`` gives durations."""
