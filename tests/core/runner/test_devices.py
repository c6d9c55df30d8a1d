"""Several devices and several ranks: one queue, quarantine, second opinions, whole trees ended."""

from __future__ import annotations

import time
from uuid import uuid4

import pytest

from perfcollect_core.runner.processes import find_tree


@pytest.fixture
def devices(monkeypatch):
    """Return a function that sets how many simulated devices there are, and which are down."""

    def set_devices(count: int, down: str = "") -> None:
        monkeypatch.setenv("PERFCOLLECT_SIMULATED_DEVICES", str(count))
        monkeypatch.setenv("PERFCOLLECT_SIMULATED_DOWN", down)

    return set_devices


def test_a_device_that_fails_three_starts_is_left_alone_and_the_others_finish(fault_database, run, devices):
    devices(2, down="0")
    database = fault_database(*["ok"] * 4)

    finished = run(database)

    assert finished.code == 0
    assert database.measured() == [1, 2, 3, 4]
    assert {line["device"] for line in database.journal("measured")} == {1}


def test_the_quarantine_is_told_when_there_is_time_to_find_out(fault_database, run, devices):
    devices(2, down="1")
    database = fault_database(*[{"Sleep Ms": "700"}] * 8)

    finished = run(database, family="sleeping")

    assert finished.code == 0
    assert (
        "device 1 was left alone after 3 failed starts: RuntimeError: simulated device 1 does not answer"
        in finished.out
    )


def test_no_device_left_is_an_error_that_says_why(fault_database, run, devices):
    devices(1, down="0")
    database = fault_database("ok", "ok")

    finished = run(database)

    assert finished.code == 1
    assert (
        "device 0 was left alone after 3 failed starts: RuntimeError: simulated device 0 does not answer"
        in finished.out
    )
    assert "0 measured, 0 failed, 0 skipped, 2 left (exit 1)" in finished.out


def test_a_case_is_blamed_only_after_it_failed_on_two_devices(fault_database, run, devices):
    devices(2)
    database = fault_database("ok", "ok", "abort", "ok", "ok")

    finished = run(database)

    assert finished.code == 3
    assert database.measured() == [1, 2, 4, 5]
    (failed,) = database.journal("failed")
    where = {line["device"] for line in database.journal("attempt") if line["served_before"] == 0}
    assert where | {failed["device"]} == {0, 1}


def test_a_device_that_fails_cases_others_measure_is_left_alone(fault_database, run, devices, monkeypatch):
    devices(2)
    monkeypatch.setenv("PERFCOLLECT_SIMULATED_SICK", "1")
    database = fault_database(*[{"Sleep Ms": "150"}] * 30)

    finished = run(database, family="sleeping")

    assert finished.code == 0
    assert database.measured() == list(range(1, 31))
    assert "device 1 was left alone after 3 cases failed on it that other devices measured" in finished.out
    assert sum(line["device"] == 1 for line in database.journal("attempt")) <= 5


def test_only_the_devices_asked_for_are_used(fault_database, run, devices):
    devices(3)
    database = fault_database(*["ok"] * 6)

    run(database, "--devices", "2,0")

    assert {line["device"] for line in database.journal("measured")} <= {0, 2}


def test_every_rank_runs_a_case_and_the_slowest_one_counts(fault_database, run):
    database = fault_database({"Ranks": "2", "Sleep Ms": "2"})

    finished = run(database, family="sleeping")

    assert finished.code == 0
    (line,) = database.journal("measured")
    medians = [entry["median"] for entry in line["ranks"].values()]
    assert sorted(line["ranks"]) == ["0", "1"]
    assert line["statistics"]["median"] == max(medians)


@pytest.mark.parametrize(
    ("fault", "failure", "words"),
    [
        ("stubborn", "timeout", "not done within 1 s, rank 1 did not answer"),
        ("memory", "out_of_memory", "rank 1: MemoryError: fault on request"),
        ("abort", "worker_crashed", "rank 1 was lost first, the worker exited with status 1"),
    ],
)
def test_a_rank_that_fails_is_named_and_all_of_them_end(
    fault_database, run, monkeypatch, fault, failure, words
):
    monkeypatch.setenv("PERFCOLLECT_TEST_MARK", mark := uuid4().hex)
    database = fault_database({"Ranks": "2", "Fault": fault, "Fault Rank": "1"})
    started = time.monotonic()

    finished = run(database, "--case-timeout", "1")

    assert finished.code == 1
    assert [(line["failure"], line["reason"]) for line in database.journal("failed")] == [(failure, words)]
    assert time.monotonic() - started < 12
    assert find_tree(mark) == set()


def test_more_ranks_than_can_run_are_a_skip(fault_database, run):
    database = fault_database({"Ranks": "65"}, "ok")

    finished = run(database)

    assert finished.code == 0
    assert "needs 65 ranks, 64 can run here" in finished.out
    assert database.measured() == [2]
