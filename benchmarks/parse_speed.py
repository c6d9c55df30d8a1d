"""Speed and memory of ``perfcollect parse`` beside a ``csv.DictReader`` loop and a bare streaming select.

Run: python benchmarks/parse_speed.py [--rows 1000000] [--file kernel_details.csv] [--rounds 3]

The three read one file in turn, each time in a process of its own; the least time of each counts. Exit 1 where a
target is missed.
"""

from __future__ import annotations

import argparse
import csv
import importlib.util
import io
import json
import subprocess
import sys
import tempfile
from pathlib import Path

# With PYTHONSAFEPATH a script's own directory is not searched.
sys.path.insert(0, str(Path(__file__).resolve().parent))

from figures import Figure, print_figures

__all__ = ["parse_figures"]

_MADE = Path(__file__).resolve().parents[1] / "tests" / "core" / "profiles" / "made_profiles.py"
_DISTINCT_ROWS = 20_000

_MEASURED = """
import json, resource, sys, time
began = time.perf_counter()
{body}
wall = time.perf_counter() - began
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(json.dumps([wall, peak / (1024 if sys.platform != "darwin" else 1024 * 1024)]))
"""
_BODIES = {
    "reading": """
import csv
with open(sys.argv[1], newline="", encoding="utf-8-sig") as stream:
    for row in csv.DictReader(stream):
        pass
""",
    "select": """
import polars as pl
from pathlib import Path
from perfcollect_core.profiles.headers import read_header
from perfcollect_core.profiles.layouts import DURATION, GROUP_COLUMNS, START, STREAM, counters_in
header = read_header(Path(sys.argv[1]))
needed = [header.layout.spelling(c) for c in (*GROUP_COLUMNS, DURATION, START, STREAM, *counters_in(header.columns))]
frame = pl.scan_csv(sys.argv[1], infer_schema=False).select(pl.col(needed).count()).collect(engine="streaming")
""",
    "parse": """
from perfcollect_core.cli import main
code = main(["-q", "parse", "--profiling-path", sys.argv[1], "--database-path", sys.argv[2], "--format", "json",
             "--report", sys.argv[2] + ".json"])
assert code == 0, code
""",
}


def write_profile(path: Path, rows: int) -> None:
    """Write a plausible kernel_details file of *rows* rows; the calls repeat after some twenty thousand."""
    spec = importlib.util.spec_from_file_location("made_profiles", _MADE)
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    stream = io.StringIO(newline="")
    writer = csv.writer(stream, lineterminator="\n")
    for row in made.synthetic(min(rows, _DISTINCT_ROWS)):
        writer.writerow([row[name] for name in made.HEADER])
    block = stream.getvalue().encode()
    lines = block.splitlines(keepends=True)
    with path.open("wb") as file:
        file.write((",".join(made.HEADER) + "\n").encode())
        for _ in range(rows // len(lines)):
            file.write(block)
        file.writelines(lines[: rows % len(lines)])


def _run(what: str, *arguments: Path) -> tuple[float, float]:
    code = _MEASURED.format(body=_BODIES[what])
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)], capture_output=True, text=True, check=True
    )
    wall, peak = json.loads(done.stdout.splitlines()[-1])
    return wall, peak


def parse_figures(rows: int, file: Path | None, rounds: int) -> list[Figure]:
    """Measure on *file*, or on a made one of *rows* rows."""
    with tempfile.TemporaryDirectory() as folder:
        source = file or Path(folder) / "kernel_details.csv"
        if file is None:
            write_profile(source, rows)
        walls: dict[str, list[float]] = {what: [] for what in _BODIES}
        peaks = []
        for number in range(rounds):
            for what in _BODIES:
                wall, peak = _run(what, source, Path(folder) / f"db{number}")
                walls[what].append(wall)
                if what == "parse":
                    peaks.append(peak)
        size = source.stat().st_size
    best = {what: min(found) for what, found in walls.items()}
    to_reading, to_select = best["parse"] / best["reading"], best["parse"] / best["select"]
    limit = 768 if rows <= 1_000_000 else 900
    spread = "; ".join(f"{what} " + " ".join(f"{w:.2f}" for w in found) for what, found in walls.items())
    return [
        Figure(f"parse {size / 2**20:.0f} MiB, seconds", f"{best['parse']:.2f}", "", None, spread),
        Figure("parse / csv.DictReader loop", f"{to_reading:.2f}", "<= 0.6", to_reading <= 0.6),
        Figure("parse / bare streaming select", f"{to_select:.2f}", "<= 5", to_select <= 5),
        Figure("peak memory of parse, MiB", f"{max(peaks):.0f}", f"<= {limit}", max(peaks) <= limit),
    ]


def main() -> int:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument(
        "--file", type=Path, help="a kernel_details file instead of a made one (give --rows too)"
    )
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    figures = parse_figures(options.rows, options.file, options.rounds)
    print_figures(figures)
    return 1 if any(figure.reached is False for figure in figures) else 0


if __name__ == "__main__":
    sys.exit(main())
