"""What a communication backend offers: a plugin of the group ``perfcollect.comm_backends``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from perfcollect_core import Missing, TaskRecord

if TYPE_CHECKING:
    from torch import Tensor
    from torch.distributed import ProcessGroup

    from .plan import Config

__all__ = ["CommBackend"]


@runtime_checkable
class CommBackend(Protocol):
    """A module with these names. What touches torch imports it inside the function."""

    name: str
    #: What torch.distributed calls the library.
    library: str
    #: How durations may be taken, the default first: ``host`` (blocking calls), ``event`` (device events), ``kernel``
    #: (profiler records), ``virtual`` (a simulated call returns its duration), ``none`` (planning only).
    timers: tuple[str, ...]

    def missing(self, ranks_here: int) -> Missing | None:
        """Say what this machine lacks to run *ranks_here* ranks, ``None`` where it can. Never imports torch."""

    def memory_bytes(self, ranks_here: int) -> int:
        """Return the bytes one rank's buffers may take, 0 where unknown. Never imports torch."""

    def rank_environment(self, local_rank: int, address: str) -> Mapping[str, str]:
        """Return variables to set before torch is imported in a rank; *address* is this host's own address."""

    def torch_device(self, local_rank: int) -> str:
        """Open the rank's device and return what torch calls it."""

    def allocate(self, config: Config, role: str, numel: int, dtype: str, device: str) -> Tensor:
        """Return a zeroed buffer of *numel* elements for *role* (``input`` or ``output``)."""

    def bind(
        self, config: Config, source: Tensor, target: Tensor, group: ProcessGroup
    ) -> Callable[[], object]:
        """Return the collective call, without arguments; it may be asynchronous on a device."""

    def synchronize(self) -> None:
        """Wait until the rank's device is idle."""

    def kernel_pattern(self, config: Config) -> str:
        """Return the pattern of the profiler's name of the kernel, empty where there is no ``kernel`` timer."""

    def profiled(self, argv: Sequence[str], run_dir: Path) -> tuple[tuple[str, ...], Path] | None:
        """Return the command that runs *argv* under the device's profiler and where the profile goes.

        ``None`` where the ranks' own profiler, or none, times kernels. Never imports torch.
        """

    def read_profile(self, profile_dir: Path) -> Sequence[TaskRecord]:
        """Return the device tasks of a profile whose processes have ended. Never imports torch."""

    def device_number(self, local_rank: int) -> int:
        """Return the number profiles give the rank's device."""

    def environment(self) -> Mapping[str, str]:
        """Return versions and variables that belong to the numbers."""
