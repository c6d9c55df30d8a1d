"""Each distribution builds, holds what it needs and installs alone."""

from __future__ import annotations

import json
import subprocess
import sys
import tarfile
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest
from isolated import DISTRIBUTIONS, REPOSITORY, Environment, core_requirements

pytestmark = pytest.mark.xdist_group("packaging")


def names(wheel: Path) -> list[str]:
    with zipfile.ZipFile(wheel) as file:
        return file.namelist()


def headers(wheel: Path):
    with zipfile.ZipFile(wheel) as file:
        (metadata,) = [name for name in file.namelist() if name.endswith(".dist-info/METADATA")]
        return Parser().parsestr(file.read(metadata).decode())


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
def test_a_wheel_holds_every_file_of_its_package(wheels, distribution):
    source = REPOSITORY / distribution / "src"
    expected = {
        str(path.relative_to(source))
        for path in source.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts and path.suffix != ".pyc"
    }

    assert expected - set(names(wheels[distribution])) == set()


def test_the_umbrella_holds_no_package_and_pins_the_set(wheels):
    assert [name for name in names(wheels["."]) if ".dist-info/" not in name] == []
    required = headers(wheels["."]).get_all("Requires-Dist")
    version = headers(wheels["."])["Version"]
    assert f"perfcollect-core=={version}" in required
    assert f"perfcollect-ops-builtin=={version}" in required


@pytest.mark.parametrize("distribution", [".", *DISTRIBUTIONS])
def test_no_distribution_depends_on_torch(wheels, distribution):
    required = headers(wheels[distribution]).get_all("Requires-Dist") or []

    assert [text for text in required if text.lower().startswith(("torch", "vllm", "triton"))] == []


def test_versions_go_in_step(wheels):
    assert len({headers(wheel)["Version"] for wheel in wheels.values()}) == 1


@pytest.mark.parametrize("distribution", [".", *DISTRIBUTIONS])
def test_the_licence_travels_with_each_wheel(wheels, distribution):
    assert headers(wheels[distribution])["License-Expression"] == "Apache-2.0"
    assert [name for name in names(wheels[distribution]) if name.endswith("LICENSE")]


def test_core_alone_is_a_tool(core_alone: Environment):
    done = core_alone.perfcollect("ops", "--format", "json")

    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout) == []
    assert core_alone.perfcollect("--help").returncode == 0
    assert core_alone.run("-c", "import torch").returncode == 1


def test_core_alone_says_where_operators_come_from(core_alone: Environment):
    done = core_alone.perfcollect("ops", "show", "MatMulV2")

    assert done.returncode == 1
    assert done.stderr.splitlines() == [
        "error: operator 'MatMulV2' is not provided by any installed distribution",
        "hint: perfcollect ops lists what is installed; not installed here: perfcollect-ops-builtin (operators that "
        "stock torch or torch_npu launches), perfcollect-ops-vllm-ascend (operators of vllm-ascend, custom OPP "
        "packages, NNAL and triton-ascend), perfcollect-comm (hcom_* collectives)",
    ]


def test_core_alone_has_a_console_script(core_alone: Environment):
    (entry_points,) = core_alone.site.glob("perfcollect_core-*.dist-info/entry_points.txt")

    assert "perfcollect = perfcollect_core.cli:main" in entry_points.read_text()


@pytest.mark.parametrize("distribution", [name for name in DISTRIBUTIONS if name != "perfcollect_core"])
def test_a_plugin_distribution_needs_core_only(wheels, tmp_path, distribution):
    environment = Environment(tmp_path / "venv", core_requirements())
    environment.install(wheels["perfcollect_core"])
    environment.install(wheels[distribution])

    assert environment.perfcollect("--help").returncode == 0
    listed = environment.perfcollect("ops", "--long", "--format", "json")

    assert listed.returncode == 0
    # Without torch every parent hook works all the same.
    assert [entry for entry in json.loads(listed.stdout) if "error" in entry] == []


def test_a_source_distribution_builds_and_holds_the_sources(tmp_path):

    command = [sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", str(tmp_path)]
    subprocess.run(command, cwd=REPOSITORY / "perfcollect_core", check=True, capture_output=True)

    (archive,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(archive) as file:
        assert [name for name in file.getnames() if name.endswith("src/perfcollect_core/discovery.py")]


def test_the_repository_root_shadows_no_package():
    code = "import perfcollect_core; print(perfcollect_core.__file__)"

    done = subprocess.run(
        [sys.executable, "-c", code], cwd=REPOSITORY, capture_output=True, text=True, check=True
    )

    assert (
        Path(done.stdout.strip())
        == REPOSITORY / "perfcollect_core" / "src" / "perfcollect_core" / "__init__.py"
    )
