"""Our value against `torch.utils.benchmark` on the same kernels of at least 100 us, interleaved."""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable

from figures import Figure

__all__ = ["agreement_figures"]


def _kernels() -> dict[str, Callable[[], object]]:
    import torch

    draw = torch.Generator().manual_seed(2)

    def randn(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=draw)

    found: dict[str, Callable[[], object]] = {}
    for size in (256, 384, 512, 640, 768):
        left, right = randn(size, size), randn(size, size)
        found[f"mm {size}"] = lambda a=left, b=right: torch.mm(a, b)
    for rows in (256, 1024, 4096):
        table = randn(rows, 1024)
        found[f"softmax {rows}x1024"] = lambda t=table: torch.softmax(t, -1)
        found[f"layer_norm {rows}x1024"] = lambda t=table: torch.nn.functional.layer_norm(t, (1024,))
        found[f"silu {rows}x1024"] = lambda t=table: torch.nn.functional.silu(t)
    batch, other = randn(16, 128, 128), randn(16, 128, 128)
    found["bmm 16x128"] = lambda: torch.bmm(batch, other)
    keys = randn(512, 1024)
    found["sort 512x1024"] = lambda: torch.sort(keys, dim=-1)
    found["topk 512x1024"] = lambda: torch.topk(keys, 8, dim=-1)
    return found


def agreement_figures(rounds: int) -> list[Figure]:
    """Compare medians over *rounds* interleaved visits of each kernel."""
    import torch
    from torch.utils.benchmark import Timer

    from perfcollect_core.families import cpu
    from perfcollect_core.measurements import Kernel

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    device, kernels = cpu.device(0), _kernels()
    ours: dict[str, list[float]] = {name: [] for name in kernels}
    theirs: dict[str, list[float]] = {name: [] for name in kernels}
    order = random.Random(3)
    for _ in range(rounds):
        visits = [(name, mine) for name in kernels for mine in (True, False)]
        order.shuffle(visits)
        for name, mine in visits:
            if mine:
                samples = cpu.measure(Kernel(kernels[name]), cpu.default_plan(), device)
                ours[name].append(statistics.median(samples.durations_us))
            else:
                timer = Timer("call()", globals={"call": kernels[name]}, num_threads=1)
                with torch.no_grad():
                    theirs[name].append(timer.blocked_autorange(min_run_time=0.2).median * 1e6)
    torch.set_num_threads(before)
    differences = {}
    for name in kernels:
        mine, reference = statistics.median(ours[name]), statistics.median(theirs[name])
        if reference >= 100:
            differences[name] = abs(mine - reference) / reference
    ordered = sorted(differences.values())
    middle = statistics.median(ordered)
    p95 = ordered[min(len(ordered) - 1, int(0.95 * len(ordered)))]
    worst = max(differences, key=differences.__getitem__)
    own = statistics.median(
        abs(statistics.median(v[::2]) - statistics.median(v[1::2])) / statistics.median(v)
        for name, v in theirs.items()
        if name in differences
    )
    note = f"{len(ordered)} kernels, medians of {rounds} visits each; worst: {worst} {differences[worst]:.1%}; torch's timer from one half of its visits to the other: median {own:.1%}"
    return [
        Figure("against torch.utils.benchmark, median", f"{middle:.1%}", "<= 2 %", middle <= 0.02, note),
        Figure("against torch.utils.benchmark, p95", f"{p95:.1%}", "<= 5 %", p95 <= 0.05),
    ]
