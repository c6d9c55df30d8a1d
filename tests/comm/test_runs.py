"""Whole sweeps over gloo: what is written, what is resumed, and who is named when a rank misbehaves."""

from __future__ import annotations

import csv
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.torch

TWO_RANKS = ("--nproc", "2", "--num-devices", "2", "--grid-shape", "2", "--budget", "0.01")
FOUR_SIZES = ("--bytes-grid", "1024", "4096", "16384", "65536")


def read(path: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(path.read_text().splitlines()))


def measured(run_dir: Path) -> list[int]:
    lines = [json.loads(line) for line in (run_dir / "journal.jsonl").read_text().splitlines()]
    return [line["message_bytes"] for line in lines if line.get("state") == "measured"]


def test_four_collectives_give_four_tables_with_one_row_a_key(comm, tmp_path):
    outcome = comm(
        *("run", "--backend", "gloo", "--nproc", "4", "--num-devices", "4", "2", "--grid-shape", "2", "2"),
        *("--bytes-grid", "1024", "65536", "--budget", "0.01", "--check", "all", "--database-path", "OUT"),
    )

    assert outcome.code == 0, outcome.err
    names = {path.name for path in (tmp_path / "OUT").iterdir()}
    expected = {
        "hcom_allReduce_.csv",
        "hcom_allGather_.csv",
        "hcom_reduceScatter_.csv",
        "hcom_alltoallv_.csv",
    }
    assert names == expected
    for name in expected:
        rows = read(tmp_path / "OUT" / name)
        keys = [(r["message_bytes"], r["num_devices"], r["topology_tier"]) for r in rows]
        assert keys == [
            *(("1024", "2", "0"), ("65536", "2", "0"), ("1024", "2", "1"), ("65536", "2", "1")),
            *(("1024", "4", "0"), ("65536", "4", "0")),
        ]
        assert {r["Backend"] for r in rows} == {"gloo"}
        assert all(float(r["Duration(us)"]) > 0 for r in rows)
    assert "24 measured, 0 failed" in outcome.out.splitlines()[-1]


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32", "int8"])
def test_every_dtype_is_exact_on_every_collective(comm, dtype):
    outcome = comm(
        *(
            "run",
            "--backend",
            "gloo",
            "--nproc",
            "3",
            "--num-devices",
            "3",
            "--grid-shape",
            "3",
            "--dtype",
            dtype,
        ),
        *(
            "--ops",
            "all_reduce",
            "all_gather",
            "reduce_scatter",
            "all_to_all",
            "all_to_all_single",
            "broadcast",
        ),
        *("--bytes-grid", "3", "6000", "--budget", "0.005", "--check", "all"),
    )

    assert outcome.code == 0, outcome.out


@pytest.mark.parametrize(
    ("fault", "culprit", "code"),
    [
        ("1:16384:raise", "rank 1", 3),
        ("1:16384:exit", "rank 1", 3),
        ("1:16384:kill", "rank 1", 3),
        ("0:16384:kill", "rank 0", 3),
        ("0:16384:double_size", "rank 0", 3),
        ("1:16384:sleep", "rank 1", 6),
        ("0:16384:sleep", "rank 0", 6),
        ("1:16384:stop", "rank 1", 6),
    ],
)
def test_the_rank_that_misbehaves_is_named_and_the_rest_is_saved(comm, tmp_path, fault, culprit, code):
    run = ("run", "--backend", "faulty", *TWO_RANKS, "--ops", "all_reduce", *FOUR_SIZES, "--op-timeout", "4")
    begin = time.monotonic()

    outcome = comm(*run, "--run-dir", "R", fault=fault)

    assert outcome.code == code, outcome.out + outcome.err
    assert time.monotonic() - begin < 30
    named = next(line for line in outcome.out.splitlines() if line.startswith("failed"))
    blamed = named.partition("waiting:")[0]
    assert culprit in blamed
    assert ({"rank 0", "rank 1"} - {culprit}).pop() not in blamed
    assert "all_reduce of 16384 B" in named
    assert socket.gethostname() in named
    assert measured(tmp_path / "R") == [1024, 4096]

    again = comm(*run, "--run-dir", "R", "--resume", fault="9:0:none")

    assert again.code == 0, again.out + again.err
    assert measured(tmp_path / "R") == [1024, 4096, 16384, 65536]


