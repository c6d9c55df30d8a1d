"""The Ascend device family: NPUs driven through torch_npu, durations out of msprof."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path

from perfcollect_core.environment import Device, Launch, Probe, TaskRecord
from perfcollect_core.measurements import Kernel, Plan, Samples
from perfcollect_core.profiles.op_summary import read_session
from perfcollect_core.values import TORCH_DTYPES

from .ascend_launch import launch_plain, launch_profiled, msprof_options
from .ascend_launch import worker_environment as _worker_environment
from .ascend_measure import has_ranges, measure_in_brackets
from .ascend_probe import probe_ascend
from .ascend_visible import VARIABLE
from .cuda_clock import l2_eviction
from .sampling import Eviction

name = "ascend"
cores = ("AI_CORE", "AI_VECTOR_CORE", "MIX_AIC", "MIX_AIV", "AI_CPU")
#: INT4 is built packed, two elements a byte, through torch_npu.
dtypes = frozenset(TORCH_DTYPES) | {"INT4"}
#: Durations come out of the profile of a worker.
deferred = True
#: msprof exports that long at most once its program has ended.
exit_seconds = 600.0

#: Size of the last-level cache of A2 and A3 dies, where torch_npu does not tell it.
_L2_BYTES = 192 << 20
#: The head of a profile may be lost: these launches are nobody's.
_PROLOGUE_LAUNCHES = 20
_RECORDED = (
    "TASK_QUEUE_ENABLE",
    "ASCEND_LAUNCH_BLOCKING",
    "ASCEND_CUSTOM_OPP_PATH",
    "HCCL_BUFFSIZE",
    VARIABLE,
)


def probe() -> Probe:
    """Find NPUs, torch_npu, CANN, driver and msprof; what is missing is said with its fix. Never another family."""
    return probe_ascend()


def default_plan() -> Plan:
    """Return a plan for device time out of the profiler, which is steadier than a host clock."""
    return Plan(repeat=None, warmup=5, precision=0.01, max_seconds=2.0)


def worker_environment() -> tuple[Mapping[str, str], tuple[str, ...]]:
    """Return the additions every worker is started with and a sentence for each. Parent process."""
    found = _worker_environment()
    return found.env, found.said


def launch(argv: Sequence[str], ranks: int, device: int, run_dir: Path) -> Launch:
    """Return the worker's command under msprof; several ranks run under torchrun inside it."""
    return launch_profiled(argv, ranks, device, run_dir)


def launch_unprofiled(argv: Sequence[str], ranks: int, device: int, run_dir: Path) -> Launch:
    """Return the command of a process that replays under nobody's or the user's own profiler."""
    return launch_plain(argv, ranks, device)


def device(index: int) -> Device:
    """Open an NPU (with several ranks: the one of this rank) and fix what changes which kernels run."""
    import torch
    import torch_npu  # noqa: F401  # registers torch.npu

    ranks = int(os.environ.get("WORLD_SIZE", "1"))
    number = int(os.environ.get("LOCAL_RANK", "0")) if ranks > 1 else _only_visible(index)
    torch.npu.set_device(number)
    # Without it the cast to FRACTAL_NZ does nothing; with compiling on, half of all calls launch other kernels.
    torch.npu.config.allow_internal_format = True
    torch.npu.set_compile_mode(jit_compile=False)
    torch.npu.matmul.allow_hf32 = False
    torch.npu.conv.allow_hf32 = False
    _prologue(number)
    return Device(
        family=name,
        index=index if ranks == 1 else number,
        torch_device=f"npu:{number}",
        rank=int(os.environ.get("RANK", "0")),
        ranks=ranks,
        core="",
    )


def _only_visible(index: int) -> int:
    listed = [word for word in os.environ.get(VARIABLE, "").split(",") if word.strip()]
    return 0 if len(listed) == 1 else index


def _prologue(number: int) -> None:
    import torch

    ones = torch.ones(16, device=f"npu:{number}")
    for _ in range(_PROLOGUE_LAUNCHES):
        ones.neg()
    torch.npu.synchronize()


def environment(device: Device) -> Mapping[str, str]:
    """Return versions, the settings that decide which kernels run, and how cases are bracketed."""
    import torch
    import torch_npu

    properties = torch.npu.get_device_properties(device.torch_device)
    facts = {
        "torch": str(torch.__version__),
        "torch_npu": str(torch_npu.__version__),
        "cann": str(getattr(getattr(torch_npu, "version", None), "cann", "") or ""),
        "soc": str(properties.name),
        "python": platform.python_version(),
        "os": platform.platform(),
        "allow_internal_format": _internal_format(),
        "jit_compile": "False" if torch.npu.is_jit_compile_false() else "True",
        "matmul_allow_hf32": str(torch.npu.matmul.allow_hf32),
        "conv_allow_hf32": str(torch.npu.conv.allow_hf32),
        "brackets": "mstx ranges and host epoch" if has_ranges(os.environ) else "host epoch",
        "msprof_options": " ".join(msprof_options(os.environ)),
        **{variable: os.environ.get(variable, "") for variable in _RECORDED},
    }
    return {key: value for key, value in facts.items() if value}


def _internal_format() -> str:
    """Return whether internal formats are on: torch_npu's own switch can be set and not read."""
    import torch_npu

    read = getattr(torch_npu._C, "_npu_getOption", None)
    value = read("ALLOW_INTERNAL_FORMAT") if read is not None else None
    return "set" if value is None else str(value.decode() == "enable")


class _TorchNpu:
    """``torch.npu`` as measuring wants it."""

    def __init__(self) -> None:
        import torch

        self._npu = torch.npu
        self._pair = tuple(torch.npu.Event(enable_timing=True) for _ in range(2))
        self._ranges = has_ranges(os.environ)

    def synchronize(self) -> None:
        self._npu.synchronize()

    def time_us(self, call: Callable[[], object]) -> float:
        start, end = self._pair
        start.record()
        call()
        end.record()
        # Never the event's own wait: after an error in the queue it spins for ever.
        self._npu.synchronize()
        return max(float(start.elapsed_time(end)) * 1000, 1e-3)

    def open_range(self, name: str) -> int:
        if not self._ranges:
            return 0
        return int(self._npu.mstx.range_start(name, self._npu.current_stream()))

    def close_range(self, number: int) -> None:
        if number:
            self._npu.mstx.range_end(number)


@lru_cache(maxsize=1)
def _runtime() -> _TorchNpu:
    return _TorchNpu()


@lru_cache(maxsize=1)
def _eviction(torch_device: str) -> Eviction:
    import torch

    def allocate(size: int) -> Callable[[], object]:
        buffer = torch.zeros(size // 4, dtype=torch.int32, device=torch_device)
        overwrite: Callable[[], object] = buffer.zero_
        return overwrite

    properties = torch.npu.get_device_properties(torch_device)
    return l2_eviction(int(getattr(properties, "L2_cache_size", 0) or _L2_BYTES), allocate)


def measure(kernel: Kernel, plan: Plan, device: Device) -> Samples:
    """Launch *kernel* in brackets, autograd off; the profile brings the durations."""
    import torch

    eviction = _eviction(device.torch_device) if plan.cache == "cold" else None
    with torch.no_grad():
        return measure_in_brackets(kernel, plan, _runtime(), eviction, ranks=device.ranks)


def synchronize(device: Device) -> None:
    """Wait until the NPU is idle; errors of earlier launches surface here."""
    import torch

    torch.npu.synchronize()


def read_profile(profile_dir: Path) -> Sequence[TaskRecord]:
    """Return the device tasks of a session that has ended."""
    return read_session(profile_dir).tasks
