"""Time `perfcollect ops` with 1,000 plugin distributions installed, process start included.

Run: python benchmarks/ops_listing.py [--count 1000] [--runs 7] [--budget-ms 300]; exit 1 where the median is over budget.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from perfcollect_core.testing import write_distribution

README = "A plugin with a description as long as those one finds. " * 80


def install(site: Path, count: int) -> None:
    """Write *count* distributions of one operator each into *site*."""
    for number in range(count):
        made = write_distribution(
            site,
            f"ops-vendor-{number:04d}",
            "1.0",
            {"operators": {f"VendorKernel{number:04d}": f"ops_vendor_{number:04d}.kernel"}},
            requires=("perfcollect-core>=0.1",),
        )
        metadata = made.dist_info / "METADATA"
        metadata.write_text(metadata.read_text(encoding="utf-8") + README, encoding="utf-8")


def time_listing(site: Path, count: int) -> float:
    """Run the command once and return its wall time in milliseconds."""
    command = [
        sys.executable,
        "-c",
        "import sys; from perfcollect_core.cli import main; sys.exit(main())",
        "ops",
    ]
    started = time.perf_counter()
    done = subprocess.run(
        command, env={**os.environ, "PYTHONPATH": str(site)}, capture_output=True, text=True, check=True
    )
    elapsed = (time.perf_counter() - started) * 1e3
    listed = done.stdout.count("VendorKernel")
    if listed != count:
        raise SystemExit(f"listed {listed} of {count} distributions")
    return elapsed


def main() -> int:
    """Report the median and the spread, and say whether it is within budget."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--budget-ms", type=float, default=300.0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        install(Path(directory), options.count)
        time_listing(Path(directory), options.count)
        times = [time_listing(Path(directory), options.count) for _ in range(options.runs)]
    median = statistics.median(times)
    print(
        f"perfcollect ops, {options.count} plugin distributions: median {median:.0f} ms of {options.runs} runs "
        f"({min(times):.0f} to {max(times):.0f} ms), budget {options.budget_ms:.0f} ms"
    )
    return 0 if median <= options.budget_ms else 1


if __name__ == "__main__":
    sys.exit(main())
