"""Planning at any world size: says what a sweep would do and never runs one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from perfcollect_core import Missing, TaskRecord
from perfcollect_core.errors import DeviceUnavailableError

if TYPE_CHECKING:
    from torch import Tensor
    from torch.distributed import ProcessGroup

    from perfcollect_comm.plan import Config

name = "fake"
library = "fake"
timers = ("none",)


def missing(ranks_here: int) -> Missing | None:
    return Missing(
        "a communication library", "backend fake only plans", "use --backend gloo, nccl or hccl to measure"
    )


def memory_bytes(ranks_here: int) -> int:
    return 0


def rank_environment(local_rank: int, address: str) -> Mapping[str, str]:
    return {}


def torch_device(local_rank: int) -> str:
    raise DeviceUnavailableError("backend fake has no device, it only plans")


def allocate(config: Config, role: str, numel: int, dtype: str, device: str) -> Tensor:
    raise DeviceUnavailableError("backend fake has no device, it only plans")


def bind(config: Config, source: Tensor, target: Tensor, group: ProcessGroup) -> Callable[[], object]:
    raise DeviceUnavailableError("backend fake has no device, it only plans")


def synchronize() -> None:
    return None


def kernel_pattern(config: Config) -> str:
    return ""


def profiled(argv: Sequence[str], run_dir: Path) -> tuple[tuple[str, ...], Path] | None:
    return None


def read_profile(profile_dir: Path) -> Sequence[TaskRecord]:
    return ()


def device_number(local_rank: int) -> int:
    return local_rank


def environment() -> Mapping[str, str]:
    return {"backend": "fake"}
