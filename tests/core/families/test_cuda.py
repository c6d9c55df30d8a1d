"""The CUDA family against a scripted ``torch.cuda`` and NVML; no GPU is needed, none is used."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from perfcollect_core.environment import DeviceFamily
from perfcollect_core.families import cuda
from perfcollect_core.families.cuda_clock import EventClock, l2_eviction
from perfcollect_core.families.cuda_health import DeviceHealth, open_health
from perfcollect_core.families.sampling import measure_samples
from perfcollect_core.measurements import Kernel, Plan

MIB = 1 << 20


def _load_scripted_cuda() -> ModuleType:
    path = Path(__file__).with_name("scripted_cuda.py")
    spec = importlib.util.spec_from_file_location("scripted_cuda", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["scripted_cuda"] = module
    spec.loader.exec_module(module)
    return module


ScriptedCuda = _load_scripted_cuda().ScriptedCuda


def clock_of(gpu: object, **more: object) -> EventClock:
    return EventClock(gpu, now=gpu.now, **more)


def test_the_module_satisfies_the_family_protocol():
    assert isinstance(cuda, DeviceFamily)
    assert (cuda.name, cuda.cores) == ("cuda", ("GPU",))


def test_events_enclose_the_kernel_and_not_its_launch():
    gpu = ScriptedCuda(launch_us=30.0)
    clock = clock_of(gpu)
    call = gpu.kernel(400.0)
    clock.take(call, 1, 1, None)

    assert clock.take(call, 5, 1, None) == pytest.approx([400.0] * 5)


def test_a_spin_lets_the_host_queue_a_batch_of_small_kernels_without_gaps():
    gpu = ScriptedCuda(launch_us=8.0)
    clock = clock_of(gpu)
    call = gpu.kernel(2.0)
    clock.take(call, 1, 50, None)

    assert clock.take(call, 3, 50, None) == pytest.approx([2.0] * 3)
    assert gpu.spins[-1] == pytest.approx(1.5 * 50 * 8.0, rel=0.01)


def test_without_a_spin_the_gaps_are_in_the_number():
    gpu = ScriptedCuda(launch_us=8.0, can_spin=False)
    clock = clock_of(gpu)

    assert clock.take(gpu.kernel(2.0), 3, 50, None)[0] == pytest.approx(8.0, rel=0.1)


def test_spins_are_bounded_when_queueing_blocks():
    gpu = ScriptedCuda(launch_us=500.0)
    clock = clock_of(gpu)
    call = gpu.kernel(2.0)
    clock.take(call, 1, 50, None)
    clock.take(call, 1, 50, None)

    assert max(gpu.spins[2:]) == pytest.approx(20_000.0, rel=0.01)


def test_a_compiling_first_call_does_not_lengthen_later_spins():
    gpu = ScriptedCuda(launch_us=5.0)
    clock = clock_of(gpu)
    run = gpu.kernel(50.0)
    costs = iter([15_000.0])

    def call() -> None:
        gpu.host_us += next(costs, 0.0)
        run()

    clock.take(call, 4, 1, None)

    assert gpu.spins[-1] == pytest.approx(1.5 * 5.0, rel=0.01)


def test_the_host_waits_once_for_many_samples():
    gpu = ScriptedCuda()
    clock = clock_of(gpu)
    waited = gpu.waits

    clock.take(gpu.kernel(50.0), 64, 1, None)

    assert gpu.waits - waited == 2


def test_events_are_used_again():
    gpu = ScriptedCuda()
    clock = clock_of(gpu)

    for _ in range(10):
        clock.take(gpu.kernel(50.0), 40, 1, None)

    assert gpu.events == 2 * 32


def test_the_device_is_idle_when_samples_come_back():
    gpu = ScriptedCuda()
    clock = clock_of(gpu)

    clock.take(gpu.kernel(50.0), 3, 1, None)

    assert gpu.host_us >= gpu.device_us


def test_a_flush_runs_on_the_device_before_the_first_event():
    gpu = ScriptedCuda()
    clock = clock_of(gpu)
    flush = gpu.kernel(900.0)

    assert clock.take(gpu.kernel(50.0), 4, 1, flush) == pytest.approx([50.0] * 4, abs=6.0)


def test_a_cold_measurement_flushes_twice_the_cache_before_every_launch():
    gpu = ScriptedCuda()
    sizes: list[int] = []
    flushes: list[float] = []

    def allocate(size: int) -> object:
        sizes.append(size)
        run = gpu.kernel(100.0)
        return lambda: (run(), flushes.append(gpu.host_us))

    samples = measure_samples(
        Kernel(gpu.kernel(60.0)),
        Plan(cache="cold", repeat=10),
        clock_of(gpu),
        l2_eviction(50 * MIB, allocate),
    )

    assert sizes == [100 * MIB]
    assert samples.cache == "cold"
    assert samples.inner == 1
    assert len(flushes) >= 10 + len(samples.warmup_us[:3])


def test_a_cache_of_unknown_size_is_flushed_and_not_claimed_cold():
    gpu = ScriptedCuda()
    eviction = l2_eviction(0, lambda size: gpu.kernel(float(size > 0)))

    samples = measure_samples(Kernel(gpu.kernel(60.0)), Plan(cache="cold", repeat=3), clock_of(gpu), eviction)

    assert eviction.evicted_bytes == 256 * MIB
    assert samples.cache == "cold requested, not achieved"


def test_small_kernels_are_batched_and_come_out_at_their_device_time():
    gpu = ScriptedCuda(launch_us=6.0)

    samples = measure_samples(Kernel(gpu.kernel(3.0)), Plan(), clock_of(gpu))

    assert samples.inner > 1
    assert samples.durations_us[-1] == pytest.approx(3.0, rel=0.02)


class ScriptedNvml:
    """As pynvml for one board; what is not listed is not supported."""

    NVML_CLOCK_SM = 1

    def __init__(self, **answers: object) -> None:
        self._answers = answers
        self.opened: list[str] = []

    def nvmlInit(self) -> None:
        if "init" in self._answers:
            raise RuntimeError("NVML_ERROR_DRIVER_NOT_LOADED")

    def nvmlSystemGetDriverVersion(self) -> str:
        return "570.86.15"

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> str:
        if uuid != "GPU-5e1f":
            raise RuntimeError("NVML_ERROR_NOT_FOUND")
        self.opened.append(uuid)
        return uuid

    def nvmlDeviceGetHandleByIndex(self, index: int) -> str:
        self.opened.append(str(index))
        return str(index)

    def __getattr__(self, name: str) -> object:
        if name in self._answers:
            return lambda handle, *arguments: self._answers[name]
        raise AttributeError(name)


def test_the_current_clock_is_related_to_the_application_clock_then_the_highest():
    both = ScriptedNvml(
        nvmlDeviceGetClockInfo=1400, nvmlDeviceGetApplicationsClock=1750, nvmlDeviceGetMaxClockInfo=2000
    )
    highest = ScriptedNvml(nvmlDeviceGetClockInfo=1400, nvmlDeviceGetMaxClockInfo=2000)

    assert DeviceHealth(both, 0).share_of_nominal() == pytest.approx(0.8)
    assert DeviceHealth(highest, 0).share_of_nominal() == pytest.approx(0.7)


def test_what_a_board_does_not_offer_reads_as_not_known():
    health = DeviceHealth(ScriptedNvml(), 0)

    assert health.share_of_nominal() is None
    assert health.throttle_reasons() == ()
    assert health.facts() == {"driver": "570.86.15"}


@pytest.mark.parametrize(
    ("bits", "reasons"),
    [
        (0x01, ()),
        (0x04, ("held down by its power cap",)),
        (0x60, ("held down by temperature (software)", "slowed down by temperature (hardware)")),
    ],
)
@pytest.mark.parametrize(
    "function", ["nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons"]
)
def test_throttling_is_read_under_its_old_and_new_name(function, bits, reasons):
    assert DeviceHealth(ScriptedNvml(**{function: bits}), 0).throttle_reasons() == reasons


def test_a_throttled_gpu_flags_its_samples():
    gpu = ScriptedCuda()
    health = DeviceHealth(
        ScriptedNvml(
            nvmlDeviceGetClockInfo=1200,
            nvmlDeviceGetMaxClockInfo=2000,
            nvmlDeviceGetCurrentClocksEventReasons=0x04,
        ),
        0,
    )

    samples = measure_samples(Kernel(gpu.kernel(400.0)), Plan(repeat=6), clock_of(gpu, health=health))

    assert samples.flags == (
        "held down by its power cap in 6 of 6 samples",
        "clock below 95 % of nominal in 6 of 6 samples (lowest 60 %)",
    )


def test_a_gpu_is_opened_by_its_uuid_then_by_its_number():
    nvml = ScriptedNvml()

    assert open_health("5e1f", 3, lambda name: nvml) is not None
    assert open_health("other", 3, lambda name: nvml) is not None
    assert nvml.opened == ["GPU-5e1f", "3"]


def test_without_nvml_or_driver_there_are_no_readings():
    def no_module(name: str) -> object:
        raise ImportError(name)

    assert open_health("5e1f", 0, no_module) is None
    assert open_health("5e1f", 0, lambda name: ScriptedNvml(init=True)) is None


def missing(version: str | None, monkeypatch: pytest.MonkeyPatch) -> tuple[str, str, str]:
    def installed(name: str) -> str:
        if version is None:
            raise metadata.PackageNotFoundError(name)
        return version

    monkeypatch.setattr(metadata, "version", installed)
    (found,) = cuda.probe().missing
    return found.what, found.looked, found.fix


def test_a_machine_without_torch_or_with_a_cpu_build_is_told_so(monkeypatch):
    assert missing(None, monkeypatch)[0] == "torch"
    assert missing("2.13.0+cpu", monkeypatch) == (
        "torch built for CUDA",
        f"torch 2.13.0+cpu in {sys.prefix} is built for the CPU only",
        "install the torch build for this machine's CUDA version (pytorch.org names the index)",
    )


def test_a_machine_without_a_driver_is_told_so_without_starting_torch(monkeypatch, tmp_path):
    monkeypatch.setattr(cuda, "_DRIVER_FILES", (str(tmp_path / "nvidiactl"),))
    monkeypatch.setattr(cuda, "_ask_child", lambda: pytest.fail("started a child"))

    assert missing("2.13.0", monkeypatch) == (
        "an NVIDIA driver",
        f"none of {tmp_path / 'nvidiactl'} exists",
        "install the NVIDIA driver, or give the container its GPUs (docker run --gpus all)",
    )


def test_hidden_devices_are_said_to_be_hidden(monkeypatch, tmp_path):
    monkeypatch.setattr(cuda, "_DRIVER_FILES", (str(tmp_path),))
    monkeypatch.setattr(cuda, "_ask_child", lambda: {"devices": []})
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")

    assert missing("2.13.0", monkeypatch) == (
        "a CUDA device",
        "torch.cuda reports no device under CUDA_VISIBLE_DEVICES=''",
        "correct or unset CUDA_VISIBLE_DEVICES",
    )


def test_a_device_that_does_not_start_is_no_device(monkeypatch, tmp_path):
    monkeypatch.setattr(cuda, "_DRIVER_FILES", (str(tmp_path),))
    monkeypatch.setattr(cuda, "_ask_child", lambda: {"error": "RuntimeError: The NVIDIA driver is too old"})

    assert missing("2.13.0", monkeypatch)[:2] == (
        "a CUDA device that starts",
        "torch said: RuntimeError: The NVIDIA driver is too old",
    )


def test_the_child_describes_each_device_of_a_scripted_torch(monkeypatch, tmp_path):
    (tmp_path / "torch.py").write_text(
        "from types import SimpleNamespace as N\n"
        "__version__ = '2.9.0+cu128'\n"
        "version = N(cuda='12.8')\n"
        "cuda = N(device_count=lambda: 1, init=lambda: None, get_device_properties=lambda i: N(\n"
        "    name='NVIDIA H200', total_memory=150 << 30, L2_cache_size=50 << 20, major=9, minor=0))\n"
        "print('noise')\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(cuda, "_DRIVER_FILES", (str(tmp_path),))
    monkeypatch.setattr(metadata, "version", lambda name: "2.9.0+cu128")

    found = cuda.probe()

    assert found.missing == ()
    assert [(d.name, d.memory_bytes) for d in found.devices] == [("CUDA_H200", 150 << 30)]
    assert found.devices[0].details == {
        "model": "NVIDIA H200",
        "capability": "9.0",
        "l2_bytes": str(50 << 20),
    }
    assert found.versions == {"torch": "2.9.0+cu128", "cuda": "12.8"}


def test_ranks_get_a_gpu_each_under_torchrun(tmp_path):
    started = cuda.launch(["worker"], 4, 0, tmp_path)

    assert "--nproc-per-node=4" in started.argv
    assert started.env["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"


@pytest.mark.torch
def test_a_rank_opens_its_own_gpu(monkeypatch):
    torch = pytest.importorskip("torch")
    opened: list[int] = []
    monkeypatch.setattr(torch.cuda, "set_device", opened.append)
    monkeypatch.setenv("WORLD_SIZE", "4")
    monkeypatch.setenv("RANK", "3")
    monkeypatch.setenv("LOCAL_RANK", "3")

    device = cuda.device(0)

    assert (device.torch_device, device.rank, device.ranks, opened) == ("cuda:3", 3, 4, [3])


@pytest.mark.torch
def test_a_gpu_is_measured_for_real():
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("no GPU on this machine: benchmarks/cuda_smoke.py proves the family where there is one")
    left = torch.randn(1024, 1024, device="cuda")

    samples = cuda.measure(Kernel(lambda: left @ left), Plan(repeat=5), cuda.device(0))

    assert len(samples.durations_us) == 5


def test_properties_without_a_cache_size_are_described():
    from perfcollect_core.families.cuda_child import _describe

    assert _describe(SimpleNamespace(name="X", total_memory=1), 0)["l2_bytes"] == 0


def test_the_smoke_script_says_that_nothing_was_proven_without_a_gpu(monkeypatch):
    script = Path(__file__).parents[3] / "benchmarks/cuda_smoke.py"
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")

    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=120)

    assert done.returncode == 2
    assert done.stdout.splitlines()[-1] == "never run on a GPU: nothing was proven here"
    assert done.stdout.startswith("missing: ")
