"""The speed of `perfcollect grid --rows 0` without models: enumeration and writing, with the plan check timed apart.

Run: python benchmarks/grid_speed.py [--plan-check] [--budget G]

The database is made of one example row for every installed operator. Each size runs in a process of its own, so that
its memory is its own; seconds are those of the processor, so that other programs on the machine do not count. Exit 1
where the target (80,000 rows/s, ten times the predecessor's) is missed, memory
grows with the rows, or time grows faster than they do.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

# With PYTHONSAFEPATH a script's own directory is not searched.
sys.path.insert(0, str(Path(__file__).resolve().parent))

from figures import Figure, print_figures

__all__ = ["grid_figures"]

_TARGET = 80_000
#: One table in three forms, then in six: twice the rows, and both more than are held in memory.
_FORMS = ("DT_BF16", "FLOAT16", "FLOAT")
_MIB = 2**20


def grid_figures(plan_check: bool = False, max_gib: float = 0.0) -> list[Figure]:
    """Measure the whole grid of every operator, and how time and memory grow with one table."""
    whole = _in_process("whole", plan_check, max_gib)
    three, six = (_in_process(f"forms {count}", False, max_gib) for count in (3, 6))
    rate = whole["added"] / whole["seconds"]
    growth = (six["seconds"] / three["seconds"]) / (six["added"] / three["added"])
    memory = (six["peak_mib"] - three["peak_mib"]) / three["peak_mib"]
    figures = [
        Figure(
            "grid: enumeration and writing",
            f"{rate:,.0f} rows/s",
            f">= {_TARGET:,} rows/s",
            rate >= _TARGET,
            f"{whole['added']:,} rows of {whole['tables']} tables, peak {whole['peak_mib']:.0f} MiB",
        ),
        Figure("grid: seconds a row, twice the rows", f"{growth:.2f} times", "<= 1.3 times", growth <= 1.3),
        Figure("grid: peak memory, twice the rows", f"{memory:+.0%}", "<= +20 %", memory <= 0.2),
    ]
    if plan_check:
        checked = whole["added"] / whole["plan_seconds"]
        figures.append(Figure("grid: plan check", f"{checked:,.0f} rows/s", "", None))
    return figures


def _in_process(what: str, plan_check: bool, max_gib: float) -> dict[str, float]:
    command = [sys.executable, str(Path(__file__).resolve()), "--measure", what, "--budget", str(max_gib)]
    command += ["--plan-check"] if plan_check else []
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    result: dict[str, float] = json.loads(done.stdout)
    return result


def _measure(what: str, plan_check: bool, max_gib: float) -> dict[str, float]:
    import resource

    from perfcollect_core.grid.budget import parse_budget
    from perfcollect_core.grid.extend import GridOptions, extend_database
    from perfcollect_core.grid.generate import Stopwatch
    from perfcollect_core.grid.models import known_models
    from perfcollect_core.grid.plan_check import PlanCheck
    from perfcollect_core.specs import GridRequest

    if not plan_check:
        PlanCheck.accepted = lambda self, rows: list(rows)  # type: ignore[method-assign]  # timed apart
    with tempfile.TemporaryDirectory() as name:
        _make_database(Path(name), what)
        request = GridRequest(models=tuple(known_models().values()), max_bytes=parse_budget(max_gib))
        watch = Stopwatch(time.process_time)
        report = extend_database(Path(name), GridOptions(request=request, rows=0), watch=watch)
    seconds = report.seconds
    return {
        "added": report.added,
        "tables": len(report.tables),
        "seconds": seconds["enumerate"] + seconds["write"],
        "plan_seconds": seconds["plan check"],
        "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / _MIB,
    }


def _make_database(database: Path, what: str) -> None:
    from perfcollect_core.discovery import plugin_index
    from perfcollect_core.host import read_spec
    from perfcollect_core.loading import load_operator
    from perfcollect_core.tables.init import init_database

    kind, _, count = what.partition(" ")
    names = [name for name in plugin_index().names("operators") if not name.startswith("hcom_")]
    if kind == "whole":
        init_database(database, {name: read_spec(load_operator(name)).examples[:1] for name in names})
        return
    row = {
        "Input Shapes": "136,5120;400,5120",
        "Input Formats": "ND;ND",
        "Output Shapes": "136,400",
        "Output Formats": "ND",
    }
    rows = [
        {**row, "Input Data Types": f"{word};{word}", "Output Data Types": word}
        for word in _FORMS[: int(count)]
    ]
    init_database(database, {"MatMulV2": rows[: int(count)]})


def main() -> int:
    """Print the figures; exit 1 where a target is missed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--plan-check", action="store_true", help="also ask the operators, timed apart")
    parser.add_argument(
        "--budget", type=float, default=0.0, metavar="G", help="GiB a row may need, 0 for any"
    )
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure:
        print(json.dumps(_measure(arguments.measure, arguments.plan_check, arguments.budget)))
        return 0
    figures = grid_figures(arguments.plan_check, arguments.budget)
    print_figures(figures)
    return int(any(figure.reached is False for figure in figures))


if __name__ == "__main__":
    sys.exit(main())