def test_a_configuration_one_rank_cannot_allocate_is_skipped_by_all_and_is_a_failure(comm, tmp_path):
    outcome = comm(
        *("run", "--backend", "faulty", *TWO_RANKS, "--ops", "all_reduce", *FOUR_SIZES, "--run-dir", "R"),
        fault="1:16384:oom",
    )

    assert outcome.code == 3
    assert measured(tmp_path / "R") == [1024, 4096, 65536]
    assert "rank 1: out of memory: no room; skipped by all ranks" in outcome.out


def test_a_wrong_result_is_exit_5_and_no_row(comm, tmp_path):
    outcome = comm(
        *("run", "--backend", "faulty", *TWO_RANKS, "--ops", "all_reduce", "--bytes-grid", "1024", "4096"),
        *("--database-path", "OUT"),
        fault="1:1024:wrong",
    )

    assert outcome.code == 5
    rows = read(tmp_path / "OUT" / "hcom_allReduce_.csv")
    assert [row["message_bytes"] for row in rows] == ["4096"]


def test_hccl_without_an_npu_is_one_line_and_nothing_is_written(comm, tmp_path):
    outcome = comm("run", "--backend", "hccl", *TWO_RANKS, "--database-path", "OUT")

    assert outcome.code == 1
    assert outcome.err.startswith("error: backend hccl cannot run here: ")
    assert outcome.out == ""
    assert not (tmp_path / "OUT").exists()


def test_no_table_under_the_name_of_hccl_is_written_unless_a_backend_was_asked_for(comm, tmp_path):
    outcome = comm("run", *TWO_RANKS, "--bytes-grid", "1024", "--database-path", "OUT")

    assert outcome.code == 2
    assert outcome.err.splitlines()[0] == (
        "error: hcom_* tables would hold durations of gloo, which no --backend asked for"
    )
    assert not (tmp_path / "OUT").exists()


def test_an_ascend_database_takes_no_gloo_table(comm, tmp_path):
    out = tmp_path / "ATLAS_800_A3_752T_128G_DIE" / "hccl" / "v8.5"

    outcome = comm(
        "run", "--backend", "gloo", *TWO_RANKS, "--bytes-grid", "1024", "--database-path", str(out)
    )

    assert outcome.code == 1
    assert "is an Ascend database, this run measures gloo" in outcome.err
    assert list(out.iterdir()) == []


def test_a_run_without_a_destination_says_so_first_and_last(comm):
    outcome = comm("run", "--backend", "gloo", *TWO_RANKS, "--ops", "all_reduce", "--bytes-grid", "1024")

    assert "no tables are written" in outcome.err.splitlines()[0]
    assert outcome.out.splitlines()[-1].endswith("no tables are written")


def test_a_busy_port_is_named_with_its_holder_before_anything_starts(comm):
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen(1)
        port = holder.getsockname()[1]
        begin = time.monotonic()

        outcome = comm(
            "run", "--backend", "gloo", *TWO_RANKS, "--bytes-grid", "1024", "--master-port", str(port)
        )

    assert outcome.code == 2
    assert time.monotonic() - begin < 10
    assert f"127.0.0.1:{port}" in outcome.err
    assert f"held by pid {os.getpid()}" in outcome.err


def test_a_stale_rank_variable_is_reported_and_not_obeyed(comm):
    outcome = comm(
        *("run", "--backend", "gloo", *TWO_RANKS, "--ops", "all_reduce", "--bytes-grid", "1024"),
        MASTER_PORT="1",
        RANK="7",
    )

    assert outcome.code == 0, outcome.err
    assert "not obeyed outside torchrun: RANK=7, MASTER_PORT=1" in outcome.err


