"""Gloo on the host's CPUs: the embedded default, on any machine with torch."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from perfcollect_comm.calls import bind_call, zeros
from perfcollect_core import Missing, TaskRecord

if TYPE_CHECKING:
    from torch import Tensor
    from torch.distributed import ProcessGroup

    from perfcollect_comm.plan import Config

name = "gloo"
library = "gloo"
timers = ("host",)


def missing(ranks_here: int) -> Missing | None:
    from importlib.util import find_spec

    if find_spec("torch") is None:
        return Missing("torch", "this Python's site-packages", "pip install torch")
    return None


def memory_bytes(ranks_here: int) -> int:
    pages, page = os.sysconf("SC_AVPHYS_PAGES"), os.sysconf("SC_PAGE_SIZE")
    # Half of what is free: gloo stages a copy of a message.
    return pages * page // 2 // max(1, ranks_here)


def rank_environment(local_rank: int, address: str) -> Mapping[str, str]:
    from perfcollect_comm.network import interface_of

    # Left to itself gloo advertises what the host name resolves to, often loopback: useless between hosts.
    interface = interface_of(address)
    return {"GLOO_SOCKET_IFNAME": interface} if interface else {}


def torch_device(local_rank: int) -> str:
    return "cpu"


def allocate(config: Config, role: str, numel: int, dtype: str, device: str) -> Tensor:
    return zeros(numel, dtype, device)


def bind(config: Config, source: Tensor, target: Tensor, group: ProcessGroup) -> Callable[[], object]:
    return bind_call(config, source, target, group)


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
    import torch

    found = {
        "backend": "gloo",
        "torch": torch.__version__,
        "interface": os.environ.get("GLOO_SOCKET_IFNAME", ""),
    }
    # gloo has no reduce_scatter of its own: it runs an all_reduce and keeps a part.
    return {**found, "reduce_scatter_algorithm": "allreduce-fallback"}
