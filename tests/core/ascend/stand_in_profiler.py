"""Run a program and turn the launches it noted into an op_summary: ``stand_in_profiler.py DIRECTORY PROGRAM...``.

``PROFILED_MISBEHAVES``: ``nothing`` exports nothing, ``many`` exports nothing of more than two cases, ``status`` exits
with 1 all the same.
"""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from pathlib import Path

HEADER = (
    "Device_id",
    "Task ID",
    "Stream ID",
    "OP Type",
    "OP State",
    "Task Type",
    "Task Start Time(us)",
    "Task Duration(us)",
    "Input Shapes",
    "Input Data Types",
    "Input Formats",
    "Output Shapes",
    "Output Data Types",
    "Output Formats",
    "aicore_time(us)",
)


def main() -> int:
    directory, *program = sys.argv[1:]
    log = Path(directory, "launches.jsonl")
    code = subprocess.run(program, env={**os.environ, "PROFILED_LOG": str(log)}, check=False).returncode
    misbehaves = os.environ.get("PROFILED_MISBEHAVES", "")
    lines = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
    cases = len({line["shape"] for line in lines})
    if misbehaves == "nothing" or (misbehaves == "many" and cases > 2):
        return 1
    folder = Path(directory, "PROF_1", "mindstudio_profiler_output")
    folder.mkdir(parents=True)
    with (folder / "op_summary_1.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(HEADER)
        for number, line in enumerate(lines):
            start = line["start_ns"]
            shape = f'"{line["shape"]}"'
            tensor = (shape, line["dtype"], "ND")
            times = (f"{start // 1000}.{start % 1000:03d}\t", line["us"])
            what = (0, number, 2, line["kernel"], "static", "AI_VECTOR_CORE")
            writer.writerow((*what, *times, *tensor, *tensor, line["us"] - 1))
    return 1 if misbehaves == "status" else 128 - code if code < 0 else code


if __name__ == "__main__":
    sys.exit(main())
