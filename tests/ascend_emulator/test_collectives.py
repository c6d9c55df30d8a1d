"""``perfcollect comm run --backend hccl``: the groups, operators and sizes CANN sees are the plan's, in its order."""

from __future__ import annotations

import csv
import itertools
import sys
from pathlib import Path

from perfcollect_comm.plan import CommRequest, make_plan
from perfcollect_comm.topology import Grid

OPS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")
HCCL_NAMES = {
    "all_reduce": "HcclAllReduce",
    "all_gather": "HcclAllGather",
    "reduce_scatter": "HcclReduceScatter",
    "all_to_all": "HcclAlltoAllV",
}


def test_group_creation_operators_and_sizes_are_exactly_the_plans(ascend_emulator, tmp_path):
    ascend_emulator.set(devices=2)
    program = Path(sys.executable).with_name("perfcollect")

    done = ascend_emulator.run(
        *(
            program,
            "comm",
            "run",
            "--backend",
            "hccl",
            "--nproc",
            "2",
            "--num-devices",
            "2",
            "--grid-shape",
            "2",
        ),
        *(
            "--ops",
            *OPS,
            "--bytes-grid",
            "1024",
            "65536",
            "--budget",
            "0.01",
            "--check",
            "off",
            "--run-dir",
            "R",
        ),
        *("--database-path", "OUT"),
        timeout_s=300,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    plan = make_plan(CommRequest(2, ops=OPS, num_devices=(2,), grid=Grid((2,)), bytes_grid=(1024, 65536)))
    by_process: dict[int, list[dict]] = {}
    for record in ascend_emulator.launches("hcclinit", "hccl"):
        by_process.setdefault(record["pid"], []).append(record)
    assert len(by_process) == 2
    for records in by_process.values():
        groups = [record["world_size"] for record in records if record["kind"] == "hcclinit"]
        assert groups == [len(group) for group in plan.groups()]
        calls = [
            (record["name"], record["world_size"], record["bytes"])
            for record in records
            if record["kind"] == "hccl"
        ]
        # What CANN logs is the larger buffer, the size S of hccl_test.
        assert [call for call, _ in itertools.groupby(calls)] == [
            (HCCL_NAMES[config.op], config.n, config.size.nccl_bytes) for config in plan.configs
        ]
    header = (tmp_path / "OUT" / "hcom_allReduce_.csv").read_text().splitlines()[0]
    assert header == "message_bytes,num_devices,dtype,topology_tier,Duration(us),bandwidth_gbps"


def test_more_ranks_than_npus_is_one_line_and_never_gloo(ascend_emulator, tmp_path):
    ascend_emulator.set(devices=1)
    program = Path(sys.executable).with_name("perfcollect")

    done = ascend_emulator.run(
        *(
            program,
            "comm",
            "run",
            "--backend",
            "hccl",
            "--nproc",
            "2",
            "--num-devices",
            "2",
            "--grid-shape",
            "2",
        ),
        *("--bytes-grid", "1024", "--database-path", "OUT"),
    )

    assert done.returncode == 1
    assert (
        done.stderr.splitlines()[0]
        == "error: backend hccl cannot run here: 2 NPUs not found (looked at 1 visible)"
    )
    assert not (tmp_path / "OUT").exists()


def test_kernel_durations_come_out_of_the_profile_as_they_were_fixed(ascend_emulator, tmp_path):
    ascend_emulator.set(devices=2, durations={"HcclAllReduce": 33.0})
    program = Path(sys.executable).with_name("perfcollect")

    done = ascend_emulator.run(
        *(
            program,
            "comm",
            "run",
            "--backend",
            "hccl",
            "--nproc",
            "2",
            "--num-devices",
            "2",
            "--grid-shape",
            "2",
        ),
        *(
            "--ops",
            "all_reduce",
            "--bytes-grid",
            "1024",
            "--budget",
            "0.01",
            "--check",
            "off",
            "--run-dir",
            "R",
        ),
        *("--timer", "kernel", "--database-path", "OUT"),
        timeout_s=300,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    (row,) = csv.DictReader((tmp_path / "OUT" / "hcom_allReduce_.csv").read_text().splitlines())
    assert float(row["Duration(us)"]) == 33.0
    assert not list((tmp_path / "R").glob("profiles/*"))
