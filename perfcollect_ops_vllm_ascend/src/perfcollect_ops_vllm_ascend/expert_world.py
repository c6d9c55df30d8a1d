"""The ranks of an expert-parallel case: joining their process group and measuring in step (worker)."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from perfcollect_core import Case, Device, Kernel, Plan, Samples
from perfcollect_core.errors import CaseError

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

__all__ = ["join_world", "measure_together"]

_BACKENDS = {"ascend": "hccl", "cuda": "nccl"}
#: Launches between two looks at whether it is enough; all ranks look at the same numbers.
_CHUNK = 5
_FEWEST_SAMPLES = 10
_MAX_SAMPLES = 1000
#: Launches where a profiler supplies durations later and nothing says when to stop.
_DEFERRED_LAUNCHES = 20
#: Idle time around the window a profiler's records are looked for in.
_IDLE_SECONDS = 0.002

_control: ProcessGroup | None = None


def join_world(case: Case, device: Device) -> None:
    """Join the process group torchrun's environment describes, once a process; one rank needs none.

    Raises:
        CaseError: This launch has another number of ranks than the case.
    """
    if device.ranks != case.ranks:
        raise CaseError(
            f"EP size {case.ranks} needs {case.ranks} ranks, this launch has {device.ranks}", case=case
        )
    # The fused kernel finds its peers through a group even if it has none.
    if device.ranks == 1 and device.family != "ascend":
        return
    import torch.distributed as dist

    if not dist.is_initialized():
        dist.init_process_group(_BACKENDS.get(device.family, "gloo"))


def _control_group() -> ProcessGroup:
    """Return a gloo group for barriers and counts, which must not launch anything on the device."""
    global _control
    import torch.distributed as dist

    if _control is None:
        _control = dist.group.WORLD if dist.get_backend() == "gloo" else dist.new_group(backend="gloo")
    return _control


def measure_together(kernel: Kernel, plan: Plan, device: Device) -> Samples:
    """Measure on all ranks with equally many launches, each after a barrier; every rank returns its own durations.

    Rank 0's clock and the slowest rank's durations decide when it is enough, so that no rank launches alone.
    """
    import torch.distributed as dist

    group = _control_group()
    started = time.perf_counter()
    warmup = [_launch(kernel, device, group) for _ in range(max(1, plan.warmup))]
    if device.family == "ascend":
        return _measure_window(kernel, plan, device, group)
    own: list[float] = []
    slowest: list[float] = []
    stop = ""
    while not stop:
        chunk = [
            _launch(kernel, device, group) for _ in range(_CHUNK if plan.repeat is None else plan.repeat)
        ]
        own += chunk
        slowest += _slowest(chunk, group)
        decision = [_decide(slowest, plan, time.perf_counter() - started)]
        dist.broadcast_object_list(decision, src=0, group=group)
        stop = decision[0]
    cache = "warm" if plan.cache == "warm" else f"{plan.cache} requested, not achieved"
    return Samples(tuple(own), stop=stop, warmup_us=tuple(warmup), cache=cache, launches=len(own))


def _launch(kernel: Kernel, device: Device, group: ProcessGroup) -> float:
    import torch.distributed as dist

    if kernel.reset is not None:
        kernel.reset()
    _synchronize(device)
    dist.barrier(group=group)
    start = time.perf_counter_ns()
    kernel.call()
    _synchronize(device)
    return max(time.perf_counter_ns() - start, 1) / 1000


def _synchronize(device: Device) -> None:
    import torch

    if device.family == "cuda":
        torch.cuda.synchronize(device.torch_device)
    elif device.family == "ascend":
        torch.npu.synchronize()


def _slowest(chunk: list[float], group: ProcessGroup) -> list[float]:
    import torch
    import torch.distributed as dist

    durations = torch.tensor(chunk, dtype=torch.float64)
    dist.all_reduce(durations, op=dist.ReduceOp.MAX, group=group)
    return [float(value) for value in durations.tolist()]


def _decide(slowest: list[float], plan: Plan, elapsed_seconds: float) -> str:
    from perfcollect_core.runner.statistics import relative_half_width

    if plan.repeat is not None:
        return "repeat"
    if len(slowest) >= _FEWEST_SAMPLES and relative_half_width(slowest) <= plan.precision:
        return "precision"
    return "budget" if elapsed_seconds >= plan.max_seconds or len(slowest) >= _MAX_SAMPLES else ""


def _measure_window(kernel: Kernel, plan: Plan, device: Device, group: ProcessGroup) -> Samples:
    """Launch a fixed number of times; the profiler of each rank knows how long they took."""
    launches = plan.repeat or _DEFERRED_LAUNCHES
    _synchronize(device)
    # The device's clock may be off the host's: warm-up ends well before the window, nothing follows it soon.
    time.sleep(_IDLE_SECONDS)
    begin = time.time_ns()
    for _ in range(launches):
        _launch(kernel, device, group)
    end = time.time_ns()
    time.sleep(_IDLE_SECONDS)
    return Samples(window_ns=(begin, end), launches=launches)
