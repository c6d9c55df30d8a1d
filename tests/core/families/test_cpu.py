"""The CPU family on this machine."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

from perfcollect_core.environment import DeviceFamily
from perfcollect_core.families import cpu, launching
from perfcollect_core.measurements import Kernel, Plan


def test_the_module_satisfies_the_family_protocol():
    assert isinstance(cpu, DeviceFamily)
    assert (cpu.name, cpu.cores) == ("cpu", ("CPU",))


def test_probing_imports_no_torch():
    code = (
        "import sys; from perfcollect_core.families import cpu; cpu.probe(); "
        "cpu.launch(['x'], 1, 0, None); print('torch' in sys.modules)"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "False"


def test_a_machine_without_torch_has_no_device_and_says_why(monkeypatch):
    def not_there(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", not_there)

    found = cpu.probe()

    assert found.devices == ()
    (missing,) = found.missing
    assert missing.what == "torch"
    assert missing.looked == f"in the packages of {sys.prefix}"
    assert missing.fix.startswith("install torch into this environment")


def test_the_device_is_named_after_the_machine(monkeypatch):
    monkeypatch.setattr(metadata, "version", lambda name: "2.13.0+cpu")
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")

    found = cpu.probe()

    assert [d.name for d in found.devices] == ["CPU_AARCH64"]
    assert found.versions == {"torch": "2.13.0+cpu"}
    assert found.devices[0].memory_bytes > 1 << 28


def test_a_worker_is_started_as_given_with_explicit_threads(tmp_path, monkeypatch):
    for variable in launching.THREAD_VARIABLES:
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(cpu.cpu_facts, "usable_threads", lambda: 6)

    started = cpu.launch([sys.executable, "-m", "worker"], 1, 0, tmp_path)

    assert started.argv == (sys.executable, "-m", "worker")
    assert started.env["OMP_NUM_THREADS"] == started.env["MKL_NUM_THREADS"] == "6"
    assert started.env["TORCH_DEVICE_BACKEND_AUTOLOAD"] == "0"
    assert started.env["PYTHONSAFEPATH"] == "1"


def test_ranks_share_the_cores(tmp_path, monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(cpu.cpu_facts, "usable_threads", lambda: 6)

    started = cpu.launch(["worker"], 2, 0, tmp_path)

    assert started.env["OMP_NUM_THREADS"] == "3"
    assert "--nproc-per-node=2" in started.argv
    assert started.argv[-2:] == ("--no-python", "worker")


def test_a_thread_count_the_user_set_stays(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("MKL_NUM_THREADS", "2")

    env = launching.thread_env(6)

    assert (env["OMP_NUM_THREADS"], env["MKL_NUM_THREADS"]) == ("1", "2")
    assert env["OPENBLAS_NUM_THREADS"] == "1"


TWO_RANKS = """
import json, os, sys, time
import torch
import torch.distributed as dist
from perfcollect_core.families import cpu
from perfcollect_core.measurements import Kernel, Plan

dist.init_process_group("gloo")
rank, calls, tensor = dist.get_rank(), 0, torch.ones(1000)

def call():
    global calls
    calls += 1
    # A rank of its own mind would stop at another time than the other.
    time.sleep(0.002 * rank * (calls % 3))
    dist.all_reduce(tensor)

samples = cpu.measure(Kernel(call), Plan(max_seconds=0.4), cpu.device(0))
facts = {
    "world": dist.get_world_size(), "calls": calls, "stop": samples.stop, "threads": os.environ["OMP_NUM_THREADS"]
}
with open(os.path.join(sys.argv[1], f"rank{rank}.json"), "w") as stream:
    json.dump(facts, stream)
dist.destroy_process_group()
"""


@pytest.mark.torch
def test_two_ranks_meet_over_the_loopback_and_launch_a_collective_equally_often(tmp_path):
    pytest.importorskip("torch")
    script = tmp_path / "rank.py"
    script.write_text(TWO_RANKS)
    started = cpu.launch([sys.executable, str(script), str(tmp_path)], 2, 0, tmp_path)
    env = {**os.environ, **{k: v for k, v in started.env.items() if v is not None}}

    subprocess.run(started.argv, env=env, check=True, capture_output=True, timeout=120)

    first, second = (json.loads((tmp_path / f"rank{rank}.json").read_text()) for rank in (0, 1))
    assert first["world"] == second["world"] == 2
    assert first["calls"] == second["calls"] > 10
    assert first["stop"] == second["stop"]
    assert int(first["threads"]) >= 1


@pytest.mark.torch
def test_the_environment_records_versions_threads_and_machine():
    torch = pytest.importorskip("torch")

    facts = cpu.environment(cpu.device(0))

    assert facts["torch"] == torch.__version__
    assert facts["threads"] == str(torch.get_num_threads())
    assert {"os", "cpu", "python", "cpus_allowed"} <= set(facts)
    assert all(isinstance(v, str) and v for v in facts.values())


@pytest.mark.torch
def test_a_real_kernel_is_measured_in_microseconds():
    torch = pytest.importorskip("torch")
    left, right = torch.ones(64, 64), torch.ones(64, 64)

    samples = cpu.measure(Kernel(lambda: left @ right), Plan(repeat=5, warmup=1), cpu.device(0))

    assert len(samples.durations_us) == 5
    assert all(0.1 < value < 1e6 for value in samples.durations_us)
    assert samples.cache == "warm"


@pytest.mark.torch
@pytest.mark.parametrize(("cache_mib", "claim"), [(1, "cold"), (1 << 30, "cold requested, not achieved")])
def test_cold_is_claimed_where_the_flush_exceeds_the_cache(cache_mib, claim, monkeypatch):
    torch = pytest.importorskip("torch")
    cpu._eviction.cache_clear()
    monkeypatch.setattr(cpu.cpu_facts, "last_level_cache_bytes", lambda: cache_mib << 20)
    monkeypatch.setattr(cpu.cpu_facts, "memory_bytes", lambda: 64 << 20)
    source = torch.ones(1 << 16)

    samples = cpu.measure(Kernel(source.clone), Plan(repeat=3, cache="cold"), cpu.device(0))

    cpu._eviction.cache_clear()
    assert samples.cache == claim
    assert samples.inner == 1


@pytest.mark.torch
def test_kernels_run_without_recording_gradients():
    torch = pytest.importorskip("torch")
    seen: list[bool] = []

    cpu.measure(Kernel(lambda: seen.append(torch.is_grad_enabled())), Plan(repeat=1), cpu.device(0))

    assert not any(seen)


def test_the_family_leaves_no_profile_to_read():
    assert cpu.read_profile(Path()) == ()
