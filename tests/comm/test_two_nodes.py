"""Two network namespaces with addresses of their own act as two nodes."""

from __future__ import annotations

import csv
import os
import re
import shutil
import subprocess
import sys
import time
import uuid
from pathlib import Path

import pytest

pytestmark = pytest.mark.torch

PROGRAM = str(Path(sys.executable).with_name("perfcollect"))


def ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True, timeout=30)


@pytest.fixture
def namespaces():
    """Yield the names of two namespaces joined by one cable, 10.99.0.1 and 10.99.0.2."""
    if shutil.which("ip") is None or os.geteuid() != 0:
        pytest.skip("network namespaces need root and iproute2")
    tag = uuid.uuid4().hex[:6]
    names = [f"pc{tag}a", f"pc{tag}b"]
    try:
        for name in names:
            ip("netns", "add", name)
    except subprocess.CalledProcessError as error:
        subprocess.run(["ip", "netns", "del", names[0]], capture_output=True, check=False)
        pytest.skip(f"network namespaces are not allowed here: {error.stderr.decode().strip()}")
    ip(
        "link",
        "add",
        f"v{tag}a",
        "netns",
        names[0],
        "type",
        "veth",
        "peer",
        "name",
        f"v{tag}b",
        "netns",
        names[1],
    )
    for index, (name, end) in enumerate(zip(names, "ab", strict=True), start=1):
        ip("-n", name, "addr", "add", f"10.99.0.{index}/24", "dev", f"v{tag}{end}")
        ip("-n", name, "link", "set", f"v{tag}{end}", "up")
        ip("-n", name, "link", "set", "lo", "up")
    yield names
    for name in names:
        subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)


def start(namespace: str, node_rank: int, directory: Path, *more: str) -> subprocess.Popen[str]:
    command = [
        PROGRAM,
        "comm",
        "run",
        "--backend",
        "gloo",
        "--nnodes",
        "2",
        "--nproc",
        "2",
        "--grid-shape",
        "2",
        "2",
    ]
    command += [
        "--node-rank",
        str(node_rank),
        "--master-addr",
        "10.99.0.1",
        "--master-port",
        "29700",
        "--budget",
        "0.01",
    ]
    command += [
        "--num-devices",
        "4",
        "2",
        "--bytes-grid",
        "1024",
        "65536",
        "--run-dir",
        f"R{node_rank}",
        *more,
    ]
    return subprocess.Popen(
        ["ip", "netns", "exec", namespace, *command],
        cwd=directory,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def test_two_nodes_measure_one_sweep_and_node_0_writes(namespaces, tmp_path):
    out = ("--database-path", "OUT", "--ops", "all_reduce", "all_to_all")
    nodes = [start(name, rank, tmp_path, *out) for rank, name in enumerate(namespaces)]

    said = [node.communicate(timeout=120)[0] for node in nodes]

    assert [node.returncode for node in nodes] == [0, 0], said
    rows = list(csv.DictReader((tmp_path / "OUT" / "hcom_allReduce_.csv").read_text().splitlines()))
    keys = {(row["num_devices"], row["topology_tier"]) for row in rows}
    assert keys == {("2", "1"), ("2", "0"), ("4", "0")}
    assert "the results are on node 0" in said[1]
    assert not (tmp_path / "R1" / "journal.jsonl").exists()


def test_a_node_that_dies_is_named_by_the_other(namespaces, tmp_path):
    slow = ("--ops", "all_reduce", "--budget", "60", "--op-timeout", "5")
    nodes = [start(name, rank, tmp_path, *slow) for rank, name in enumerate(namespaces)]
    log = tmp_path / "R0" / "journal.jsonl"
    while not log.exists() and nodes[0].poll() is None:
        time.sleep(0.05)
    nodes[1].kill()
    nodes[1].communicate()

    said = nodes[0].communicate(timeout=60)[0]

    assert nodes[0].returncode in (1, 3), said
    named = next(line for line in said.splitlines() if line.startswith("failed"))
    assert re.search(r"rank [23] \(pid \d+ on .*\) (ended|raised) during all_reduce", named), said


def test_nodes_with_different_plans_are_refused(namespaces, tmp_path):
    nodes = [
        start(
            name, rank, tmp_path, "--ops", "all_reduce" if rank == 0 else "all_gather", "--join-timeout", "30"
        )
        for rank, name in enumerate(namespaces)
    ]

    said = [node.communicate(timeout=60)[0] for node in nodes]

    assert nodes[0].returncode == 2, said
    assert "ranks 2, 3 made another plan than the coordinator" in said[0]
    assert nodes[1].returncode != 0


def test_loopback_is_no_address_for_two_nodes(tmp_path):
    command = [
        PROGRAM,
        "comm",
        "run",
        "--backend",
        "gloo",
        "--nnodes",
        "2",
        "--node-rank",
        "0",
        "--nproc",
        "1",
    ]
    command += ["--num-devices", "2", "--master-addr", "127.0.0.1", "--master-port", "29700"]

    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)

    assert run.returncode == 2
    assert "error: master address 127.0.0.1 with 2 nodes: other hosts cannot reach it" in run.stderr
