"""A broken plugin, one installed twice, two that claim one operator, names that are paths: what each command says."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

from perfcollect_core.testing import write_distribution

PROGRAM = [sys.executable, "-c", "import sys; from perfcollect_core.cli import main; sys.exit(main())"]
TABLE = (
    "OP State,Accelerator Core,Input Shapes,Input Data Types,Input Formats,Output Shapes,Output Data Types,"
    "Output Formats,Average Duration(us)\r\n"
    'dynamic,,"16,128",DT_BF16,ND,"16,128",DT_BF16,ND,0\r\n'
)
SOUND = """
print("noise from a plugin")
from perfcollect_core import Kernel, OperatorSpec, Slot

def perfcollect_operator_spec(operator):
    return OperatorSpec(operator, summary="copies", inputs=(Slot("x"),), outputs=(Slot("y"),), families=("cpu",))

def perfcollect_bind_kernel(case, inputs, device):
    return Kernel(lambda: inputs["x"].clone())
"""


@pytest.fixture
def sites(tmp_path: Path) -> Path:
    """Lay out five site folders as installers and package managers leave them."""
    broken = tmp_path / "site_broken" / "lib"
    write_distribution(
        broken,
        "ops-broken",
        "0.9.0rc2+gitdc51c2d",
        {"operators": {"BrokenOp": "ops_broken.replay"}},
        files={"ops_broken/__init__.py": "", "ops_broken/replay.py": "import module_that_does_not_exist\n"},
    )
    for site, name, version in (("site_a", "ops-a", "1.0.0"), ("site_b", "ops-b", "2.0.0.post1")):
        module = name.replace("-", "_")
        write_distribution(
            tmp_path / site / "lib",
            name,
            version,
            {"operators": {"VendorCopy": module}},
            files={f"{module}.py": SOUND},
        )
    (tmp_path / "site_a" / "lib64").symlink_to("lib")
    write_distribution(
        tmp_path / "site_typo" / "lib",
        "ops-typo",
        "0.1",
        {"operators": {"Vendor Copy": "ops_typo", "../../Escape": "ops_typo"}},
    )
    database = tmp_path / "db"
    database.mkdir()
    for operator in ("VendorCopy", "BrokenOp"):
        (database / f"{operator}.csv").write_bytes(TABLE.encode())
    return tmp_path


def run(sites: Path, path: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    added = [str(sites / part) for part in path.split(":")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([*added, *filter(None, sys.path)])}
    return subprocess.run(
        [*PROGRAM, *arguments], env=environment, cwd=sites, capture_output=True, text=True, check=False
    )


def replay(sites: Path, path: str, operator: str) -> subprocess.CompletedProcess[str]:
    options = ("--family", "cpu", "--database-path", "db", "--repeat-count", "3")
    return run(sites, path, "run", "--ops", operator, *options)


def listed(done: subprocess.CompletedProcess[str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for entry in json.loads(done.stdout):
        found.setdefault(entry["operator"], []).append(f"{entry['distribution']} {entry['version']}")
    return found


def test_a_broken_plugin_is_listed_like_any_other(sites):
    done = run(sites, "site_broken/lib", "ops", "--format", "json")

    assert (done.returncode, done.stderr) == (0, "")
    assert listed(done)["BrokenOp"] == ["ops-broken 0.9.0rc2+gitdc51c2d"]


def test_running_a_broken_plugin_names_it_and_changes_nothing(sites):
    done = replay(sites, "site_broken/lib", "BrokenOp")

    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.splitlines()[0] == (
        "error: operator 'BrokenOp' of ops-broken 0.9.0rc2+gitdc51c2d (entry point ops_broken.replay) failed to load: "
        "No module named 'module_that_does_not_exist'"
    )
    assert (sites / "db" / "BrokenOp.csv").read_bytes() == TABLE.encode()


@pytest.mark.torch
def test_another_operator_runs_beside_a_broken_one(sites):
    pytest.importorskip("torch")

    done = replay(sites, "site_broken/lib:site_a/lib", "VendorCopy")

    assert done.returncode == 0, done.stderr
    assert (sites / "db" / "VendorCopy.csv").read_bytes() != TABLE.encode()


def test_one_distribution_under_two_paths_is_one_plugin(sites):
    done = run(sites, "site_a/lib:site_a/lib64", "ops", "--format", "json")

    assert (done.returncode, done.stderr) == (0, "")
    assert listed(done)["VendorCopy"] == ["ops-a 1.0.0"]


def test_two_claimants_are_refused_with_the_way_to_choose(sites):
    done = replay(sites, "site_a/lib:site_b/lib", "VendorCopy")

    assert done.returncode == 1
    assert done.stderr.splitlines() == [
        "error: operator 'VendorCopy' is provided by ops-a 1.0.0 and ops-b 2.0.0.post1",
        "hint: choose one: --ops ops-a:VendorCopy",
    ]
    assert (sites / "db" / "VendorCopy.csv").read_bytes() == TABLE.encode()


@pytest.mark.torch
def test_the_one_chosen_of_two_claimants_runs(sites):
    pytest.importorskip("torch")

    done = replay(sites, "site_a/lib:site_b/lib", "ops-b:VendorCopy")

    assert done.returncode == 0, done.stderr


def test_a_name_with_a_blank_or_a_slash_is_refused_by_name(sites):
    done = run(sites, "site_typo/lib", "ops")

    assert done.returncode == 0
    assert done.stderr.splitlines() == [
        "warning: entry point 'Vendor Copy' of ops-typo 0.1 is ignored: its name is not safe as a file name",
        "warning: entry point '../../Escape' of ops-typo 0.1 is ignored: its name is not safe as a file name",
    ]
    assert "Escape" not in done.stdout


@pytest.mark.parametrize("name", ["Vendor Copy", "../../Escape"])
def test_a_name_that_is_a_path_cannot_be_run(sites, name):
    done = replay(sites, "site_typo/lib", name)

    assert done.returncode == 1
    assert done.stderr.splitlines()[0] == (
        f"error: operator name {name!r} is not allowed: expected letters, digits, '_', '-' and '.' only"
    )


def test_no_plugin_of_pytest_comes_with_core():
    groups = {entry.group for entry in metadata.distribution("perfcollect-core").entry_points}

    assert groups == {"console_scripts", "perfcollect.executors", "perfcollect.families"}