def test_two_runs_at_once_both_succeed(tmp_path):
    command = [
        str(Path(sys.executable).with_name("perfcollect")),
        "comm",
        "run",
        "--backend",
        "gloo",
        *TWO_RANKS,
    ]
    command += ["--ops", "all_reduce", "--bytes-grid", "1024"]

    runs = [subprocess.Popen([*command, "--run-dir", str(tmp_path / name)]) for name in "ab"]

    assert [run.wait(60) for run in runs] == [0, 0]


def test_a_killed_run_leaves_no_rank_behind_and_resumes_with_the_rest(tmp_path):
    command = [
        str(Path(sys.executable).with_name("perfcollect")),
        "comm",
        "run",
        "--backend",
        "gloo",
        *TWO_RANKS,
    ]
    command += ["--budget", "0.2", "--bytes-grid", *map(str, (1 << k for k in range(10, 16)))]
    command += ["--run-dir", str(tmp_path / "R"), "--database-path", str(tmp_path / "OUT")]
    run = subprocess.Popen(command)
    journal = tmp_path / "R" / "journal.jsonl"
    deadline = time.monotonic() + 60
    while not (journal.exists() and len(measured(tmp_path / "R")) >= 5) and time.monotonic() < deadline:
        time.sleep(0.05)
    run.send_signal(signal.SIGKILL)
    run.wait()
    before = measured(tmp_path / "R")

    again = subprocess.run([*command, "--resume"], capture_output=True, text=True, timeout=120, check=False)

    assert again.returncode == 0, again.stderr
    assert f"{len(before)} done before" in again.stdout
    assert len(measured(tmp_path / "R")) == 24
    tables = {path.name: read(path) for path in (tmp_path / "OUT").iterdir()}
    assert {name: len(rows) for name, rows in tables.items()} == dict.fromkeys(tables, 6)
    assert len(tables) == 4


def test_another_plan_does_not_resume_a_run(comm):
    run = ("run", "--backend", "gloo", *TWO_RANKS, "--ops", "all_reduce", "--run-dir", "R")
    comm(*run, "--bytes-grid", "1024")

    outcome = comm(*run, "--bytes-grid", "2048", "--resume")

    assert outcome.code == 2
    assert "holds a run of backend gloo with plan" in outcome.err


def test_torchrun_starts_the_ranks_and_rank_0_writes(tmp_path):
    program = Path(sys.executable).with_name("perfcollect")
    command = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--nproc-per-node",
        "2",
        "--no-python",
        str(program),
    ]
    command += [
        "comm",
        "run",
        "--backend",
        "gloo",
        "--num-devices",
        "2",
        "--grid-shape",
        "2",
        "--budget",
        "0.01",
    ]
    command += ["--ops", "all_reduce", "--bytes-grid", "1024", "--run-dir", "R", "--database-path", "OUT"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}

    run = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120, check=False
    )

    assert run.returncode == 0, run.stderr
    assert len(read(tmp_path / "OUT" / "hcom_allReduce_.csv")) == 1


def test_a_rank_that_does_not_come_is_named_by_node_and_place(comm):
    with socket.socket() as probe:
        probe.bind(("127.0.0.2", 0))
        port = probe.getsockname()[1]

    outcome = comm(
        *(
            "run",
            "--backend",
            "gloo",
            "--nnodes",
            "2",
            "--node-rank",
            "0",
            "--nproc",
            "1",
            "--num-devices",
            "2",
        ),
        *(
            "--master-addr",
            "127.0.0.2",
            "--master-port",
            str(port),
            "--join-timeout",
            "8",
            "--bytes-grid",
            "1024",
        ),
    )

    assert outcome.code == 1
    assert re.search(
        r"error: [12] of 2 ranks did not join within 8 s: (node 0 local 0, )?node 1 local 0\n", outcome.err
    )


@pytest.mark.parametrize("port", ["65536", "70000"])
def test_a_port_above_the_last_one_is_refused(comm, port):
    outcome = comm("run", "--backend", "gloo", *TWO_RANKS, "--bytes-grid", "1024", "--master-port", port)

    assert outcome.code == 2
    assert f"port {port}, expected 1 to 65535" in outcome.err
