"""Each fault a collector meets: the culprit is named, nobody else is blamed, every healthy case completes."""

from __future__ import annotations

import time
from uuid import uuid4

import pytest

from perfcollect_core.runner.processes import find_tree


@pytest.mark.parametrize(
    ("fault", "failure", "reason"),
    [
        ("raise", "invalid_case", "ValueError: fault on request"),
        ("memory", "out_of_memory", "MemoryError: fault on request"),
        ("segfault", "worker_crashed", "the worker was killed by SIGSEGV"),
        ("abort", "worker_crashed", "the worker was killed by SIGABRT"),
        ("exit", "worker_crashed", "the worker exited with status 0"),
        ("hang", "timeout", "not done within 0.3 s"),
        ("poison", "device_lost", "DeviceLost: fake error 507015: core exception"),
        ("lost", "not_observed", "no sample, expected at least one duration, in 3 tries"),
        ("nan", "not_observed", "sample nan us, expected a finite positive duration, in 3 tries"),
    ],
)
def test_a_fault_fails_its_own_row_only(fault_database, run, fault, failure, reason):
    database = fault_database("ok", fault, "ok")

    finished = run(database, "--case-timeout", "0.3")

    assert finished.code == 3
    assert database.measured() == [1, 3]
    assert [(line["failure"], line["reason"]) for line in database.journal("failed")] == [(failure, reason)]


def test_a_case_that_fails_in_a_shared_process_is_tried_in_one_of_its_own(fault_database, run):
    database = fault_database("ok", "poison", "ok")

    run(database)

    (attempt,) = database.journal("attempt")
    (failed,) = database.journal("failed")
    assert attempt["served_before"] > 1
    assert failed["attempts"] == 2


def test_a_process_that_a_case_spoilt_in_silence_blames_nobody_and_names_the_suspect(fault_database, run):
    database = fault_database("ok", "spoil", "ok", "ok")

    finished = run(database)

    assert finished.code == 0
    assert database.measured() == [1, 2, 3, 4]
    (suspect,) = database.journal("suspect")
    assert suspect["row"][1][1] == "2,512"
    assert suspect["failed_after_it"][1][1] == "3,512"


def test_a_crashing_kernel_poisons_no_later_row(fault_database, run):
    faults = ["ok", "ok", "sticky", "ok", "abort", "ok", "hang", "ok"]
    database = fault_database(
        *({"Fault": fault, "Profiling Average Duration(us)": "7.5"} for fault in faults), family="noop"
    )

    first = run(database, "--ops", "Fault", "--case-timeout", "0.5")
    workers = len(database.journal("worker"))
    retried = run(database, "--resume", "--retry-failed")

    assert (first.code, retried.code) == (3, 3)
    assert database.measured() == [1, 2, 4, 6, 8]
    assert [row["Profiling Average Duration(us)"] for row in database.rows()] == ["7.5"] * 8
    assert workers >= 4
    failures = [(line["row"][1][1], line["failure"]) for line in database.journal("failed")]
    assert failures == [("3,512", "device_lost"), ("5,512", "worker_crashed"), ("7,512", "timeout")] * 2
    assert len(database.journal("measured")) == 5


def test_a_slow_start_is_no_failure(fault_database, run):
    database = fault_database("slow", "ok")

    assert run(database, "--case-timeout", "5").code == 0


def test_a_wrong_result_is_not_written_and_exits_5(fault_database, run):
    database = fault_database("ok", "wrong")

    finished = run(database, "--check")

    assert finished.code == 5
    assert database.measured() == [1]
    (failed,) = database.journal("failed")
    assert failed["failure"] == "wrong_result"


def test_cases_over_the_check_limit_are_measured_and_counted_as_unchecked(fault_database, run):
    # Sleeping 1 ms stands for 1e7 operations.
    database = fault_database({"Sleep Ms": "1"}, {"Sleep Ms": "3", "Fault": "wrong"})

    finished = run(database, "--check", "--check-max-flop", "2e7")

    assert finished.code == 0
    assert database.measured() == [1, 2]
    assert "1 outputs compared with their reference, 0 wrong, 1 not compared" in finished.out


def test_more_than_half_failed_is_exit_1_and_the_last_line_says_so(fault_database, run):
    database = fault_database("ok", "raise", "raise")

    finished = run(database)

    assert finished.code == 1
    assert finished.out.splitlines()[-1] == (
        "more than half of the cases failed: 1 measured, 2 failed, 0 skipped (exit 1)"
    )
    assert database.measured() == [1]


def test_fail_fast_stops_at_the_first_failure(fault_database, run):
    database = fault_database("ok", "raise", *["ok"] * 8)

    finished = run(database, "--fail-fast")

    assert finished.code == 3
    assert len(database.measured()) < 9
    assert len(database.journal("failed")) == 1


def test_a_hang_that_ignores_sigterm_and_has_a_detached_child_ends_in_time(fault_database, run, monkeypatch):
    monkeypatch.setenv("PERFCOLLECT_TEST_MARK", mark := uuid4().hex)
    database = fault_database("stubborn")
    started = time.monotonic()

    run(database, "--case-timeout", "0.5")

    # One worker start, the deadline, one second of grace.
    assert time.monotonic() - started < 0.5 + 2.0 + 3.0
    assert find_tree(mark) == set()


def test_a_gigabyte_of_stderr_leaves_a_small_log(fault_database, run):
    database = fault_database("ok", "noisy")

    finished = run(database)

    assert finished.code == 0
    (run_dir,) = database.run_dirs()
    logs = list((run_dir / "logs").iterdir())
    assert sum(log.stat().st_size for log in logs) < 1 << 20
    assert b"bytes left out" in logs[0].read_bytes()


def test_many_cases_without_a_record_among_healthy_ones_are_each_named(fault_database, run):
    database = fault_database(*["ok", "lost", "ok", "nan"] * 8)

    finished = run(database)

    assert finished.code == 3
    assert database.measured() == list(range(1, 33, 2))
    assert [line["failure"] for line in database.journal("failed")] == ["not_observed"] * 16
