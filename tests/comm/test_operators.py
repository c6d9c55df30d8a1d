"""Collectives as operators: rows of hcom_* tables become cases, and a run that names them measures what they hold."""

from __future__ import annotations

import csv
import os
import subprocess
import sys
from pathlib import Path

import pytest

from perfcollect_comm import operators
from perfcollect_core import Case, Skip
from perfcollect_core.testing.replay import host_for, make_row

ROW = {
    "message_bytes": "65536",
    "num_devices": "2",
    "dtype": "DT_BF16",
    "topology_tier": "2",
    "Duration(us)": "",
}


def case_of(operator: str, **cells: str) -> Case | Skip:
    host = host_for(operator, operators)
    return host.make_case(host.spec(), make_row(operator, {**ROW, **cells}))


@pytest.mark.parametrize(
    ("operator", "sent", "received"),
    [
        ("hcom_allReduce_", 32768, 32768),
        ("hcom_allGather_", 32768, 65536),
        ("hcom_reduceScatter_", 65536, 32768),
        ("hcom_alltoallv_", 32768, 32768),
        ("hcom_alltoall_", 32768, 32768),
        ("hcom_broadcast_", 32768, 32768),
    ],
)
def test_a_row_becomes_the_buffers_of_its_collective(operator, sent, received):
    case = case_of(operator)

    assert isinstance(case, Case)
    assert case.ranks == 2
    assert (case.tensors["source"].shape, case.tensors["target"].shape) == ((sent,), (received,))


def test_a_row_across_nodes_is_left_to_comm_run():
    skip = case_of("hcom_allReduce_", topology_tier="0")

    assert skip == Skip("tier 0 is not that of ranks 0 to 1 (tier 2); perfcollect comm run measures it")


@pytest.mark.parametrize(
    ("cells", "reason"),
    [
        ({"message_bytes": "1e6"}, "column 'message_bytes' holds '1e6', expected a number"),
        ({"num_devices": ""}, "column 'num_devices' holds '', expected a number"),
        ({"num_devices": "1"}, "1 ranks and 65536 B, expected at least 2 ranks and 1 B"),
        ({"message_bytes": "7"}, "7 B cannot be moved among 2 ranks in DT_BF16, the next size is 8 B"),
    ],
)
def test_a_row_no_collective_can_have_is_invalid(cells, reason):
    assert case_of("hcom_allReduce_", **cells) == Skip.invalid(reason)


def test_importing_the_operators_imports_no_torch():
    code = "import sys, perfcollect_comm.operators, perfcollect_comm.command; print('torch' in sys.modules)"

    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )

    assert done.stdout.strip() == "False"


@pytest.mark.torch
def test_a_run_that_names_a_collective_measures_the_sizes_its_table_holds(tmp_path):
    pytest.importorskip("torch")
    program = str(Path(sys.executable).with_name("perfcollect"))
    table = tmp_path / "db" / "hcom_allReduce_.csv"
    table.parent.mkdir()
    table.write_text(
        "message_bytes,num_devices,dtype,topology_tier,Duration(us)\n1024,2,DT_BF16,2,\n4096,2,DT_BF16,0,\n"
    )
    command = [program, "run", "--database-path", "db", "--family", "cpu", "--repeat-count", "5", "--check"]

    unnamed = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    named = subprocess.run(
        [*command, "--ops", "hcom_allReduce_"],
        cwd=tmp_path,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )

    assert "nothing to do" in unnamed.stdout
    assert named.returncode == 0, named.stdout + named.stderr
    measured, left = csv.DictReader(table.read_text().splitlines())
    assert float(measured["Duration(us)"]) > 0
    assert measured["Backend"] == "gloo"
    assert left["Duration(us)"] == ""
