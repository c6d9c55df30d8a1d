"""Drill: 2,000 launches on emulated NPUs, 5 % of the cases faulty in every way torch_npu fails (``make drill-ascend``).

Every row has a duration of its own, so that one that went to another row is seen. Every healthy case must be measured
with its own duration, every culprit be named with its class, and no row be lost. A drill that was interrupted goes on
with ``--directory`` of the same name.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "ascend_emulator"))

from build import build, environment

from perfcollect_core.tables.identity import Identity, write_identity

#: Every kind of fault of the emulator and how its case must end.
ENDS = {
    "ws=161002": "invalid_case",
    "ws=207001": "out_of_memory",
    "launch=507015": "device_lost",
    # Of a queued error torch_npu says which call it was and not what happened; the code is on stderr alone.
    "launch=207001": "device_lost",
    "sync=507015": "device_lost",
    "sync=507899": "device_lost",
    "hang=3600": "timeout",
    "lhang=3600": "timeout",
    "exit=3": "worker_crashed",
    "sig=11": "worker_crashed",
    "drop=1": "not_observed",
}
HEADER = (
    *("OP State", "Accelerator Core", "Input Shapes", "Input Data Types", "Input Formats"),
    *("Output Shapes", "Output Data Types", "Output Formats", "Average Duration(us)"),
)
_MAIN = "import sys; from perfcollect_core.cli import main; sys.exit(main())"


def main(arguments: list[str] | None = None) -> int:
    """Run the drill; returns 0 where everything held."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--launches", type=int, default=2_000)
    parser.add_argument("--repeat", type=int, default=10)
    parser.add_argument("--share", type=float, default=0.05)
    parser.add_argument("--devices", type=int, default=2)
    parser.add_argument("--case-timeout", type=float, default=20.0)
    parser.add_argument(
        "--directory", type=Path, help="where the database stays; go on there if there is one"
    )
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="perfcollect-drill-ascend-") as temporary:
        return drill(options.directory or Path(temporary), options)


def duration_us(number: int) -> float:
    """Return the duration of row *number*."""
    return 20.0 + 0.25 * number


def drill(directory: Path, options: argparse.Namespace) -> int:
    """Run or go on, then judge every row."""
    database = directory / "database"
    rows = options.launches // options.repeat
    faulty = faults(rows, options.share)
    again = any(database.glob("reports/runs/*/journal.jsonl"))
    if not again:
        write_database(database, rows)
    rules = [f"aclnnAdd[{number},512;{number},512]={duration_us(number)}" for number in range(1, rows + 1)]
    env = {
        **os.environ,
        **environment(build()),
        "CANN_EMU_DEVICES": str(options.devices),
        "CANN_EMU_DURATIONS": " ".join(rules),
        "CANN_EMU_FAULTS": " ".join(f"aclnnAdd[{n},512;{n},512]:{fault}" for n, fault in faulty.items()),
        "OMP_NUM_THREADS": "1",
    }
    command = ["run", "--database-path", str(database), "--family", "ascend"]
    command += [
        "--repeat-count",
        str(options.repeat),
        "--warmup",
        "1",
        "--case-timeout",
        str(options.case_timeout),
    ]
    command += ["--resume"] if again else []
    started = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", _MAIN, *command], env=env, capture_output=True, text=True, check=False
    )
    seconds = time.monotonic() - started
    wrong = judge(database, rows, faulty)
    print(done.stdout[-600:])
    for sentence in wrong[:20]:
        print(f"WRONG: {sentence}")
    if wrong:
        print(done.stderr[-2000:])
    print(
        f"{rows} cases of {options.repeat} launches on {options.devices} devices in {seconds:.0f} s: "
        f"{rows - len(faulty)} healthy, {len(faulty)} faulty, {len(wrong)} wrong"
    )
    return 1 if wrong else 0


def faults(rows: int, share: float) -> dict[int, str]:
    """Return the faulty rows, spread evenly, with their faults in turn."""
    count = max(len(ENDS), round(rows * share))
    kinds = list(ENDS)
    return {(index + 1) * rows // (count + 1): kinds[index % len(kinds)] for index in range(count)}


def write_database(database: Path, rows: int) -> None:
    """Write an emulated database of one table whose row *i* adds two matrices of ``i,512``."""
    database.mkdir(parents=True)
    with (database / "Add.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, HEADER, restval="")
        writer.writeheader()
        for number in range(1, rows + 1):
            writer.writerow(
                {
                    "OP State": "dynamic",
                    "Input Shapes": f'"{number},512;{number},512"',
                    "Input Data Types": "DT_BF16;DT_BF16",
                    "Input Formats": "ND;ND",
                    "Output Shapes": f'"{number},512"',
                    "Output Data Types": "DT_BF16",
                    "Output Formats": "ND",
                }
            )
    write_identity(database, Identity("ascend", "ATLAS_800_A3_752T_128G_DIE", emulated=True))


def judge(database: Path, rows: int, faulty: Mapping[int, str]) -> list[str]:
    """Return everything that is not as it must be."""
    with (database / "Add.csv").open(encoding="utf-8-sig", newline="") as file:
        table = list(csv.DictReader(file))
    wrong = [] if len(table) == rows else [f"the table has {len(table)} rows of {rows}"]
    ends: dict[int, str] = {}
    for journal in database.glob("reports/runs/*/journal.jsonl"):
        for line in map(json.loads, journal.read_text(encoding="utf-8").splitlines()):
            if line["kind"] in ("measured", "failed"):
                number = int(line["row"][1][1].split(",")[0])
                ends[number] = line.get("failure", "measured")
    for number, row in enumerate(table, start=1):
        expected = ENDS[faulty[number]] if number in faulty else "measured"
        text = f"{duration_us(number):.6f}" if number not in faulty else ""
        if ends.get(number) != expected:
            fault = faulty.get(number, "healthy")
            wrong.append(f"row {number} ({fault}) ended as {ends.get(number)}, expected {expected}")
        if row["Average Duration(us)"] != text:
            wrong.append(f"row {number} has {row['Average Duration(us)']!r}, expected {text!r}")
    print(f"ends: {dict(Counter(ends.values()))}")
    return wrong


if __name__ == "__main__":
    sys.exit(main())
