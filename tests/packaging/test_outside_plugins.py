"""Plugins made outside the repository: one from the template works, one that needs a custom OPP package is refused in words."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
from isolated import Environment, build_wheel, core_requirements

pytestmark = [pytest.mark.xdist_group("packaging"), pytest.mark.torch]

OPERATOR = "VendorGeluV2"
TEST_PACKAGES = ("torch", "numpy", "pytest")


@pytest.fixture(scope="module")
def outside(wheels: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """Return an environment with core, torch and the wheel of a project that `plugin new` wrote."""
    pytest.importorskip("torch")
    work = tmp_path_factory.mktemp("outside")
    environment = Environment(work / "venv", [*core_requirements(), *TEST_PACKAGES])
    environment.install(wheels["perfcollect_core"])
    made = environment.perfcollect("plugin", "new", OPERATOR, cwd=work)
    assert made.returncode == 0, made.stderr
    environment.install(build_wheel(work / "perfcollect-ops-vendor-gelu-v2", work / "dist"))
    return environment


@pytest.fixture(scope="module")
def project(outside: Environment) -> Path:
    return outside.directory.parent / "perfcollect-ops-vendor-gelu-v2"


def test_the_plugin_appears_in_the_listing(outside):
    listed = json.loads(outside.perfcollect("ops", "--format", "json").stdout)

    assert listed == [
        {
            "operator": OPERATOR,
            "distribution": "perfcollect-ops-vendor-gelu-v2",
            "version": "0.1.0",
            "entry_point": "perfcollect_ops_vendor_gelu_v2.vendor_gelu_v2",
        }
    ]


def test_the_plugin_gets_a_table_and_runs_on_the_cpu(outside, tmp_path):
    database = tmp_path / "CPU_TEST" / "torch"

    made = outside.perfcollect("db", "init", database, "--ops", OPERATOR)
    ran = outside.perfcollect(
        "run",
        "--ops",
        OPERATOR,
        "--family",
        "cpu",
        "--database-path",
        database,
        "--repeat-count",
        "3",
        "--check",
    )

    assert made.returncode == 0, made.stderr
    assert ran.returncode == 0, ran.stderr
    with (database / f"{OPERATOR}.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 3
    assert all(float(row["Average Duration(us)"]) > 0 for row in rows)
    assert {row["Accelerator Core"] for row in rows} == {"CPU"}


def test_the_plugin_passes_its_conformance_tests(outside, project):
    done = outside.run("-m", "pytest", "-q", "-p", "no:cacheprovider", project, cwd=project)

    assert done.returncode == 0, done.stdout
    assert " passed" in done.stdout.splitlines()[-1]


def test_doctor_finds_nothing_wrong_with_the_plugin(outside):
    found = json.loads(outside.perfcollect("doctor", "--format", "json").stdout)

    assert [finding for finding in found if OPERATOR in finding["subject"]] == []


def test_a_project_is_not_written_over_another(outside, project, tmp_path):
    done = outside.perfcollect("plugin", "new", OPERATOR, "--directory", project)

    assert done.returncode == 2
    assert done.stderr.splitlines() == [
        f"error: {project} is there already and not an empty directory",
        "hint: give another --directory",
    ]


@pytest.mark.parametrize("name", ["../Escape", "Has Blank", "a/b"])
def test_a_project_of_an_unsafe_name_is_refused(outside, tmp_path, name):
    done = outside.perfcollect("plugin", "new", name, cwd=tmp_path)

    assert done.returncode == 2
    assert done.stderr.startswith(f"error: operator name {name!r} is not allowed: expected letters, digits,")
    assert list(tmp_path.iterdir()) == []


CUSTOM_OPP = '''
"""An operator whose kernel comes with a custom OPP package."""

from perfcollect_core import Kernel, Need, OperatorSpec, Slot

NEED = Need("env", "ASCEND_CUSTOM_OPP_PATH", "source set_env.bash of the vendor's OPP package", families=("ascend", "cpu"))
EXAMPLE = {"Input Shapes": "16,128", "Input Data Types": "DT_BF16", "Input Formats": "ND", "Output Shapes": "16,128", "Output Data Types": "DT_BF16", "Output Formats": "ND"}

def perfcollect_operator_spec(operator):
    return OperatorSpec(operator, families=("ascend", "cpu"), inputs=(Slot("x"),), outputs=(Slot("y"),), needs=(NEED,), examples=(EXAMPLE,))

def perfcollect_bind_kernel(case, inputs, device):
    return Kernel(lambda: inputs["x"].clone())
'''


@pytest.fixture
def custom_opp(outside: Environment, tmp_path: Path) -> Environment:
    """Install a second outside plugin, written by hand."""
    project = tmp_path / "vendor"
    package = project / "src" / "vendor_opp_ops"
    if not (outside.site / "vendor_opp_ops").exists():
        package.mkdir(parents=True)
        (package / "__init__.py").write_text("")
        (package / "fused.py").write_text(CUSTOM_OPP)
        (project / "pyproject.toml").write_text(
            '[build-system]\nrequires = ["hatchling"]\nbuild-backend = "hatchling.build"\n'
            '[project]\nname = "vendor-opp-ops"\nversion = "3.0"\ndependencies = ["perfcollect-core>=0.1"]\n'
            '[project.entry-points."perfcollect.operators"]\nVendorFused = "vendor_opp_ops.fused"\n'
            '[tool.hatch.build.targets.wheel]\npackages = ["src/vendor_opp_ops"]\n'
        )
        outside.install(build_wheel(project, tmp_path / "dist"))
    return outside


def test_an_operator_that_needs_a_custom_opp_package_is_refused_in_words(custom_opp, tmp_path):
    database = tmp_path / "db"
    custom_opp.perfcollect("db", "init", database, "--ops", "VendorFused")
    before = (database / "VendorFused.csv").read_bytes()

    done = custom_opp.perfcollect(
        "run", "--ops", "VendorFused", "--family", "cpu", "--database-path", database
    )

    assert done.returncode == 1
    assert "VendorFused" in done.stderr
    assert "ASCEND_CUSTOM_OPP_PATH is not set" in done.stderr
    assert "source set_env.bash of the vendor's OPP package" in done.stderr
    assert (database / "VendorFused.csv").read_bytes() == before


def test_an_operator_whose_opp_package_is_there_runs(custom_opp, tmp_path):
    database = tmp_path / "db"
    custom_opp.perfcollect("db", "init", database, "--ops", "VendorFused")

    done = custom_opp.perfcollect(
        "run", "--ops", "VendorFused", "--family", "cpu", "--database-path", database, "--repeat-count", "3",
        ASCEND_CUSTOM_OPP_PATH=str(tmp_path),
    )  # fmt: skip

    assert done.returncode == 0, done.stderr
