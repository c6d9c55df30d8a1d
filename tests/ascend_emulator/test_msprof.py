"""The stand-in msprof exports, loses and fails as it is told."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

pytestmark = pytest.mark.ascend_emulator

MSPROF = Path(__file__).parent / "msprof.py"
# A program that "launches": it writes the log the C core would have written.
PROGRAM = """
import os, pathlib, shutil, sys
log = os.environ["CANN_EMU_PROFILE"].replace("%p", str(os.getpid()))
shutil.copy(sys.argv[1], log)
"""


def _tensor(*view: int, dtype: int = 27) -> dict[str, object]:
    storage = 1
    for dim in view:
        storage *= dim
    return {"view": list(view), "storage": [storage], "dtype": dtype, "format": 2}


def _softmax(number: int, rows: int, *, device: int = 0) -> dict[str, object]:
    return {
        "kind": "aclnn",
        "name": "aclnnSoftmax",
        "seq": number,
        "pid": 1,
        "device": device,
        "stream": 3,
        "start_ns": 1_700_000_000_000_000_000 + 20_000 * number,
        "duration_ns": 10_000 + number,
        "shapes": f"{rows},64;{rows},64",
        "args": [_tensor(rows, 64), -1, _tensor(rows, 64)],
    }


@pytest.fixture
def launches(tmp_path: Path) -> Path:
    path = tmp_path / "launches.jsonl"
    records = [_softmax(number, rows=4 if number <= 3 else 8, device=number % 2) for number in range(1, 7)]
    path.write_text("".join(f"{json.dumps(record)}\n" for record in records))
    return path


def _profile(
    launches: Path, *options: str, program: str = PROGRAM, **settings: str
) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("CANN_EMU_")}
    command = [sys.executable, str(MSPROF), f"--output={launches.parent / 'out'}", *options]
    return subprocess.run(
        [*command, sys.executable, "-c", program, str(launches)],
        env={**environment, **settings},
        capture_output=True,
        text=True,
        timeout=60,
    )


def _tables(launches: Path) -> list[list[dict[str, str]]]:
    tables = []
    for path in sorted(launches.parent.glob("out/PROF_*/mindstudio_profiler_output/op_summary_*.csv")):
        with path.open(newline="", encoding="utf-8") as file:
            tables.append(list(csv.DictReader(file)))
    return tables


def _numbers(rows: Sequence[dict[str, str]]) -> list[int]:
    return [int(row["Task ID"]) for row in rows]


def test_each_launch_is_one_row_with_its_device_and_duration(launches: Path) -> None:
    done = _profile(launches)

    (rows,) = _tables(launches)
    assert done.returncode == 0, done.stderr
    assert _numbers(rows) == [1, 2, 3, 4, 5, 6]
    assert [row["Device_id"] for row in rows] == ["1", "0", "1", "0", "1", "0"]
    assert [row["Task Duration(us)"] for row in rows[:2]] == ["10.001", "10.002"]
    assert rows[0]["Input Shapes"] == '"4,64"'


@pytest.mark.parametrize(
    ("lose", "kept"),
    [
        ("head=2", [3, 4, 5, 6]),
        ("tail=1", [1, 2, 3, 4, 5]),
        ("SoftmaxV2@4", [1, 2, 3, 5, 6]),
        ("aclnnSoftmax[8,64]@1", [1, 2, 3, 5, 6]),
        ("aclnnSoft*[4,64]", [4, 5, 6]),
    ],
)
def test_records_are_lost_as_asked(launches: Path, lose: str, kept: list[int]) -> None:
    _profile(launches, CANN_EMU_LOSE=lose)

    (rows,) = _tables(launches)
    assert _numbers(rows) == kept


def test_a_failing_msprof_leaves_no_profile(launches: Path) -> None:
    done = _profile(launches, CANN_EMU_MSPROF="fail")

    assert done.returncode == 1
    assert list(launches.parent.glob("out/*")) == []


def test_a_profile_can_lack_its_summary(launches: Path) -> None:
    done = _profile(launches, CANN_EMU_MSPROF="noexport")

    assert done.returncode == 0
    assert len(list(launches.parent.glob("out/PROF_*"))) == 1
    assert _tables(launches) == []


def test_slices_hold_the_records_once_each(launches: Path) -> None:
    _profile(launches, CANN_EMU_MSPROF="slices=3")

    assert [_numbers(rows) for rows in _tables(launches)] == [[1, 2], [3, 4], [5, 6]]


@pytest.mark.parametrize(
    ("header", "columns", "present", "absent"),
    [
        ("8.x", 46, "Block Dim", "Block Num"),
        ("block-num", 46, "Block Num", "Block Dim"),
        ("no-counters", 21, "Context ID", "aicore_time(us)"),
        ("no-context", 44, "Block Dim", "Context ID"),
        ("reordered", 46, "cube_utilization(%)", "Block Num"),
    ],
)
def test_headers_are_those_of_several_cann_versions(
    launches: Path, header: str, columns: int, present: str, absent: str
) -> None:
    _profile(launches, CANN_EMU_MSPROF=f"header={header}")

    ((row, *_),) = _tables(launches)
    assert len(row) == columns
    assert present in row
    assert absent not in row


def test_shapes_of_a_chosen_kernel_are_not_collected(launches: Path) -> None:
    _profile(launches, CANN_EMU_MSPROF="na=Softmax*")

    ((row, *_),) = _tables(launches)
    assert [row[f"Input {what}"] for what in ("Shapes", "Data Types", "Formats")] == ["N/A", "N/A", "N/A"]


def test_the_status_is_the_programs_even_when_a_signal_ended_it(launches: Path) -> None:
    failed = _profile(launches, program=f"{PROGRAM}\nsys.exit(7)")
    killed = _profile(launches, program=f"{PROGRAM}\nos.kill(os.getpid(), {signal.SIGKILL})")

    assert failed.returncode == 7
    assert killed.returncode == 247
    assert [len(rows) for rows in _tables(launches)] == [6, 6]


def test_a_program_given_as_one_option_runs_too(launches: Path) -> None:
    script = launches.parent / "program.py"
    script.write_text(PROGRAM)
    command = [sys.executable, MSPROF, "--output", launches.parent / "out"]
    application = f"--application={sys.executable} {script} {launches}"

    done = subprocess.run([*command, application], capture_output=True, text=True, timeout=60)

    assert done.returncode == 0, done.stderr
    assert len(_tables(launches)) == 1


def test_a_torn_last_line_of_a_killed_process_is_left_out(launches: Path) -> None:
    launches.write_text(launches.read_text()[:-40])

    _profile(launches)

    (rows,) = _tables(launches)
    assert _numbers(rows) == [1, 2, 3, 4, 5]


def test_without_a_program_it_says_so(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, MSPROF, f"--output={tmp_path}"], capture_output=True, text=True, timeout=60
    )

    assert done.returncode == 1
    assert done.stderr == "[ERROR] msprof: no application: use --application= or put the command last\n"


def test_a_collective_is_shown_twice_as_profilers_do(launches: Path) -> None:
    collective = {**_softmax(7, rows=4), "kind": "hccl", "name": "HcclAllReduce", "shapes": ""}
    launches.write_text(f"{json.dumps(collective)}\n")

    _profile(launches)

    (rows,) = _tables(launches)
    assert [row["OP Type"] for row in rows] == ["hcom_allReduce_"] * 2
    assert [row["Stream ID"] for row in rows] == ["3", "N/A"]
    assert {row["Task Type"] for row in rows} == {"COMMUNICATION"}
    assert rows[0]["Input Shapes"] == "N/A"
    assert rows[0]["Task Start Time(us)"] == rows[1]["Task Start Time(us)"]
