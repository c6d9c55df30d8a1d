"""Going on with a run: nothing measured twice, nothing lost, what failed only on request."""

from __future__ import annotations

import shutil

import pytest

from perfcollect_core.cli import main


def cut_journal(database, keep_measured: int) -> None:
    """Leave the journal as a kill would: the first lines only, the last one torn."""
    (run_dir,) = database.run_dirs()
    journal = run_dir / "journal.jsonl"
    lines, seen = [], 0
    for line in journal.read_bytes().splitlines(keepends=True):
        if seen == keep_measured:
            lines.append(line[: len(line) // 2])
            break
        lines.append(line)
        seen += b'"kind":"measured"' in line
    journal.write_bytes(b"".join(lines))


def test_a_killed_run_goes_on_where_its_journal_ends(fault_database, run):
    database = fault_database(*["ok"] * 6)
    original = database.table.read_bytes()
    run(database)
    cut_journal(database, 4)
    database.table.write_bytes(original)

    finished = run(database, "--resume")

    assert finished.code == 0
    assert database.measured() == [1, 2, 3, 4, 5, 6]
    assert len(database.journal("measured")) == 6
    assert len(database.run_dirs()) == 1


def test_a_finished_run_has_nothing_to_go_on_with(fault_database, run):
    database = fault_database("ok")
    run(database)

    finished = run(database, "--resume")

    assert finished.code == 0
    assert finished.out == "nothing to do: 1 cases of this run are measured, 0 failed\n"


def test_failed_cases_are_taken_up_only_on_request(fault_database, run):
    database = fault_database("ok", "raise", "ok", "abort")
    run(database)

    refused = run(database, "--resume")
    retried = run(database, "--resume", "--retry-failed")

    assert refused.code == 3
    assert refused.out.endswith("2 failed; --retry-failed tries the failed ones again\n")
    assert retried.code == 3
    assert [line["row"][1][1] for line in database.journal("failed")] == ["2,512", "4,512"] * 2
    assert len(database.journal("measured")) == 2


def test_a_budgeted_run_is_resumed_under_its_own_options(fault_database, run):
    database = fault_database(*["ok"] * 6)
    run(database, "--rows", "1-4", "--limit", "2")

    finished = run(database, "--resume", "--limit", "10")

    assert finished.code == 0
    assert database.measured() == [1, 2, 3, 4]


def test_an_unknown_run_is_a_usage_error_that_names_the_known_ones(fault_database, run):
    database = fault_database("ok")
    run(database)

    finished = run(database, "--resume", "no-such-run")

    assert finished.code == 2
    assert (
        "error: --resume no-such-run: no run there, expected a directory with journal.jsonl" in finished.err
    )
    assert database.run_dirs()[0].name in finished.err


def test_retry_failed_without_a_run_is_a_usage_error(fault_database, run):
    finished = run(fault_database("ok"), "--retry-failed")

    assert finished.code == 2


def test_an_unwritable_database_needs_a_run_directory_and_apply_writes_it_back(
    fault_database, run, tmp_path, read_only, capsys
):
    database = fault_database("ok", "ok")
    place = tmp_path / "elsewhere"
    with read_only(database.path):
        refused = run(database)
        finished = run(database, "--run-dir", str(place))
        assert database.measured() == []

    assert refused.code == 1
    assert f"error: database {database.path} cannot be written: read-only file system" in refused.err
    assert finished.code == 0
    assert f"perfcollect db apply {place}" in finished.out
    assert main(["db", "apply", str(place)]) == 0
    assert "2 rows updated" in capsys.readouterr().out
    assert database.measured() == [1, 2]


def test_applying_a_run_twice_changes_nothing(fault_database, run):
    database = fault_database("ok", "ok")
    run(database)
    digest = database.digest()

    assert main(["db", "apply", str(database.run_dirs()[0])]) == 0

    assert database.digest() == digest


def test_a_row_that_left_its_table_is_reported_and_its_sample_kept(fault_database, run, capsys):
    database = fault_database("ok", "ok", "ok")
    run(database)
    lines = database.table.read_text().splitlines(keepends=True)
    database.table.write_text("".join([*lines[:2], *lines[3:]]))

    capsys.readouterr()
    assert main(["db", "apply", str(database.run_dirs()[0])]) == 0

    assert "1 rows are no longer in their table, their samples stay in the journal" in capsys.readouterr().out
    assert len(database.journal("measured")) == 3


def test_a_run_directory_is_not_used_twice(fault_database, run, tmp_path):
    database = fault_database("ok")
    run(database, "--run-dir", str(tmp_path / "place"))

    finished = run(database, "--run-dir", str(tmp_path / "place"))

    assert finished.code == 1
    assert f"run directory {tmp_path / 'place'} holds a run already" in finished.err


def test_a_moved_database_is_resumed_by_naming_both(fault_database, run, tmp_path):
    database = fault_database("ok", "ok")
    run(database, "--limit", "1")
    shutil.move(database.path, tmp_path / "moved")

    code = main(
        [
            "run",
            "--resume",
            str(tmp_path / "moved/reports/runs" / next((tmp_path / "moved/reports/runs").iterdir()).name),
            "--limit",
            "5",
        ]
    )

    assert code == 1


@pytest.fixture
def read_only():
    """Return a context in which a directory cannot be written, by anybody."""
    import contextlib
    import os
    import subprocess

    @contextlib.contextmanager
    def mounted(directory):
        if os.geteuid() != 0:
            pytest.skip("a read-only bind mount needs root")
        done = subprocess.run(["mount", "--bind", str(directory), str(directory)], capture_output=True)
        if done.returncode:
            pytest.skip(f"no bind mount here: {done.stderr.decode().strip()}")
        try:
            subprocess.run(
                ["mount", "-o", "remount,ro,bind", str(directory)], check=True, capture_output=True
            )
            yield
        finally:
            subprocess.run(["umount", str(directory)], check=True, capture_output=True)

    return mounted


def test_resume_without_a_run_may_stand_before_an_option_of_several_values(fault_database, run):
    database = fault_database("ok", "ok")
    run(database, "--limit", "1")

    finished = run(database, "--resume", "--ops", "Fault", "--limit", "5")

    assert finished.code == 0
    assert database.measured() == [1, 2]


def test_rows_of_equal_key_are_filled_from_what_an_earlier_part_measured(fault_database, run):
    twin = {"Input Shapes": '"1,512"', "Output Shapes": '"1,512"'}
    database = fault_database("ok", "ok", twin)
    original = database.table.read_bytes()
    run(database, "--rows", "1-2")
    cut_journal(database, 1)
    database.table.write_bytes(original)

    run(database, "--resume")

    assert database.measured() == [1, 2, 3]
    assert len(database.journal("measured")) == 2


def test_a_result_the_parent_was_killed_before_journalling_is_not_measured_again(
    fault_database, run, monkeypatch, tmp_path
):
    monkeypatch.setenv("PERFCOLLECT_FAULT_TRACE", str(tmp_path / "begun"))
    database = fault_database("ok", "ok", "ok")
    original = database.table.read_bytes()
    monkeypatch.setattr("perfcollect_core.runner.launch.clear_spool", lambda run_dir: None)
    run(database)
    monkeypatch.undo()
    monkeypatch.setenv("PERFCOLLECT_FAULT_TRACE", str(tmp_path / "begun"))
    cut_journal(database, 1)
    database.table.write_bytes(original)

    finished = run(database, "--resume")

    assert finished.code == 0
    assert database.measured() == [1, 2, 3]
    assert len(database.journal("measured")) == 3
    assert (tmp_path / "begun").read_text().splitlines() == ["1,512", "2,512", "3,512"]
    assert not (database.run_dirs()[0] / "spool").exists()
