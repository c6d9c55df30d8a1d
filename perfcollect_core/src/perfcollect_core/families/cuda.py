"""The CUDA device family: kernels run by torch on NVIDIA GPUs, timed with device events."""

from __future__ import annotations

import json
import os
import re
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from importlib import metadata
from pathlib import Path

from perfcollect_core.environment import Device, DeviceInfo, Launch, Missing, Probe, TaskRecord
from perfcollect_core.measurements import Kernel, Plan, Samples
from perfcollect_core.values import TORCH_DTYPES

from .agreement import rank_agreement
from .cpu_facts import usable_threads
from .cuda_clock import CudaEvent, EventClock, l2_eviction
from .cuda_health import DeviceHealth, open_health
from .launching import run_child, thread_env, torchrun_argv, worker_env
from .sampling import Eviction, measure_samples

name = "cuda"
cores = ("GPU",)
dtypes = frozenset(TORCH_DTYPES)

_CHILD_SECONDS = 120.0
#: Any of these says that a driver is loaded (the last one under WSL).
_DRIVER_FILES = ("/proc/driver/nvidia/version", "/dev/nvidiactl", "/dev/dxg")
#: Devices numbered as NVML and nvidia-smi number them.
_ENV: Mapping[str, str | None] = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}


def probe() -> Probe:
    """Find GPUs in a child process; what is missing is said in words, and nothing else is used instead."""
    try:
        torch = metadata.version("torch")
    except metadata.PackageNotFoundError:
        return _missing("torch", f"in the packages of {sys.prefix}", "install a torch built for CUDA")
    versions = {"torch": torch}
    if "+cpu" in torch:
        return _missing(
            "torch built for CUDA",
            f"torch {torch} in {sys.prefix} is built for the CPU only",
            "install the torch build for this machine's CUDA version (pytorch.org names the index)",
            versions,
        )
    if not any(Path(path).exists() for path in _DRIVER_FILES):
        return _missing(
            "an NVIDIA driver",
            f"none of {', '.join(_DRIVER_FILES)} exists",
            "install the NVIDIA driver, or give the container its GPUs (docker run --gpus all)",
            versions,
        )
    return _probe_child(_ask_child(), versions)


def _probe_child(answer: Mapping[str, object], versions: Mapping[str, str]) -> Probe:
    entries = answer.get("devices")
    found = [entry for entry in entries if isinstance(entry, dict)] if isinstance(entries, list) else []
    told = answer.get("versions")
    versions = {**versions, **({str(k): str(v) for k, v in told.items()} if isinstance(told, dict) else {})}
    if answer.get("error"):
        return _missing(
            "a CUDA device that starts",
            f"torch said: {answer['error']}",
            "check nvidia-smi, and that the driver is new enough for this torch",
            versions,
        )
    if not found:
        hidden = os.environ.get("CUDA_VISIBLE_DEVICES")
        looked = "torch.cuda reports no device"
        if hidden is not None:
            looked += f" under CUDA_VISIBLE_DEVICES={hidden!r}"
        fix = "correct or unset CUDA_VISIBLE_DEVICES" if hidden is not None else "check nvidia-smi"
        return _missing("a CUDA device", looked, fix, versions)
    return Probe(devices=tuple(_device_info(entry) for entry in found), versions=versions)


def _device_info(entry: Mapping[str, object]) -> DeviceInfo:
    model = str(entry["name"])
    word = re.sub(r"[^A-Z0-9]+", "_", model.upper().removeprefix("NVIDIA ")).strip("_")
    details = {
        "model": model,
        "capability": str(entry.get("capability", "")),
        "l2_bytes": str(entry.get("l2_bytes", "")),
    }
    return DeviceInfo(int(str(entry["index"])), f"CUDA_{word}", int(str(entry["memory_bytes"])), details)


def _missing(what: str, looked: str, fix: str, versions: Mapping[str, str] | None = None) -> Probe:
    return Probe(missing=(Missing(what, looked, fix),), versions=versions or {})


