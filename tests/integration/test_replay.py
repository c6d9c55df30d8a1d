"""``perfcollect replay`` launches rows, measures nothing and changes no table."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytestmark = pytest.mark.torch

HEADER = "Accelerator Core,Input Shapes,Input Data Types,Input Formats,Output Shapes,Output Data Types,Output Formats"
PLUGIN = """
import os
from perfcollect_core import Kernel, OperatorSpec, Slot

def perfcollect_operator_spec(operator):
    return OperatorSpec(operator, inputs=(Slot("x"),))

def perfcollect_bind_kernel(case, inputs, device):
    size = case.tensors["x"].shape[0]
    def call():
        if size == 13:
            raise ValueError("thirteen elements")
        if size == 17:
            os.abort()
        return inputs["x"] + 1
    return Kernel(call=call)
"""


@pytest.fixture
def database(tmp_path: Path) -> Path:
    site = tmp_path / "site"
    metadata = site / "ops_replay-1.0.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: ops-replay\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(
        "[perfcollect.operators]\nAlpha = ops_replay\nOmega = ops_replay\n"
    )
    (site / "ops_replay.py").write_text(PLUGIN)
    return tmp_path / "db"


def write(database: Path, operator: str, *sizes: int) -> None:
    database.mkdir(exist_ok=True)
    rows = [f'CPU,"{size}",FLOAT,ND,"{size}",FLOAT,ND' for size in sizes]
    (database / f"{operator}.csv").write_text("\n".join([HEADER, *rows]) + "\n")


def replay(database: Path, *arguments: str) -> tuple[subprocess.CompletedProcess[str], dict]:
    run_dir = database.parent / "run"
    environment = {**os.environ, "PYTHONPATH": str(database.parent / "site"), "OMP_NUM_THREADS": "1"}
    command = [str(Path(sys.executable).with_name("perfcollect")), "replay", "--database-path", str(database)]
    command += ["--family", "cpu", "--repeat-count", "2", "--run-dir", str(run_dir), *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    status = run_dir / "replay_status.json"
    return done, json.loads(status.read_text()) if status.exists() else {}


def digests(database: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in database.glob("*.csv")}


@pytest.mark.parametrize("mode", ["subprocess", "inprocess"])
def test_rows_are_launched_and_tables_keep_their_bytes(database, mode):
    write(database, "Alpha", 4, 8)
    before = digests(database)

    done, status = replay(database, "--execution-mode", mode)

    assert done.returncode == 0, done.stderr
    assert status == {"success": ["Alpha"], "failed": [], "skipped": []}
    assert digests(database) == before


@pytest.mark.parametrize("mode", ["subprocess", "inprocess"])
def test_a_failing_row_is_named_and_ends_the_replay(database, mode):
    write(database, "Alpha", 4, 13)
    write(database, "Omega", 4)

    done, status = replay(database, "--execution-mode", mode)

    assert done.returncode == 3
    assert status["success"] == []
    assert status["failed"] == [
        {"op": "Alpha", "reason": "invalid_case: ValueError: thirteen elements", "row": "13"}
    ]


def test_with_continue_on_error_the_next_operator_is_replayed_too(database):
    write(database, "Alpha", 13)
    write(database, "Omega", 4)

    done, status = replay(database, "--continue-on-error")

    assert done.returncode == 3
    assert status["success"] == ["Omega"]


def test_a_crash_is_the_failure_of_the_row_in_flight(database):
    write(database, "Alpha", 4, 17, 8)

    done, status = replay(database)

    assert done.returncode == 3
    (failed,) = status["failed"]
    assert failed["row"] == "17"
    assert failed["reason"].startswith("worker_crashed: the replay was killed by SIGABRT")


def test_rows_that_need_nothing_are_said_not_launched(database):
    write(database, "Alpha", 4)
    table = database / "Alpha.csv"
    table.write_text(f'{HEADER},Average Duration(us)\nCPU,"4",FLOAT,ND,"4",FLOAT,ND,5.0\n')

    done, status = replay(database, "--update-mode", "missing-only")

    assert done.returncode == 0
    assert "1 of 1 rows of Alpha.csv have a valid duration" in done.stdout
    assert status["success"] == []
