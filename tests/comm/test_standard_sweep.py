"""The sessions of the standard sweep and the variables that steer it."""

from __future__ import annotations

import pytest

from perfcollect_comm.standard_sweep import QUICK_BYTES, sessions, sweep_environment
from perfcollect_core.errors import UsageError


def test_one_node_measures_groups_of_16_8_4_and_2_in_three_rounds():
    planned = sessions(sweep_environment({}))

    assert [session.ops for session in planned] == [
        ("all_reduce",),
        ("all_gather", "reduce_scatter"),
        ("all_to_all",),
    ]
    assert {session.num_devices for session in planned} == {(16, 8, 4, 2)}


@pytest.mark.parametrize(
    ("nodes", "sizes"),
    [
        ("64", (32, 64, 128, 256, 384, 512, 768, 1024)),
        ("3", (32,)),
        ("48", (32, 64, 128, 256, 384, 512, 768)),
    ],
)
def test_several_nodes_measure_powers_of_two_from_32_at_tier_0(nodes, sizes):
    environment = sweep_environment({"NNODES": nodes, "NODE_RANK": "0", "MASTER_ADDR": "10.0.0.1"})

    planned = sessions(environment)

    assert {session.num_devices for session in planned} == {sizes}
    assert {session.tiers for session in planned} == {(0,)}


def test_each_session_gets_its_own_port_and_it_reaches_the_launcher():
    environment = sweep_environment(
        {"NNODES": "2", "NODE_RANK": "1", "MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "30000"}
    )

    ports = [session.options(environment)["master_port"] for session in sessions(environment)]

    assert ports == [30001, 30002, 30003]


def test_quick_measures_five_sizes():
    environment = sweep_environment({"QUICK": "1"})

    assert sessions(environment)[0].options(environment)["bytes_grid"] == QUICK_BYTES


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({"NNODES": "abc"}, "NNODES=abc, expected a number"),
        ({"NNODES": "2"}, "NNODES=2 without NODE_RANK, MASTER_ADDR"),
        ({"NNODES": "2", "NODE_RANK": "0"}, "NNODES=2 without MASTER_ADDR"),
        (
            {"NNODES": "2", "NODE_RANK": "0", "MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "65534"},
            "MASTER_PORT=65534: the sweep uses 65535 to 65537, ports end at 65535",
        ),
    ],
)
def test_a_variable_that_cannot_be_is_named(variables, message):
    with pytest.raises(UsageError) as caught:
        sweep_environment(variables)

    assert str(caught.value) == message


def test_a_small_multi_node_world_is_refused_before_anything_starts():
    environment = sweep_environment(
        {"NNODES": "2", "NODE_RANK": "0", "MASTER_ADDR": "10.0.0.1", "NPROC": "1"}
    )

    with pytest.raises(UsageError, match=r"^a world of 2 ranks, the multi-node sweep starts at 32$"):
        sessions(environment)


@pytest.mark.torch
def test_a_sweep_writes_the_four_tables_and_misses_no_key(comm, tmp_path):
    outcome = comm(
        *(
            "sweep",
            "OUT",
            "--backend",
            "gloo",
            "--grid-shape",
            "2",
            "2",
            "--bytes-grid",
            "1024",
            "--budget",
            "0.005",
        ),
        NPROC="4",
    )

    assert outcome.code == 0, outcome.err
    assert outcome.out.splitlines()[-1] == "3 sessions, 0 keys missing; tables in OUT"
    assert len(list((tmp_path / "OUT").glob("hcom_*.csv"))) == 4


@pytest.mark.torch
def test_a_sweep_with_a_failed_key_is_exit_3_and_names_it(comm):
    outcome = comm(
        *("sweep", "OUT", "--backend", "faulty", "--grid-shape", "2", "--bytes-grid", "1024", "4096"),
        *("--budget", "0.005"),
        fault="1:4096:oom",
        NPROC="2",
    )

    assert outcome.code == 3
    assert "missing: hcom_allReduce_.csv: 4096 B, n=2, tier 0, DT_BF16" in outcome.err


def test_a_sweep_of_hccl_without_npus_is_one_line(comm):
    outcome = comm("sweep", NPROC="2")

    assert outcome.code == 1
    assert [
        line for line in outcome.err.splitlines() if line.startswith("error: backend hccl cannot run here")
    ]
