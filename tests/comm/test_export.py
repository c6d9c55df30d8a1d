"""Tables out of a finished run: again, in another dtype's directory, or with a recorded correction."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

pytestmark = pytest.mark.torch


@pytest.fixture
def run_dir(comm, tmp_path) -> Path:
    outcome = comm(
        *(
            "run",
            "--backend",
            "gloo",
            "--nproc",
            "2",
            "--num-devices",
            "2",
            "--grid-shape",
            "2",
            "--run-dir",
            "R",
        ),
        *("--ops", "all_reduce", "--bytes-grid", "1024", "4096", "--budget", "0.01"),
    )
    assert outcome.code == 0, outcome.err
    return tmp_path / "R"


def durations(path: Path) -> list[float]:
    return [float(row["Duration(us)"]) for row in csv.DictReader(path.read_text().splitlines())]


def test_a_run_is_exported_raw_and_with_a_correction_apart(comm, tmp_path, run_dir):
    (tmp_path / "correction.json").write_text(json.dumps({"all_reduce": {"2": 7.5}}))

    comm("export", "--run-dir", "R", "--database-path", "RAW")
    comm("export", "--run-dir", "R", "--database-path", "CORRECTED", "--apply-correction", "correction.json")

    raw, corrected = (durations(tmp_path / name / "hcom_allReduce_.csv") for name in ("RAW", "CORRECTED"))
    assert corrected == pytest.approx([value + 7.5 for value in raw], abs=0.011)


def test_another_dtype_than_the_directory_holds_is_refused(comm, tmp_path, run_dir):
    comm("export", "--run-dir", "R", "--database-path", "OUT")
    before = (tmp_path / "OUT" / "hcom_allReduce_.csv").read_bytes()

    outcome = comm(
        *(
            "run",
            "--backend",
            "gloo",
            "--nproc",
            "2",
            "--num-devices",
            "2",
            "--grid-shape",
            "2",
            "--dtype",
            "float32",
        ),
        *("--ops", "all_reduce", "--bytes-grid", "1024", "--budget", "0.01", "--database-path", "OUT"),
        *("--run-dir", "SECOND"),
    )

    assert outcome.code == 2
    assert not (tmp_path / "SECOND" / "journal.jsonl").exists()
    assert "two values of dtype in one table, DT_BF16 and DT_FLOAT" in outcome.err
    assert (tmp_path / "OUT" / "hcom_allReduce_.csv").read_bytes() == before


def test_all_tiles_at_once_are_measured_and_kept_out_of_the_isolated_tables(comm, tmp_path):
    outcome = comm(
        *(
            "run",
            "--backend",
            "gloo",
            "--nproc",
            "4",
            "--num-devices",
            "2",
            "--grid-shape",
            "4",
            "--concurrent",
        ),
        *("--ops", "all_gather", "--bytes-grid", "1024", "--budget", "0.01", "--run-dir", "C"),
        *("--database-path", "OUT"),
    )

    lines = [json.loads(line) for line in (tmp_path / "C" / "journal.jsonl").read_text().splitlines()]
    assert outcome.code == 0, outcome.err
    assert [line["groups"] for line in lines if "key" in line] == [[[0, 1], [2, 3]]]
    assert set(lines[-1]["samples_us"]) == {"0", "1", "2", "3"}
    assert not (tmp_path / "OUT" / "hcom_allGather_.csv").exists()


def test_a_directory_without_a_run_is_named(comm):
    outcome = comm("export", "--run-dir", "NONE", "--database-path", "OUT")

    assert outcome.code == 2
    assert outcome.err.startswith("error: NONE holds no journal.jsonl")
