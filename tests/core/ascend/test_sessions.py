"""Durations out of the profile of a worker: sessions, lost records, crashes, and what is written back."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import attrs
import pytest

from perfcollect_core.cli import main
from perfcollect_core.runner import deferred
from perfcollect_core.runner.journal import read_lines
from perfcollect_core.tables.identity import Identity, write_identity

HEADER = (
    "OP State",
    "Accelerator Core",
    "Input Shapes",
    "Input Data Types",
    "Input Formats",
    "Output Shapes",
    "Output Data Types",
    "Output Formats",
    "Average Duration(us)",
    "Trouble",
    "Take Us",
)


@attrs.frozen
class Database:
    path: Path
    table: str = "Profiled.csv"

    def rows(self, table: str = "") -> list[dict[str, str]]:
        with (self.path / (table or self.table)).open(encoding="utf-8-sig", newline="") as file:
            return list(csv.DictReader(file))

    def durations(self, table: str = "") -> list[str]:
        return [row["Average Duration(us)"] for row in self.rows(table)]

    @property
    def run_dir(self) -> Path:
        return max((self.path / "reports" / "runs").iterdir())

    def journal(self, kind: str) -> list[dict]:
        lines = read_lines(self.run_dir / "journal.jsonl")
        return [line for line in lines if line is not None and line["kind"] == kind]

    def profiles(self) -> list[str]:
        return sorted(
            str(path.relative_to(self.run_dir / "profiles"))
            for path in (self.run_dir / "profiles").rglob("*")
            if path.is_file()
        )


def write_table(path: Path, troubles, first: int = 1, takes=()) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, HEADER)
        writer.writeheader()
        for index, trouble in enumerate(troubles):
            shape = f'"{first + index},512"'
            writer.writerow(
                {
                    "OP State": "dynamic",
                    "Input Shapes": shape,
                    "Input Data Types": "DT_BF16",
                    "Input Formats": "ND",
                    "Output Shapes": shape,
                    "Output Data Types": "DT_BF16",
                    "Output Formats": "ND",
                    "Trouble": trouble,
                    "Take Us": str(takes[index] if takes else first + index),
                }
            )


@pytest.fixture
def make(fake_distribution, tmp_path, monkeypatch):
    monkeypatch.setenv("PROFILED_STATE", str(tmp_path))
    fake_distribution("profiled-op", operators={"Profiled": "profiled_world:operator"})

    def database(*troubles: str, emulated: bool = True, takes=()) -> Database:
        path = tmp_path / "db"
        path.mkdir()
        write_table(path / "Profiled.csv", troubles, takes=takes)
        write_identity(path, Identity("ascend", "ATLAS_800_A3_752T_128G_DIE", emulated=emulated))
        return Database(path)

    return database


@pytest.fixture
def run(fake_distribution, capsys):
    fake_distribution("profiled-family", families={"profiled": "profiled_world:family"})

    def command(database: Database, *options: str):
        capsys.readouterr()
        code = main(["run", "--database-path", str(database.path), "--family", "profiled", *options])
        captured = capsys.readouterr()
        return code, captured.out + captured.err

    return command


def test_durations_come_out_of_the_profile_and_are_written_back(make, run):
    database = make("", "", "")

    code, _ = run(database)

    assert code == 0
    assert database.durations() == ["1.000000", "2.000000", "3.000000"]
    row = database.rows()[1]
    assert row["Observed Kernel"] == "Profiled"
    assert row["Accelerator Core"] == "AI_VECTOR_CORE"
    assert row["MicroBench aicore_time(us)"] == "1.000000"
    assert len(database.journal("launched")) == len(database.journal("measured")) == 3
    assert database.profiles() == []


def test_kept_profiles_stay(make, run):
    database = make("")

    run(database, "--keep-profiles")

    assert {Path(name).name for name in database.profiles()} == {"launches.jsonl", "op_summary_1.csv"}


def test_a_lost_record_is_measured_again(make, run):
    database = make("", "lose_once", "")

    code, _ = run(database)

    assert code == 0
    assert database.durations() == ["1.000000", "2.000000", "3.000000"]
    assert len(database.journal("launched")) == 4
    assert [line["failure"] for line in database.journal("attempt")] == ["not_observed"]


def test_records_that_never_fit_end_as_not_observed_with_the_kernels_seen(make, run):
    database = make("", "lose_always")

    code, _ = run(database)

    assert code == 3
    assert database.durations() == ["1.000000", ""]
    (failed,) = database.journal("failed")
    session = [line["session"] for line in database.journal("launched")][-1]
    assert failed["failure"] == "not_observed"
    assert failed["reason"] == (
        "9 tasks of Profiled fit, 10 were launched; in its brackets: 10 Cast, 9 Profiled (op_summary kept in "
        f"{database.run_dir.name}/profiles/suspicious/{session}), in 3 tries"
    )
    kept = [Path(name).parts for name in database.profiles()]
    assert {parts[0] for parts in kept} == {"suspicious"}
    assert len(kept) == 3


@pytest.mark.parametrize("trouble", ["extra"])
def test_a_record_too_many_is_never_guessed_away(make, run, trouble):
    database = make(trouble)

    code, _ = run(database)

    assert code == 1
    assert database.durations() == [""]


def test_twins_of_another_dtype_in_the_bracket_are_told_apart(make, run):
    database = make("twin")

    run(database)

    assert database.durations() == ["1.000000"]


def test_an_alias_that_ran_is_recorded_and_fills_its_own_table(make, run):
    database = make("alias")
    write_table(database.path / "ProfiledV2.csv", ["alias", "other"])

    code, _ = run(database, "--ops", "Profiled")

    assert code == 0
    assert database.durations() == ["1.000000"]
    assert database.rows()[0]["Observed Kernel"] == "ProfiledV2"
    assert database.durations("ProfiledV2.csv") == ["1.000000", ""]


def test_a_crash_costs_no_case_that_was_launched_before(make, run):
    database = make("", "", "crash", "")

    code, _ = run(database)

    assert code == 3
    assert database.durations() == ["1.000000", "2.000000", "", "4.000000"]
    assert [line["failure"] for line in database.journal("failed")] == ["worker_crashed"]
    # The two before the crash were in the profile of the worker that died: nothing was launched twice.
    assert len(database.journal("launched")) == 3


def test_a_hang_ends_the_worker_and_not_its_profiler(make, run):
    database = make("", "hang", "")

    code, _ = run(database, "--case-timeout", "1.5")

    assert code == 3
    assert database.durations() == ["1.000000", "", "3.000000"]
    assert len(database.journal("launched")) == 2


def test_an_error_of_the_device_ends_the_worker_and_its_case_is_tried_alone(make, run):
    database = make("", "raise_once", "")

    code, _ = run(database)

    assert code == 0
    assert database.durations() == ["1.000000", "2.000000", "3.000000"]
    assert [line["failure"] for line in database.journal("attempt")] == ["device_lost"]


def test_a_session_without_data_is_repeated_in_smaller_ones(make, run, monkeypatch):
    monkeypatch.setenv("PROFILED_MISBEHAVES", "many")
    database = make(*[""] * 5)

    code, out = run(database)

    assert code == 0
    assert database.durations() == [f"{n}.000000" for n in range(1, 6)]
    assert "its 5 cases are measured again, 2 at a time" in " ".join(out.split())


def test_a_profiler_that_never_gives_data_stops_the_run_and_blames_no_row(make, run, monkeypatch):
    monkeypatch.setenv("PROFILED_MISBEHAVES", "nothing")
    database = make("", "")

    code, out = run(database)

    assert code == 1
    assert database.durations() == ["", ""]
    assert database.journal("failed") == []
    assert "was left alone after 3 sessions without data" in " ".join(out.split())


def test_data_of_a_profiler_that_exits_badly_are_used(make, run, monkeypatch):
    monkeypatch.setenv("PROFILED_MISBEHAVES", "status")
    database = make("")

    code, out = run(database)

    assert code == 0
    assert database.durations() == ["1.000000"]
    assert "exited with status 1, its data were read all the same" in " ".join(out.split())


def test_sessions_are_bounded(make, run, monkeypatch):
    monkeypatch.setattr(deferred, "MAX_LAUNCHES", 24)
    database = make(*[""] * 5)

    run(database)

    sessions = [line["session"] for line in database.journal("launched")]
    assert [sessions.count(name) for name in dict.fromkeys(sessions)] == [2, 2, 1]


def test_device_time_bounds_sessions_too(make, run, monkeypatch):
    monkeypatch.setattr(deferred, "MAX_DEVICE_SECONDS", 1e-4)
    database = make("", "", takes=(100, 100))

    run(database)

    assert len({line["session"] for line in database.journal("launched")}) == 2


def test_a_case_whose_interval_is_wide_is_visited_again(make, run):
    database = make("wide")

    run(database)

    (measured,) = database.journal("measured")
    assert len(measured["samples"]["us"]) == 30
    assert measured["samples"]["stop"] == "budget"


def test_several_devices_have_a_session_each(make, run, monkeypatch):
    monkeypatch.setenv("PROFILED_DEVICES", "2")
    # Short sessions: neither device can take all cases before the other is up.
    monkeypatch.setattr(deferred, "MAX_LAUNCHES", 24)
    database = make(*[""] * 12)

    code, _ = run(database)

    assert code == 0
    assert database.durations() == [f"{n}.000000" for n in range(1, 13)]
    assert {line["device"] for line in database.journal("launched")} == {0, 1}


def test_a_run_taken_up_again_measures_what_was_launched_and_not_read(make, run):
    database = make("", "")
    run(database)
    journal = database.run_dir / "journal.jsonl"
    kept = [
        line for line in journal.read_text().splitlines() if json.loads(line)["kind"] in ("run", "launched")
    ]
    journal.write_text("\n".join(kept) + "\n")
    write_table(database.path / "Profiled.csv", ["", ""])

    code, _ = run(database, "--resume")

    assert code == 0
    assert database.durations() == ["1.000000", "2.000000"]


def test_emulated_numbers_are_refused_by_a_database_not_marked_emulated(make, run):
    database = make("", emulated=False)
    before = (database.path / "Profiled.csv").read_bytes()

    code, out = run(database)

    assert code == 1
    assert "this run would measure emulated ascend durations" in " ".join(out.split())
    assert "--emulated" in out
    assert (database.path / "Profiled.csv").read_bytes() == before