def _ask_child() -> Mapping[str, object]:
    with tempfile.TemporaryDirectory(prefix="perfcollect-probe-") as directory:
        answer = Path(directory, "answer.json")
        argv = (sys.executable, "-m", "perfcollect_core.families.cuda_child", str(answer))
        ended = run_child(argv, {**worker_env(), **_ENV}, seconds=_CHILD_SECONDS)
        try:
            found = json.loads(answer.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {"error": f"the probing process {ended}"}
        return found if isinstance(found, dict) else {"error": "the probing process gave no object"}


def default_plan() -> Plan:
    """Return a plan for device time, which is steadier than a host clock."""
    return Plan(repeat=None, warmup=5, precision=0.01, max_seconds=2.0)


def launch(argv: Sequence[str], ranks: int, device: int, run_dir: Path) -> Launch:
    """Return the worker's command; several ranks run under torchrun, one GPU each."""
    # The host only draws inputs; a few threads do, and eight workers leave the machine usable.
    env = {**worker_env(), **_ENV, **thread_env(max(1, min(4, usable_threads() // ranks)))}
    return Launch(torchrun_argv(argv, ranks) if ranks > 1 else tuple(argv), env)


def device(index: int) -> Device:
    """Open GPU *index* (with several ranks: the one of this rank) and fix the precision of float32 products."""
    import torch

    ranks = int(os.environ.get("WORLD_SIZE", "1"))
    number = int(os.environ.get("LOCAL_RANK", "0")) if ranks > 1 else index
    torch.cuda.set_device(number)
    torch.set_float32_matmul_precision("highest")
    return Device(
        family=name,
        index=number,
        torch_device=f"cuda:{number}",
        rank=int(os.environ.get("RANK", "0")),
        ranks=ranks,
        core=cores[0],
    )


def environment(device: Device) -> Mapping[str, str]:
    """Return versions, precision settings, clocks, power limit and cache size."""
    import torch

    properties = torch.cuda.get_device_properties(device.index)
    facts = {
        "torch": str(torch.__version__),
        "cuda": str(torch.version.cuda or ""),
        "cudnn": str(torch.backends.cudnn.version() or ""),
        "gpu": str(properties.name),
        "multiprocessors": str(properties.multi_processor_count),
        "l2_bytes": str(getattr(properties, "L2_cache_size", "")),
        "float32_matmul_precision": str(torch.get_float32_matmul_precision()),
    }
    health = _health(device.index)
    if health:
        facts.update(health.facts())
    else:
        facts["clocks"] = "not readable: install nvidia-ml-py"
    return {key: value for key, value in facts.items() if value}


@lru_cache(maxsize=8)
def _health(index: int) -> DeviceHealth | None:
    import torch

    return open_health(str(getattr(torch.cuda.get_device_properties(index), "uuid", "")), index)


class _TorchRuntime:
    """``torch.cuda`` as the clock wants it."""

    def __init__(self) -> None:
        import torch

        self._cuda = torch.cuda
        # A private function of torch (used by its own tests); without it small kernels keep their launch gaps.
        self._sleep: Callable[[int], object] | None = getattr(torch.cuda, "_sleep", None)

    def event(self) -> CudaEvent:
        made: CudaEvent = self._cuda.Event(enable_timing=True)
        return made

    def spin(self, cycles: int) -> None:
        if self._sleep is not None:
            self._sleep(cycles)


@lru_cache(maxsize=8)
def _clock(index: int) -> EventClock:
    return EventClock(_TorchRuntime(), _health(index))


@lru_cache(maxsize=8)
def _eviction(index: int) -> Eviction:
    import torch

    def allocate(size: int) -> Callable[[], object]:
        buffer = torch.empty(size // 4, dtype=torch.int32, device=f"cuda:{index}")
        overwrite: Callable[[], object] = buffer.zero_
        return overwrite

    return l2_eviction(int(getattr(torch.cuda.get_device_properties(index), "L2_cache_size", 0)), allocate)


def measure(kernel: Kernel, plan: Plan, device: Device) -> Samples:
    """Measure *kernel* with device events on the current stream, autograd off."""
    import torch

    eviction = _eviction(device.index) if plan.cache == "cold" else None
    with torch.no_grad():
        return measure_samples(kernel, plan, _clock(device.index), eviction, rank_agreement(device))


def synchronize(device: Device) -> None:
    """Wait until the GPU is idle; errors of earlier launches surface here."""
    import torch

    torch.cuda.synchronize(device.index)


def read_profile(profile_dir: Path) -> Sequence[TaskRecord]:
    """Return nothing: ``measure`` gives the durations."""
    return ()
