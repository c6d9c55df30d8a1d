"""Prove the CUDA family on a machine with a GPU: correctness, event time against the torch profiler, cold against warm.

Run: python benchmarks/cuda_smoke.py [--device 0]

Exit 0 where everything holds, 1 where something does not, 2 where there is no GPU; then nothing was proven and the last
line says so.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Callable

from perfcollect_core.checking import difference
from perfcollect_core.environment import Device
from perfcollect_core.families import cuda
from perfcollect_core.measurements import Kernel, Plan, Reference, Samples, Tolerance
from perfcollect_core.runner.statistics import summarise

#: Event time and profiler time of a kernel may differ by this much, or by two microseconds.
_AGREEMENT = 0.05
_AGREEMENT_US = 2.0


def main() -> int:
    """Run all proofs and print one line each."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", type=int, default=0)
    options = parser.parse_args()
    found = cuda.probe()
    if not found.devices:
        for missing in found.missing:
            print(f"missing: {missing.what}: {missing.looked}; {missing.fix}")
        print("never run on a GPU: nothing was proven here")
        return 2
    for info in found.devices:
        print(f"device {info.index}: {info.name}, {info.memory_bytes >> 20} MiB, {dict(info.details)}")
    device = cuda.device(options.device)
    for fact, value in sorted(cuda.environment(device).items()):
        print(f"  {fact}: {value}")
    proofs = (_correctness, _profiler, _small, _cold, _idle_host)
    results = [proof(device) for proof in proofs]
    for ok, text in results:
        print(f"{'ok  ' if ok else 'FAIL'} {text}")
    return 0 if all(ok for ok, _ in results) else 1


def _tensors(device: Device, *shapes: tuple[int, ...]) -> list[object]:
    import torch

    draw = torch.Generator().manual_seed(5)
    return [torch.randn(shape, generator=draw).to(device.torch_device, torch.bfloat16) for shape in shapes]


def _matmul(device: Device, size: int) -> tuple[Callable[[], object], object]:
    import torch

    left, right = _tensors(device, (size, size), (size, size))
    return (lambda: torch.mm(left, right)), (left.double().cpu() @ right.double().cpu())  # type: ignore[attr-defined]


def _measure(call: Callable[[], object], device: Device, **plan: object) -> Samples:
    return cuda.measure(Kernel(call), Plan(warmup=5, **plan), device)  # type: ignore[arg-type]  # checked by Plan's fields


def _median(samples: Samples) -> float:
    return summarise(samples.durations_us).median


def _correctness(device: Device) -> tuple[bool, str]:
    call, want = _matmul(device, 512)
    got = call()
    cuda.synchronize(device)
    wrong = difference((got,), Reference((want,), (Tolerance(1e-2, 2e-1),)))  # type: ignore[arg-type]  # tensors
    return (
        wrong is None,
        f"correctness: bf16 product of 512 x 512 against double precision: {wrong or 'agrees'}",
    )


def _profiled_us(call: Callable[[], object], device: Device, count: int = 20) -> float:
    """Return the median device time of a call by torch's profiler, all its kernels added up."""
    from torch.profiler import ProfilerActivity, profile

    for _ in range(5):
        call()
    cuda.synchronize(device)
    with profile(activities=[ProfilerActivity.CUDA, ProfilerActivity.CPU]) as session:
        for _ in range(count):
            call()
        cuda.synchronize(device)
    kernels = [e for e in session.events() if str(e.device_type).endswith("CUDA")]
    by_name: dict[str, list[float]] = {}
    for event in kernels:
        by_name.setdefault(event.name, []).append(float(event.time_range.elapsed_us()))
    return sum(statistics.median(times) * len(times) / count for times in by_name.values())


def _profiler(device: Device) -> tuple[bool, str]:
    call, _ = _matmul(device, 4096)
    ours, theirs = _median(_measure(call, device)), _profiled_us(call, device)
    ok = abs(ours - theirs) <= max(_AGREEMENT * theirs, _AGREEMENT_US)
    return ok, f"event time of a 4096 product: {ours:.1f} us, torch profiler {theirs:.1f} us"


def _small(device: Device) -> tuple[bool, str]:
    (source,) = _tensors(device, (1024,))
    call = source.clone  # type: ignore[attr-defined]  # a tensor
    samples = _measure(call, device)
    ours, theirs = _median(samples), _profiled_us(call, device)
    ok = samples.inner > 1 and abs(ours - theirs) <= max(_AGREEMENT * theirs, _AGREEMENT_US)
    return ok, f"a copy of 2 KiB in batches of {samples.inner}: {ours:.2f} us, torch profiler {theirs:.2f} us"


def _cold(device: Device) -> tuple[bool, str]:
    import torch

    cache = int(getattr(torch.cuda.get_device_properties(device.index), "L2_cache_size", 0))
    # A quarter of the cache: warm it stays there, cold it comes from memory.
    (source,) = _tensors(device, (max(cache // 8, 1 << 20),))
    target = torch.empty_like(source)  # type: ignore[call-overload]  # a tensor

    def call() -> object:
        return target.copy_(source)

    warm, cold = _measure(call, device), _measure(call, device, cache="cold")
    ratio = _median(cold) / _median(warm)
    ok = warm.cache == "warm" and cold.cache == "cold" and ratio > 1.05
    return (
        ok,
        f"copy within the L2: warm {_median(warm):.1f} us, cold {_median(cold):.1f} us, {ratio:.2f}x ({cold.cache})",
    )


def _idle_host(device: Device) -> tuple[bool, str]:
    samples = _measure(_matmul(device, 2048)[0], device)
    found = summarise(samples.durations_us)
    flags = "; ".join(samples.flags) or "none"
    return (
        samples.stop == "precision",
        f"precision: {found.n} samples of a 2048 product, median {found.median:.1f} us, MAD {found.mad:.2f} us, "
        f"stopped for {samples.stop}; flags: {flags}",
    )


if __name__ == "__main__":
    sys.exit(main())
