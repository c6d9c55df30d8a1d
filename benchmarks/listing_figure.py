"""The time of `perfcollect ops` with a thousand plugin distributions installed."""

from __future__ import annotations

import statistics
import tempfile
from pathlib import Path

from figures import Figure
from ops_listing import install, time_listing

__all__ = ["listing_figures"]


def listing_figures(count: int = 1000, runs: int = 5) -> list[Figure]:
    """Measure the command with *count* distributions, process start included."""
    with tempfile.TemporaryDirectory() as directory:
        install(Path(directory), count)
        time_listing(Path(directory), count)
        times = [time_listing(Path(directory), count) for _ in range(runs)]
    median = statistics.median(times)
    return [Figure(f"perfcollect ops, {count} distributions", f"{median:.0f} ms", "< 300 ms", median < 300)]
