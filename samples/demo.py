"""Show the main job on the bundled sample database: derive a database for this machine, replay it, print the result.

Run by `make demo`; repeating it measures the rows again.
"""

from __future__ import annotations

import csv
import shlex
import subprocess
import sys
from pathlib import Path

from perfcollect_core.families import cpu
from perfcollect_core.tables.layout import DatabaseOptions, find_database

SAMPLES = Path(__file__).parent / "database"


def perfcollect(*arguments: str) -> None:
    """Print a command, run it and stop the demo where it fails."""
    print(f"\n$ perfcollect {shlex.join(arguments)}", flush=True)
    command = [sys.executable, "-c", "import sys; from perfcollect_core.cli import main; sys.exit(main())"]
    done = subprocess.run([*command, *arguments], check=False)
    if done.returncode:
        raise SystemExit(done.returncode)


def show(table: Path) -> None:
    """Print the shapes and durations of *table*."""
    with table.open(encoding="utf-8-sig", newline="") as file:
        rows = list(csv.DictReader(file))
    print(f"\n{table}")
    print(f"{'Input Shapes':<28}{'Output Shapes':<18}{'Average Duration(us)':>20}  Accelerator Core")
    for row in rows:
        shapes = [row[column].strip('"') for column in ("Input Shapes", "Output Shapes")]
        print(f"{shapes[0]:<28}{shapes[1]:<18}{row['Average Duration(us)']:>20}  {row['Accelerator Core']}")


def main() -> None:
    """Run the demo."""
    devices = cpu.probe().devices
    if not devices:
        raise SystemExit("the demo needs torch: pip install -r requirements-dev.txt")
    database = find_database(DatabaseOptions(), family="cpu", device_name=devices[0].name).path
    if not database.is_dir():
        perfcollect("db", "derive", str(SAMPLES), str(database), "--device", devices[0].name)
    perfcollect("run", "--ops", "MatMulV2", "Add", "RmsNorm")
    show(database / "MatMulV2.csv")
    reports = sorted((database / "reports").glob("profile_update_report_*.md"))
    print(f"\nreport: {reports[-1]}")


if __name__ == "__main__":
    main()
