"""Facts about processors, read from trees of files as Linux lays them out."""

from __future__ import annotations

from pathlib import Path

import pytest

from perfcollect_core.families import cpu_facts


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Four processors on two cores with one L3 of 32 MiB each pair, base clock 2.4 GHz."""
    monkeypatch.setattr(cpu_facts, "allowed_cpus", lambda: (0, 1, 2, 3))
    for cpu in range(4):
        pair = "0,2" if cpu % 2 == 0 else "1,3"
        files = {
            "topology/thread_siblings_list": pair,
            "cache/index0/level": "1",
            "cache/index0/type": "Data",
            "cache/index0/size": "48K",
            "cache/index0/shared_cpu_list": pair,
            "cache/index1/level": "1",
            "cache/index1/type": "Instruction",
            "cache/index1/size": "32K",
            "cache/index1/shared_cpu_list": pair,
            "cache/index3/level": "3",
            "cache/index3/type": "Unified",
            "cache/index3/size": "32M",
            "cache/index3/shared_cpu_list": pair,
            "cpufreq/base_frequency": "2400000",
            "cpufreq/scaling_cur_freq": str(1_000_000 + 500_000 * cpu),
            "cpufreq/scaling_governor": "powersave",
        }
        for name, text in files.items():
            write(tmp_path / f"sys/devices/system/cpu/cpu{cpu}" / name, text)
    write(tmp_path / "proc/meminfo", "MemTotal:       24684092 kB\nMemFree: 1 kB\n")
    write(tmp_path / "proc/cpuinfo", "processor : 0\nmodel name : Example 9 @ 2.70GHz\ncpu MHz : 2694.1\n")
    return tmp_path


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text + "\n")


def remove(root: Path, pattern: str) -> None:
    for path in root.glob(f"sys/devices/system/cpu/cpu*/{pattern}"):
        path.unlink()


def test_last_level_caches_are_added_up_and_counted_once(machine):
    assert cpu_facts.last_level_cache_bytes(machine) == 2 * 32 * 1024 * 1024


def test_an_unreadable_cache_size_is_not_guessed(tmp_path):
    assert cpu_facts.last_level_cache_bytes(tmp_path) is None


def test_hardware_threads_of_one_core_count_once(machine):
    assert cpu_facts.physical_cores(machine) == 2


def test_the_control_group_limits_threads_and_memory(machine):
    write(machine / "sys/fs/cgroup/cpu.max", "100000 100000")
    write(machine / "sys/fs/cgroup/memory.max", str(4 << 30))

    assert cpu_facts.usable_threads(machine) == 1
    assert cpu_facts.memory_bytes(machine) == 4 << 30


def test_an_unlimited_control_group_limits_nothing(machine):
    write(machine / "sys/fs/cgroup/cpu.max", "max 100000")
    write(machine / "sys/fs/cgroup/memory.max", "max")

    assert cpu_facts.usable_threads(machine) == 2
    assert cpu_facts.memory_bytes(machine) == 24684092 * 1024


def test_the_current_clock_is_the_fastest_processors(machine):
    assert cpu_facts.current_mhz(machine) == 2500.0


def test_the_current_clock_comes_from_cpuinfo_where_there_is_no_driver(machine):
    remove(machine, "cpufreq/scaling_cur_freq")

    assert cpu_facts.current_mhz(machine) == 2694.1


def test_the_nominal_clock_is_the_base_clock_then_the_models_then_the_highest(machine):
    assert cpu_facts.nominal_mhz(machine) == 2400.0

    remove(machine, "cpufreq/base_frequency")
    assert cpu_facts.nominal_mhz(machine) == 2700.0

    write(machine / "proc/cpuinfo", "model name : Example 9")
    assert cpu_facts.nominal_mhz(machine) is None

    write(machine / "sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq", "3500000")
    assert cpu_facts.nominal_mhz(machine) == 3500.0


def test_governor_and_model_are_read(machine):
    assert cpu_facts.governor(machine) == "powersave"
    assert cpu_facts.cpu_model(machine) == "Example 9 @ 2.70GHz"
