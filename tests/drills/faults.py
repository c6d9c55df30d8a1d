"""Drill: 10,000 no-op cases, 5 % faults over all kinds, three seeds (``make drill-faults``).

Every healthy case is measured, every culprit is named with its class, and nobody else is blamed.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from stage import Stage

#: How each kind of fault must end.
ENDS = {
    "raise": "invalid_case",
    "memory": "out_of_memory",
    "segfault": "worker_crashed",
    "abort": "worker_crashed",
    "exit": "worker_crashed",
    "hang": "timeout",
    "wrong": "wrong_result",
    "slow": "measured",
    "lost": "not_observed",
    "nan": "not_observed",
    "poison": "device_lost",
    "noisy": "measured",
}
#: Completes and leaves a process in which every later call fails: under ``--check`` its own second one.
SPOIL = "spoil"


def main(arguments: list[str] | None = None) -> int:
    """Run the drill; returns 0 where everything held."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=10_000)
    parser.add_argument("--share", type=float, default=0.05)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--devices", type=int, default=2)
    options = parser.parse_args(arguments)
    for seed in options.seeds:
        with tempfile.TemporaryDirectory(prefix="perfcollect-drill-faults-") as directory:
            print(drill(Path(directory), options.cases, options.share, seed, options.devices), flush=True)
    return 0


def drill(directory: Path, cases: int, share: float, seed: int, devices: int) -> str:
    """Run one seed and return what happened in a line.

    Raises:
        AssertionError: A healthy case was not measured, or a case ended as another should.
    """
    randomness = random.Random(seed)
    kinds = [*ENDS, SPOIL]
    faults = ["ok"] * cases
    chosen = randomness.sample(range(cases), round(share * cases))
    for index, place in enumerate(chosen):
        faults[place] = kinds[index % len(kinds)]
    stage = Stage(directory / f"seed_{seed}", flush_seconds=20.0)
    stage.build(faults)
    started = time.monotonic()
    code, printed = stage.run(
        "--check", "--case-timeout", "1", environment={"PERFCOLLECT_SIMULATED_DEVICES": str(devices)}
    )
    seconds = time.monotonic() - started
    check(stage, faults, code, printed)
    workers = sum(1 for line in stage.lines() if line["kind"] == "worker")
    shutil.rmtree(stage.directory)
    counts = Counter(fault for fault in faults if fault != "ok")
    return (
        f"drill-faults seed {seed}: {cases} cases, {sum(counts.values())} faults of {len(counts)} kinds, "
        f"{workers} workers, {seconds:.0f} s; every healthy case measured, every culprit named, nobody else blamed"
    )


def check(stage: Stage, faults: list[str], code: int, printed: str) -> None:
    """Compare how the cases ended with how they must."""
    ends = stage.ends()
    wrong = {}
    for number, fault in enumerate(faults, start=1):
        expected = {"device_lost"} if fault == SPOIL else {ENDS.get(fault, "measured")}
        if ends.get(str(number)) not in expected:
            wrong[number] = (fault, ends.get(str(number)))
    if wrong:
        raise AssertionError(
            f"{len(wrong)} cases ended wrongly: {dict(list(wrong.items())[:10])}; {printed[-2000:]}"
        )
    rows = stage.check_table(len(faults))
    for number, fault in enumerate(faults, start=1):
        written = bool(rows[str(number)]["Average Duration(us)"])
        if written != (ENDS.get(fault, "measured") == "measured" and fault != SPOIL):
            raise AssertionError(f"row {number} ({fault}): written is {written}")
    if code != 5:
        raise AssertionError(f"exit code {code}, expected 5 for the wrong results: {printed[-2000:]}")


if __name__ == "__main__":
    sys.exit(main())
