"""Ctrl-C once and twice, and the signals of a service manager."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from uuid import uuid4

import pytest

from perfcollect_core.runner.processes import find_tree


@pytest.fixture
def background(fake_distribution):
    """Return a function that starts ``perfcollect run`` in a process of its own and waits for its first result."""

    started = []

    def start(database, *options: str, mark: str) -> subprocess.Popen[str]:
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(entry for entry in sys.path if "distributions" in entry),
            "PERFCOLLECT_TEST_MARK": mark,
        }
        process = subprocess.Popen(
            [
                sys.executable,
                "-c",
                "import sys; from perfcollect_core.cli import main; sys.exit(main())",
                *("run", "--database-path", str(database.path), "--family", "sleeping", *options),
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
        )
        started.append(process)
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and not database.journal("measured"):
            time.sleep(0.02)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


@pytest.mark.parametrize(
    ("signals", "sleep_ms", "finished"),
    [
        ((signal.SIGINT,), "1500", 2),
        ((signal.SIGINT, signal.SIGINT), "30000", 1),
        ((signal.SIGTERM,), "30000", 1),
    ],
)
def test_an_interrupted_run_writes_what_it_measured_and_can_go_on(
    fault_database, run, background, signals, sleep_ms, finished
):
    mark = uuid4().hex
    database = fault_database({"Sleep Ms": "1"}, *[{"Sleep Ms": sleep_ms}] * 3)
    process = background(database, mark=mark)
    time.sleep(0.3)

    for number in signals:
        process.send_signal(number)
        time.sleep(0.2)
    out, err = process.communicate(timeout=60)

    assert process.returncode == 130, err
    assert len(database.measured()) == finished
    assert find_tree(mark) == set()
    assert "(exit 130)" in out
    assert "--resume" in out
    if signals[0] == signal.SIGINT:
        assert "interrupted: the cases in flight are finished; Ctrl-C once more ends them" in err


def test_a_run_that_was_interrupted_finishes_when_it_is_resumed(fault_database, run, background):
    database = fault_database({"Sleep Ms": "1"}, *[{"Sleep Ms": "300"}] * 3)
    process = background(database, mark=uuid4().hex)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)

    finished = run(database, "--resume", family="sleeping")

    assert finished.code == 0
    assert database.measured() == [1, 2, 3, 4]
    assert len(database.journal("measured")) == 4


def test_workers_end_when_the_parent_is_killed(fault_database, background):
    mark = uuid4().hex
    database = fault_database({"Sleep Ms": "1"}, {"Fault": "stubborn", "Sleep Ms": "2"})
    process = background(database, mark=mark)
    time.sleep(0.3)
    process.kill()
    process.communicate()

    deadline = time.monotonic() + 5
    while time.monotonic() < deadline and len(find_tree(mark)) > 1:
        time.sleep(0.05)

    # The stubborn case's detached child has no parent to die with: it is the one process nobody is left to end.
    left = find_tree(mark)
    assert len(left) <= 1
    for pid in left:
        os.kill(pid, signal.SIGKILL)
