"""A case of several ranks on emulated NPUs: msprof around torchrun around the workers, the slowest rank counts."""

from __future__ import annotations

import csv
import json
import os
from pathlib import Path

import bindings
import pytest

from perfcollect_core.tables.identity import Identity, write_identity
from perfcollect_core.testing.distributions import write_distribution

pytestmark = pytest.mark.ascend_emulator

CELLS = {
    "OP State": "dynamic",
    "Accelerator Core": "",
    "Input Shapes": '"64,512;64,512"',
    "Input Data Types": "DT_BF16;DT_BF16",
    "Input Formats": "ND;ND",
    "Output Shapes": '"64,512"',
    "Output Data Types": "DT_BF16",
    "Output Formats": "ND",
    "Average Duration(us)": "",
}


def test_the_slowest_rank_is_stored(ascend_env, tmp_path):
    site, database = tmp_path / "site", tmp_path / "database"
    site.mkdir()
    database.mkdir()
    write_distribution(site, "ranked", "1.0", {"operators": {"RankedAdd": "ranked_operator"}})
    with (database / "RankedAdd.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, CELLS)
        writer.writeheader()
        writer.writerow(CELLS)
    write_identity(database, Identity("ascend", bindings.DEVICE, emulated=True))
    env = {
        **ascend_env,
        "PYTHONPATH": os.pathsep.join([str(site), str(Path(__file__).parent)]),
        "CANN_EMU_DEVICES": "2",
        "CANN_EMU_DURATIONS": "0!aclnnAdd=20 1!aclnnAdd=30",
        "CANN_EMU_HCCL_DIR": str(tmp_path / "hccl"),
    }

    done = bindings.run_command(
        *("run", "--family", "ascend", "--database-path", str(database), "--repeat-count", "4"), env=env
    )

    assert done.returncode == 0, done.stdout + done.stderr
    with (database / "RankedAdd.csv").open(encoding="utf-8-sig", newline="") as file:
        (row,) = csv.DictReader(file)
    assert row["Average Duration(us)"] == "30.000000"
    assert row["Observed Kernel"] == "Add"
    (journal,) = database.glob("reports/runs/*/journal.jsonl")
    lines = [json.loads(line) for line in journal.read_text(encoding="utf-8").splitlines()]
    measured = next(line for line in lines if line["kind"] == "measured")
    assert {rank: entry["median"] for rank, entry in measured["ranks"].items()} == {"0": 20.0, "1": 30.0}
