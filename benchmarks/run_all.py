"""Print every figure of the table "Speed the core must reach" that is not about parsing.

Run: python benchmarks/run_all.py [--full] [--only runner|repeatability|agreement|listing|operators|grid]

Ratios and comparisons are taken within one run of this script; a machine that is busy with something else shows in the
spread, not in the comparison. Exit 1 where a target is missed.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
import time
from collections.abc import Callable
from pathlib import Path

# With PYTHONSAFEPATH a script's own directory is not searched.
sys.path.insert(0, str(Path(__file__).resolve().parent))

from figures import Figure, print_figures


def _runner(full: bool) -> list[Figure]:
    from runner_speed import runner_figures

    return runner_figures(full)


def _repeatability(full: bool) -> list[Figure]:
    from repeatability import repeatability_figures

    return repeatability_figures(processes=30 if full else 8)


def _agreement(full: bool) -> list[Figure]:
    from agreement import agreement_figures

    return agreement_figures(rounds=15 if full else 5)


def _listing(full: bool) -> list[Figure]:
    from listing_figure import listing_figures

    return listing_figures()


def _operators(full: bool) -> list[Figure]:
    from operator_lines import operator_figures

    return operator_figures()


def _grid(full: bool) -> list[Figure]:
    from grid_speed import grid_figures

    return grid_figures(plan_check=full)


PARTS: dict[str, Callable[[bool], list[Figure]]] = {
    "listing": _listing,
    "operators": _operators,
    "grid": _grid,
    "runner": _runner,
    "repeatability": _repeatability,
    "agreement": _agreement,
}


def main() -> int:
    """Measure the parts asked for and print one table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--full", action="store_true", help="more processes and longer runs, about ten minutes"
    )
    parser.add_argument("--only", choices=sorted(PARTS), action="append", help="one part, may be repeated")
    options = parser.parse_args()
    load = f", load {os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else ""
    print(f"{platform.machine()}, {os.cpu_count()} processors{load}, Python {platform.python_version()}\n")
    figures: list[Figure] = []
    began = time.perf_counter()
    for name, measure in PARTS.items():
        if options.only and name not in options.only:
            continue
        print(f"... {name}", file=sys.stderr, flush=True)
        figures += measure(options.full)
    print_figures(figures)
    print(f"\n{time.perf_counter() - began:.0f} s")
    return 1 if any(figure.reached is False for figure in figures) else 0


if __name__ == "__main__":
    sys.exit(main())
