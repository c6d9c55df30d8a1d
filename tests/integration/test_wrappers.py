"""An opt-in wrapper of an outside distribution adds its counters to the table, and only when it is asked for."""

from __future__ import annotations

import csv
import os
import subprocess
import sys
from pathlib import Path

import pytest

from perfcollect_core.testing import write_distribution

pytestmark = pytest.mark.torch

PROGRAM = [sys.executable, "-c", "import sys; from perfcollect_core.cli import main; sys.exit(main())"]
OPERATOR = """
from perfcollect_core import Kernel, OperatorSpec, Slot

def perfcollect_operator_spec(operator):
    return OperatorSpec(operator, inputs=(Slot("x"),), outputs=(Slot("y"),), families=("cpu",))

def perfcollect_bind_kernel(case, inputs, device):
    return Kernel(lambda: inputs["x"].clone())
"""
WRAPPER = """
import attrs
from perfcollect_core import hookimpl

@hookimpl(wrapper=True)
def perfcollect_measure(plan):
    samples = yield
    return attrs.evolve(samples, counters={**samples.counters, "Power(W)": (240.0, 260.0), "Clock(MHz)": 1850.0})
"""
TABLE = (
    "OP State,Accelerator Core,Input Shapes,Input Data Types,Input Formats,Output Shapes,Output Data Types,"
    "Output Formats,Average Duration(us)\r\n"
    'dynamic,,"16,128",DT_BF16,ND,"16,128",DT_BF16,ND,0\r\n'
    'dynamic,,"32,128",DT_BF16,ND,"32,128",DT_BF16,ND,0\r\n'
)


@pytest.fixture
def replay(tmp_path: Path):
    """Return a function that replays VendorCopy with the given options and returns the rows."""
    pytest.importorskip("torch")
    made = write_distribution(
        tmp_path / "site",
        "vendor-power",
        "1.0",
        {"operators": {"VendorCopy": "vendor_copy"}, "wrappers": {"power": "vendor_power"}},
        files={"vendor_copy.py": OPERATOR, "vendor_power.py": WRAPPER},
    )
    database = tmp_path / "db"
    database.mkdir()
    (database / "VendorCopy.csv").write_bytes(TABLE.encode())

    def run(*options: str) -> list[dict[str, str]]:
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(made.path), *filter(None, sys.path)])}
        arguments = [
            "run",
            "--ops",
            "VendorCopy",
            "--family",
            "cpu",
            "--database-path",
            str(database),
            "--repeat-count",
            "3",
        ]
        done = subprocess.run(
            [*PROGRAM, *arguments, *options], env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        with (database / "VendorCopy.csv").open(encoding="utf-8", newline="") as file:
            return list(csv.DictReader(file))

    return run


def test_counters_of_a_wrapper_become_columns(replay):
    rows = replay("--with", "power")

    assert [row["Power(W)"] for row in rows] == ["250.000000", "250.000000"]
    assert [row["Clock(MHz)"] for row in rows] == ["1850.000000", "1850.000000"]
    assert all(float(row["Average Duration(us)"]) > 0 for row in rows)


def test_a_wrapper_that_is_not_asked_for_adds_nothing(replay):
    rows = replay()

    assert "Power(W)" not in rows[0]
