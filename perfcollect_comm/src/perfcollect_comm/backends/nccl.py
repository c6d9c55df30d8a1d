"""NCCL on CUDA GPUs, timed with device events or profiler records."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from perfcollect_comm.calls import bind_call, zeros
from perfcollect_core import Missing, TaskRecord

if TYPE_CHECKING:
    from torch import Tensor
    from torch.distributed import ProcessGroup

    from perfcollect_comm.plan import Config

name = "nccl"
library = "nccl"
timers = ("event", "kernel")


def missing(ranks_here: int) -> Missing | None:
    count = len(_memory_mib())
    if count == 0:
        return Missing("an NVIDIA GPU", "nvidia-smi", "install the driver, or run on a machine with GPUs")
    if count < ranks_here:
        # Two ranks on one GPU are refused by NCCL itself.
        return Missing(f"{ranks_here} GPUs", f"nvidia-smi: {count}", f"lower --nproc to {count}")
    return None


def memory_bytes(ranks_here: int) -> int:
    free = _memory_mib()
    return min(free) * 2**20 * 9 // 10 if free else 0


def _memory_mib() -> list[int]:
    """Return the free memory of each visible GPU, in MiB; empty where there is none."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return []
    asked = [tool, "--query-gpu=memory.free", "--format=csv,noheader,nounits"]
    try:
        answer = subprocess.run(asked, capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return []
    return [int(line) for line in answer.stdout.split() if line.isdigit()] if answer.returncode == 0 else []


def rank_environment(local_rank: int, address: str) -> Mapping[str, str]:
    return {}


def torch_device(local_rank: int) -> str:
    import torch

    torch.cuda.set_device(local_rank)
    return f"cuda:{local_rank}"


def allocate(config: Config, role: str, numel: int, dtype: str, device: str) -> Tensor:
    return zeros(numel, dtype, device)


def bind(config: Config, source: Tensor, target: Tensor, group: ProcessGroup) -> Callable[[], object]:
    return bind_call(config, source, target, group)


def synchronize() -> None:
    import torch

    torch.cuda.synchronize()


def kernel_pattern(config: Config) -> str:
    names = {"all_reduce": "AllReduce", "all_gather": "AllGather", "reduce_scatter": "ReduceScatter"}
    # NCCL builds all-to-all out of grouped sends and receives.
    kernel = names.get(config.op, "Broadcast" if config.op == "broadcast" else "SendRecv")
    return f"ncclDevKernel_{kernel}"


def profiled(argv: Sequence[str], run_dir: Path) -> tuple[tuple[str, ...], Path] | None:
    return None


def read_profile(profile_dir: Path) -> Sequence[TaskRecord]:
    return ()


def device_number(local_rank: int) -> int:
    return local_rank


def environment() -> Mapping[str, str]:
    import torch

    settings = {key: value for key, value in os.environ.items() if key.startswith("NCCL_")}
    version = ".".join(map(str, torch.cuda.nccl.version()))
    return {"backend": "nccl", "torch": torch.__version__, "nccl": version, **settings}
