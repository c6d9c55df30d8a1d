"""HCCL on Ascend NPUs; it needs torch_npu and a CANN that loads."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from perfcollect_comm.calls import bind_call, zeros
from perfcollect_core import Missing, TaskRecord
from perfcollect_core.loading import load_family

if TYPE_CHECKING:
    from torch import Tensor
    from torch.distributed import ProcessGroup

    from perfcollect_comm.plan import Config
    from perfcollect_core import DeviceFamily, Probe

name = "hccl"
library = "hccl"
timers = ("event", "kernel")


def _probe() -> Probe:
    family: DeviceFamily = load_family("ascend").plugin  # type: ignore[assignment]  # compose() checks it elsewhere
    return family.probe()


def missing(ranks_here: int) -> Missing | None:
    probe = _probe()
    if not probe.devices:
        return (
            probe.missing[0]
            if probe.missing
            else Missing("an Ascend NPU", "the ascend family's probe", "see doctor")
        )
    if len(probe.devices) < ranks_here:
        count = len(probe.devices)
        return Missing(f"{ranks_here} NPUs", f"{count} visible", f"lower --nproc to {count}")
    return None


def memory_bytes(ranks_here: int) -> int:
    sizes = [device.memory_bytes for device in _probe().devices]
    return min(sizes) * 8 // 10 if sizes else 0


def rank_environment(local_rank: int, address: str) -> Mapping[str, str]:
    return {}


def torch_device(local_rank: int) -> str:
    import torch
    import torch_npu  # noqa: F401  # registers the npu device

    torch.npu.set_device(local_rank)
    return f"npu:{local_rank}"


def allocate(config: Config, role: str, numel: int, dtype: str, device: str) -> Tensor:
    return zeros(numel, dtype, device)


def bind(config: Config, source: Tensor, target: Tensor, group: ProcessGroup) -> Callable[[], object]:
    return bind_call(config, source, target, group)


def synchronize() -> None:
    import torch

    torch.npu.synchronize()


def kernel_pattern(config: Config) -> str:
    return ""


def profiled(argv: Sequence[str], run_dir: Path) -> tuple[tuple[str, ...], Path] | None:
    from perfcollect_core.families.ascend_launch import launch_profiled

    launch = launch_profiled(argv, 1, 0, run_dir)
    assert launch.profile_dir is not None
    return launch.argv, launch.profile_dir


def read_profile(profile_dir: Path) -> Sequence[TaskRecord]:
    from perfcollect_core.profiles.op_summary import read_session

    return read_session(profile_dir).tasks


def device_number(local_rank: int) -> int:
    listed = [
        word.strip() for word in os.environ.get("ASCEND_RT_VISIBLE_DEVICES", "").split(",") if word.strip()
    ]
    return (
        int(listed[local_rank]) if local_rank < len(listed) and listed[local_rank].isdecimal() else local_rank
    )


def environment() -> Mapping[str, str]:
    import torch
    import torch_npu

    settings = {key: value for key, value in os.environ.items() if key.startswith("HCCL_")}
    return {"backend": "hccl", "torch": torch.__version__, "torch_npu": torch_npu.__version__, **settings}
