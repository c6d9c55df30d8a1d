"""Ending whole trees, bounding workers, and a clock that jumps."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from itertools import cycle
from pathlib import Path
from uuid import uuid4

import pytest

from perfcollect_core.errors import WorkerError
from perfcollect_core.runner.processes import become_subreaper, end_orphans, end_tree, find_tree

_DEAF = """
import signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
depth = int(sys.argv[1])
if depth:
    subprocess.Popen([sys.executable, *sys.orig_argv[1:-1], str(depth - 1)], start_new_session=True)
print("ready", flush=True)
time.sleep(3600)
"""


def start_deaf_tree(mark: str, depth: int) -> subprocess.Popen[bytes]:
    process = subprocess.Popen(
        [sys.executable, "-c", _DEAF, str(depth)],
        env={**os.environ, "PERFCOLLECT_TEST_MARK": mark},
        stdout=subprocess.PIPE,
    )
    deadline = time.monotonic() + 30
    while len(find_tree(mark)) < depth + 1 and time.monotonic() < deadline:
        time.sleep(0.02)
    for _ in range(depth + 1):
        assert process.stdout is not None
        process.stdout.readline()
    return process


def test_a_tree_that_ignores_sigterm_ends_after_a_second_sessions_of_their_own_included():
    mark = uuid4().hex
    become_subreaper()
    process = start_deaf_tree(mark, depth=2)
    started = time.monotonic()

    left = end_tree(mark, process.pid)

    assert left == set()
    assert 1.0 <= time.monotonic() - started < 3.0
    assert find_tree(mark) == set()
    assert process.wait(5) == -9
    process.stdout.close()


def test_orphans_are_found_by_their_mark_when_the_first_process_is_gone():
    mark = uuid4().hex
    become_subreaper()
    process = start_deaf_tree(mark, depth=1)
    process.kill()
    process.wait()
    assert len(find_tree(mark)) == 1

    assert end_tree(mark, process.pid, grace_seconds=0) == set()
    process.stdout.close()


def test_what_a_killed_run_left_behind_is_ended_by_the_next():
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    variable = f"OWNER_{uuid4().hex}"
    orphan = subprocess.Popen(
        [sys.executable, "-c", "import time; time.sleep(600)"], env={**os.environ, variable: str(gone.pid)}
    )
    owned = subprocess.Popen(
        [sys.executable, "-c", "import time; time.sleep(600)"], env={**os.environ, variable: str(os.getpid())}
    )

    assert end_orphans(variable) == 1

    assert orphan.wait(5) == -9
    assert owned.poll() is None
    owned.kill()
    owned.wait()


def in_child(statements: str) -> str:
    script = f"from perfcollect_core.runner.processes import *\n{statements}"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_an_allocation_past_the_bound_fails_in_the_worker():
    printed = in_child(
        "limit_memory(256 << 20)\n"
        "try:\n    bytearray(1 << 30)\nexcept MemoryError:\n    print('bounded')\n"
        "print(len(bytearray(1 << 20)))"
    )

    assert printed.split() == ["bounded", str(1 << 20)]


def test_a_worker_is_taken_first_when_memory_runs_out_and_leaves_no_core():
    printed = in_child(
        "import resource\nraise_oom_score()\nforbid_core_dumps()\n"
        "print(open('/proc/self/oom_score_adj').read().strip(), resource.getrlimit(resource.RLIMIT_CORE)[0])"
    )

    assert printed == "700 0"


@pytest.mark.parametrize("jumps", [(1e9, 2e9, 5e8), (0.0,)])
def test_a_wall_clock_that_jumps_ends_nothing_early(fault_database, run, monkeypatch, jumps):
    database = fault_database("ok", "ok", "ok")
    values = cycle(jumps)
    monkeypatch.setattr(time, "time", lambda: next(values))

    finished = run(database, "--case-timeout", "20", "--max-seconds", "60")

    assert finished.code == 0
    assert database.measured() == [1, 2, 3]


def test_logs_are_bounded_however_much_is_printed(tmp_path: Path):
    from perfcollect_core.executors.worker_log import HEAD_BYTES, TAIL_BYTES, WorkerLog

    script = "import os\nfor i in range(400): os.write(1, b'x' * 65535 + b'\\n')\nos.write(1, b'the end')"
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        log = WorkerLog(tmp_path / "log", process.stdout)
        while log.drain():
            time.sleep(0.001)
        log.close()

    content = (tmp_path / "log").read_bytes()
    assert len(content) < HEAD_BYTES + 2 * TAIL_BYTES + 100
    assert content.endswith(b"the end")
    assert b"bytes left out" in content


def test_a_launcher_that_is_not_there_is_named(tmp_path: Path):
    from perfcollect_core.executors.local import LocalExecutor
    from perfcollect_core.runner.execution import WorkerOrder

    executor = LocalExecutor(tmp_path)
    order = WorkerOrder(("/no/such/msprof",), {}, 0, 1, tmp_path, tmp_path / "log")

    with pytest.raises(WorkerError) as caught:
        executor.start(order)
    executor.close()

    assert str(caught.value) == "worker /no/such/msprof cannot be started: no such file or directory"
