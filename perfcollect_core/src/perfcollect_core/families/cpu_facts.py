"""What the operating system says about this machine's processors: model, caches, clocks, memory, limits.

Read from files where Linux has them; a fact that cannot be read is left out, never guessed.
"""

from __future__ import annotations

import contextlib
import math
import os
import platform
import re
from collections.abc import Iterator
from pathlib import Path

__all__ = [
    "allowed_cpus",
    "cpu_model",
    "current_mhz",
    "governor",
    "last_level_cache_bytes",
    "memory_bytes",
    "nominal_mhz",
    "physical_cores",
    "usable_threads",
]

_ROOT = Path("/")


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


def _cpu_dirs(root: Path) -> Iterator[Path]:
    for cpu in allowed_cpus():
        directory = root / f"sys/devices/system/cpu/cpu{cpu}"
        if directory.is_dir():
            yield directory


def allowed_cpus() -> tuple[int, ...]:
    """Return the processors this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return tuple(sorted(os.sched_getaffinity(0)))
    return tuple(range(os.cpu_count() or 1))


def cpu_model(root: Path = _ROOT) -> str:
    """Return the processor's name."""
    for line in _read(root / "proc/cpuinfo").splitlines():
        name, _, value = line.partition(":")
        if name.strip() in ("model name", "Hardware", "CPU implementer") and value.strip():
            return value.strip()
    return platform.processor() or platform.machine()


def memory_bytes(root: Path = _ROOT) -> int:
    """Return the memory this process may use: the machine's, or its control group's limit where that is lower."""
    found = re.search(r"^MemTotal:\s+(\d+) kB", _read(root / "proc/meminfo"), re.MULTILINE)
    if found:
        total = int(found[1]) * 1024
    else:
        total = 0
        with contextlib.suppress(ValueError, OSError, AttributeError):
            total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for path in ("sys/fs/cgroup/memory.max", "sys/fs/cgroup/memory/memory.limit_in_bytes"):
        limit = _read(root / path)
        if limit.isdigit() and 0 < int(limit) < (total or math.inf):
            total = int(limit)
    return total


def _quota_cpus(root: Path) -> float:
    quota, _, period = _read(root / "sys/fs/cgroup/cpu.max").partition(" ")
    return int(quota) / int(period) if quota.isdigit() and period.isdigit() and int(period) else math.inf


def physical_cores(root: Path = _ROOT) -> int:
    """Return the cores behind the allowed processors, hardware threads of one core counted once."""
    siblings = {_read(d / "topology/thread_siblings_list") or d.name for d in _cpu_dirs(root)}
    return len(siblings) or len(allowed_cpus())


def usable_threads(root: Path = _ROOT) -> int:
    """Return how many threads a kernel should use: physical cores, within the control group's share of time."""
    return max(1, min(physical_cores(root), math.ceil(min(_quota_cpus(root), 1 << 20))))


def last_level_cache_bytes(root: Path = _ROOT) -> int | None:
    """Return the bytes of all last-level caches the allowed processors reach, ``None`` where not readable."""
    caches: dict[str, tuple[int, int]] = {}
    for directory in _cpu_dirs(root):
        for index in directory.glob("cache/index*"):
            size = re.fullmatch(r"(\d+)([KMG])", _read(index / "size"))
            level = _read(index / "level")
            if size and level.isdigit() and _read(index / "type") != "Instruction":
                count = int(size[1]) * {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}[size[2]]
                shared = _read(index / "shared_cpu_list") or directory.name
                caches[f"{level}:{shared}"] = (int(level), count)
    if not caches:
        return None
    last = max(level for level, _ in caches.values())
    return sum(count for level, count in caches.values() if level == last)


def nominal_mhz(root: Path = _ROOT) -> float | None:
    """Return the base clock: what the driver calls base, else the clock in the model's name, else the highest."""
    for name in ("cpufreq/base_frequency", "acpi_cppc/nominal_freq"):
        values = [_read(d / name) for d in _cpu_dirs(root)]
        numbers = [int(v) for v in values if v.isdigit() and int(v)]
        if numbers:
            return max(numbers) / (1000 if "cpufreq" in name else 1)
    named = re.search(r"@\s*([\d.]+)\s*GHz", cpu_model(root))
    if named:
        return float(named[1]) * 1000
    highest = [_read(d / "cpufreq/cpuinfo_max_freq") for d in _cpu_dirs(root)]
    numbers = [int(v) for v in highest if v.isdigit()]
    return max(numbers) / 1000 if numbers else None


def current_mhz(root: Path = _ROOT) -> float | None:
    """Return the highest clock of the allowed processors right now: the one that runs this."""
    values = [_read(d / "cpufreq/scaling_cur_freq") for d in _cpu_dirs(root)]
    numbers = [int(v) / 1000 for v in values if v.isdigit()]
    if not numbers:
        numbers = [
            float(m)
            for m in re.findall(r"^cpu MHz\s*:\s*([\d.]+)", _read(root / "proc/cpuinfo"), re.MULTILINE)
        ]
    return max(numbers) if numbers else None


def governor(root: Path = _ROOT) -> str:
    """Return the frequency governors in use, empty where there are none."""
    found = {_read(d / "cpufreq/scaling_governor") for d in _cpu_dirs(root)}
    return ",".join(sorted(found - {""}))
