"""Drill: kill -9 of the parent at random moments, then go on (``make drill-kill``).

After each kill the table parses and no row is missing. In the end it equals what an uninterrupted run leaves in every
cell but the measured ones, and no row was measured twice, save the one in flight when the parent died. The state is kept
in the directory: an interrupted drill goes on where it was, and it stops by itself after ``--seconds``.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import attrs

sys.path.insert(0, str(Path(__file__).resolve().parent))
from stage import Stage

#: Cells a run measures; all others must not depend on what happened to it.
MEASURED_COLUMNS = ("Average Duration(us)", "Measured With")


@attrs.define
class Tally:
    """What the drill did so far."""

    kills: int = 0
    rounds: int = 0
    runs: int = 0
    begun_again: int = 0


def main(arguments: list[str] | None = None) -> int:
    """Run the drill; returns 0 where everything held."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--rows", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=1500.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--directory", type=Path, default=Path(tempfile.gettempdir()) / "perfcollect-drill-kill"
    )
    options = parser.parse_args(arguments)
    tally, reached = drill(options.directory, options.kills, options.rows, options.seconds, options.seed)
    print(
        f"drill-kill: {tally.kills} kills over {tally.rounds} whole runs of {options.rows} rows; "
        f"{tally.begun_again} cases begun again, at most one a kill; no row lost, none measured twice"
    )
    if not reached:
        print(
            f"stopped after {options.seconds:g} s; run it again to go on with {options.kills - tally.kills} kills"
        )
        return 4
    shutil.rmtree(options.directory)
    return 0


def drill(directory: Path, kills: int, rows: int, seconds: float, seed: int) -> tuple[Tally, bool]:
    """Kill *kills* parents; returns the tally and whether all were reached in *seconds*."""
    deadline = time.monotonic() + seconds
    state = directory / "tally.json"
    tally = Tally(**json.loads(state.read_text())) if state.exists() else Tally()
    expected = _uninterrupted(directory, rows)
    while tally.kills < kills:
        stage = Stage(directory / f"round_{tally.rounds}")
        if not stage.database.exists():
            stage.build(["ok"] * rows, sleep_ms=5.0)
        while True:
            if time.monotonic() > deadline:
                return tally, False
            randomness = random.Random(f"{seed} {tally.kills} {tally.runs}")
            done = _one_run(stage, randomness, kill=tally.kills < kills)
            tally.runs += 1
            stage.check_table(rows)
            if done:
                break
            tally.kills += 1
            state.write_text(json.dumps(attrs.asdict(tally)))
        tally.begun_again += _check_round(stage, rows, expected)
        tally.rounds += 1
        state.write_text(json.dumps(attrs.asdict(tally)))
        shutil.rmtree(stage.directory)
    return tally, True


def _uninterrupted(directory: Path, rows: int) -> dict[str, dict[str, str]]:
    stage = Stage(directory / "uninterrupted")
    if not stage.has_run():
        shutil.rmtree(stage.directory, ignore_errors=True)
        stage.build(["ok"] * rows, sleep_ms=5.0)
        code, printed = stage.run()
        if code:
            raise AssertionError(f"the uninterrupted run ended with {code}: {printed}")
    return stage.check_table(rows)


def _one_run(stage: Stage, randomness: random.Random, *, kill: bool) -> bool:
    """Start or resume the run and perhaps kill it; returns whether it came to its end."""
    process = stage.start(*(["--resume"] if stage.has_run() else []))
    if kill:
        # A third anywhere from the start on, the others while cases run, the tables are written or just after.
        anywhere = randomness.random() < 1 / 3
        if not anywhere:
            _await_growth(stage, process)
        give_up = time.monotonic() + randomness.uniform(0.0, 2.5 if anywhere else 1.2)
        while process.poll() is None and time.monotonic() < give_up:
            time.sleep(0.005)
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
            process.communicate()
            return False
    printed, _ = process.communicate(timeout=600)
    if process.returncode:
        raise AssertionError(f"the run ended with {process.returncode}: {printed}")
    return True


def _await_growth(stage: Stage, process: subprocess.Popen[str]) -> None:
    """Wait until the run has journalled something after its first line."""
    began = {path: path.stat().st_size for path in _journals(stage)}
    while process.poll() is None:
        if any(path.stat().st_size > began.get(path, 0) + 2000 for path in _journals(stage)):
            return
        time.sleep(0.005)


def _journals(stage: Stage) -> list[Path]:
    return list((stage.database / "reports" / "runs").glob("*/journal.jsonl"))


def _check_round(stage: Stage, rows: int, expected: dict[str, dict[str, str]]) -> int:
    found = stage.check_table(rows)
    for number, cells in found.items():
        for column in {*cells, *expected[number]} - set(MEASURED_COLUMNS):
            if cells.get(column, "") != expected[number].get(column, ""):
                raise AssertionError(f"row {number}: {column} is {cells.get(column)!r}")
        if not cells["Average Duration(us)"]:
            raise AssertionError(f"row {number} was never written")
    twice = {number: count for number, count in stage.measured_counts().items() if count != 1}
    if twice or set(stage.measured_counts()) != set(expected):
        raise AssertionError(f"rows not journalled exactly once: {twice}")
    again = sum(count - 1 for count in stage.begun_counts().values())
    started = sum(1 for line in stage.lines() if line["kind"] == "run")
    if again > started - 1:
        raise AssertionError(f"{again} cases were begun again, expected at most one a kill")
    return again


if __name__ == "__main__":
    sys.exit(main())
