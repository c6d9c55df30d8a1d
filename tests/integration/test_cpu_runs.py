"""Whole runs on the CPU family: ranks that will not end, real kernels checked."""

from __future__ import annotations

import csv
import time
from pathlib import Path
from uuid import uuid4

import pytest

from perfcollect_core.cli import main
from perfcollect_core.executors.local import LocalExecutor
from perfcollect_core.runner.execution import Ended
from perfcollect_core.runner.journal import read_lines
from perfcollect_core.runner.processes import find_tree

pytest.importorskip("torch")
pytestmark = pytest.mark.torch

_HEADER = (
    "OP State",
    "Accelerator Core",
    "Input Shapes",
    "Input Data Types",
    "Input Formats",
    "Output Shapes",
    "Output Data Types",
    "Output Formats",
    "Average Duration(us)",
    "Profiling Average Duration(us)",
    "Fault",
    "Ranks",
)


def write_rows(path: Path, rows: list[dict[str, str]]) -> Path:
    path.parent.mkdir()
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, _HEADER)
        writer.writeheader()
        writer.writerows(rows)
    return path.parent


def matmul(m: int, k: int, n: int, **more: str) -> dict[str, str]:
    return {
        "OP State": "dynamic",
        "Accelerator Core": "CPU",
        "Input Shapes": f'"{m},{k};{k},{n}"',
        "Input Data Types": "DT_BF16;DT_BF16",
        "Input Formats": "ND;ND",
        "Output Shapes": f'"{m},{n}"',
        "Output Data Types": "DT_BF16",
        "Output Formats": "ND",
        **more,
    }


def journal(database: Path, kind: str) -> list[dict]:
    (run,) = (database / "reports" / "runs").iterdir()
    return [line for line in read_lines(run / "journal.jsonl") if line is not None and line["kind"] == kind]


def durations(database: Path) -> list[bool]:
    (table,) = database.glob("*.csv")
    with table.open(encoding="utf-8", newline="") as file:
        return [bool(row["Average Duration(us)"]) for row in csv.DictReader(file)]


@pytest.fixture(autouse=True)
def poison(fake_distribution):
    fake_distribution("fake-poison", operators={"FakePoison": "perfcollect_core.testing.faults:operator"})


class _Watched(LocalExecutor):
    """Notes when a worker was ended by force and when its last process was gone."""

    forced: float = 0.0
    gone: float = 0.0

    def stop(self, worker, *, force=False):
        if force and not _Watched.forced:
            _Watched.forced = time.monotonic()
        super().stop(worker, force=force)

    def events(self, timeout_seconds):
        found = super().events(timeout_seconds)
        if any(isinstance(event, Ended) for event in found):
            _Watched.gone = time.monotonic()
        return found


def test_ranks_under_torchrun_that_ignore_sigterm_end_within_two_seconds_of_the_deadline(
    tmp_path, monkeypatch
):
    monkeypatch.setenv("PERFCOLLECT_TEST_MARK", mark := uuid4().hex)
    database = write_rows(tmp_path / "db" / "FakePoison.csv", [matmul(1, 8, 8, Fault="stubborn", Ranks="2")])
    monkeypatch.setattr("perfcollect_core.executors.local.LocalExecutor", _Watched)

    code = main(["run", "--database-path", str(database), "--family", "cpu", "--case-timeout", "1.5"])

    assert code == 1
    (failed,) = journal(database, "failed")
    assert failed["failure"] == "timeout"
    assert failed["reason"] == "not done within 1.5 s, rank 0, 1 did not answer"
    assert 0 < _Watched.gone - _Watched.forced < 2.0
    assert find_tree(mark) == set()


def test_measured_rows_of_a_real_operator_are_right(tmp_path, capsys):
    pytest.importorskip("perfcollect_ops_builtin")
    database = write_rows(tmp_path / "db" / "MatMulV2.csv", [matmul(16, 64, 32), matmul(1, 512, 128)])

    code = main(
        ["run", "--database-path", str(database), "--ops", "MatMulV2", "--check", "--repeat-count", "5"]
    )

    assert code == 0
    assert "2 outputs compared with their reference, 0 wrong, 0 not compared" in capsys.readouterr().out
    assert durations(database) == [True, True]
    assert [line["statistics"]["n"] for line in journal(database, "measured")] == [5, 5]
