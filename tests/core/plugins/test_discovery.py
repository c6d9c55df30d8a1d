"""Plugins are found from metadata alone, once, and by name."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from perfcollect_core.discovery import (
    PluginIndex,
    Provider,
    is_safe_name,
    operator_name,
    plugin_index,
    scan_entry_points,
)
from perfcollect_core.errors import OperatorConflictError, PluginError, UnknownOperatorError
from perfcollect_core.testing import write_distribution


def operator(name: str, distribution: str = "ops-a", version: str = "1.0", value: str = "ops_a") -> Provider:
    return Provider(name, "operators", value, distribution, version)


def test_two_distributions_with_one_operator_are_refused(fake_distribution, index):
    fake_distribution("ops-a", "1.0", operators={"MatMulV2Twin": "ops_a"})
    fake_distribution("ops-b", "2.0", operators={"MatMulV2Twin": "ops_b"})

    with pytest.raises(OperatorConflictError) as caught:
        index().require("operators", "MatMulV2Twin")

    assert str(caught.value) == "operator 'MatMulV2Twin' is provided by ops-a 1.0 and ops-b 2.0"
    assert caught.value.hint == "choose one: --ops ops-a:MatMulV2Twin"
    assert caught.value.provider == "ops-a 1.0"


@pytest.mark.parametrize("spelling", ["ops-b", "Ops_B", "ops.b"])
def test_a_distribution_chooses_between_two_providers(fake_distribution, index, spelling):
    fake_distribution("ops-a", "1.0", operators={"MatMulV2Twin": "ops_a"})
    fake_distribution("ops-b", "2.0", operators={"MatMulV2Twin": "ops_b"})

    found = index().require("operators", "MatMulV2Twin", spelling)

    assert found == Provider("MatMulV2Twin", "operators", "ops_b", "ops-b", "2.0")


def test_a_distribution_that_does_not_provide_the_operator_is_named(index, fake_distribution):
    fake_distribution("ops-a", "1.0", operators={"MatMulV2Twin": "ops_a"})

    with pytest.raises(UnknownOperatorError) as caught:
        index().require("operators", "MatMulV2Twin", "ops-z")

    assert str(caught.value) == "operator 'MatMulV2Twin' is not provided by ops-z, only by ops-a 1.0"
    assert caught.value.hint == "choose one: --ops ops-a:MatMulV2Twin"


def test_an_unknown_operator_gets_suggestions_and_where_to_get_it():
    index = PluginIndex(
        [operator("MatMulV2", "perfcollect-ops-builtin"), operator("MatMulV3", "perfcollect-comm")]
    )

    with pytest.raises(UnknownOperatorError) as caught:
        index.require("operators", "matmulv2x")

    assert str(caught.value) == "operator 'matmulv2x' is not provided by any installed distribution"
    assert caught.value.hint == (
        "did you mean MatMulV2 or MatMulV3?; perfcollect ops lists what is installed; not installed here: "
        "perfcollect-ops-vllm-ascend (operators of vllm-ascend, custom OPP packages, NNAL and triton-ascend)"
    )


def test_an_unknown_family_lists_the_installed_ones():
    index = PluginIndex([Provider("cpu", "families", "x", "perfcollect-core", "0.1.0")])

    with pytest.raises(PluginError) as caught:
        index.require("families", "gpu")

    assert not isinstance(caught.value, UnknownOperatorError)
    assert str(caught.value) == "device family 'gpu' is not provided by any installed distribution"
    assert caught.value.hint == "did you mean cpu?; installed: cpu"


def test_lib_and_lib64_are_one_plugin(tmp_path: Path, monkeypatch, index):
    made = write_distribution(tmp_path / "lib", "ops-a", "1.0.0", {"operators": {"Twin": "ops_a"}})
    (tmp_path / "lib64").symlink_to(made.path)
    monkeypatch.syspath_prepend(str(tmp_path / "lib64"))
    monkeypatch.syspath_prepend(str(tmp_path / "lib"))

    assert [p.label for p in index().providers("operators", "Twin")] == ["ops-a 1.0.0"]


def test_the_first_of_two_versions_on_the_path_counts(fake_distribution, index):
    fake_distribution("ops-a", "1.0", operators={"Twin": "ops_a"})
    fake_distribution("Ops_A", "2.0", operators={"Twin": "ops_a"})

    assert [p.label for p in index().providers("operators", "Twin")] == ["Ops_A 2.0"]


def test_egg_info_beside_dist_info_is_one_plugin(tmp_path: Path, monkeypatch, index):
    made = write_distribution(tmp_path, "ops-a", "1.0", {"operators": {"Twin": "ops_a"}})
    egg = tmp_path / "ops_a.egg-info"
    egg.mkdir()
    (egg / "PKG-INFO").write_text("Metadata-Version: 2.1\nName: ops-a\nVersion: 0.9\n")
    (egg / "entry_points.txt").write_text((made.dist_info / "entry_points.txt").read_text())
    monkeypatch.syspath_prepend(str(tmp_path))

    assert len(index().providers("operators", "Twin")) == 1


@pytest.mark.parametrize(
    "name", ["Bad Op", "Sub/Op", "..", "../MatMulV2", ".hidden", "-rf", "a\\b", "Ключ", ""]
)
def test_a_name_that_could_become_a_path_is_refused(name):
    index = PluginIndex([operator(name), operator("Add")])

    assert not is_safe_name(name)
    assert index.names("operators") == ("Add",)
    assert [p.name for p in index.refused] == [name]
    with pytest.raises(UnknownOperatorError) as caught:
        index.require("operators", name)
    assert str(caught.value) == (
        f"operator name {name!r} is not allowed: expected letters, digits, '_', '-' and '.' only"
    )


@pytest.mark.parametrize(
    "name", ["MatMulV2", "split_qkv_rmsnorm_rope_kernel", "hcom_allReduce_", "aclnn.Add-2"]
)
def test_kernel_types_are_safe_names(name):
    assert is_safe_name(name)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("MatMulV2", (None, "MatMulV2")),
        ("MatMulV2.csv", (None, "MatMulV2")),
        ("MatMulV2_run.py", (None, "MatMulV2")),
        ("ops-a:MatMulV2", ("ops-a", "MatMulV2")),
        ("ops-a:MatMulV2.csv", ("ops-a", "MatMulV2")),
    ],
)
def test_what_a_user_types_names_an_operator(text, expected):
    assert operator_name(text) == expected


def test_metadata_in_a_zip_file_is_read_too(tmp_path: Path, monkeypatch, index):
    made = write_distribution(tmp_path / "site", "ops-zipped", "3.1", {"operators": {"Zipped": "ops_zipped"}})
    archive = tmp_path / "ops.zip"
    with zipfile.ZipFile(archive, "w") as file:
        for path in made.dist_info.iterdir():
            file.write(path, path.relative_to(made.path))
    monkeypatch.syspath_prepend(str(archive))

    assert [p.label for p in index().providers("operators", "Zipped")] == ["ops-zipped 3.1"]


def test_importlib_finds_the_same_plugins(tmp_path: Path, monkeypatch, fake_distribution, index):
    fake_distribution(
        "ops-a", "1.0", operators={"Twin": "ops_a", "Quoted.Name": "ops_a:thing"}, wrappers={"w": "m"}
    )
    quick = set(scan_entry_points())
    # A zip file on the path sends the scan through importlib.metadata.
    with zipfile.ZipFile(tmp_path / "empty.zip", "w"):
        pass
    monkeypatch.syspath_prepend(str(tmp_path / "empty.zip"))

    assert set(scan_entry_points()) == quick


def test_the_disk_is_read_once_a_process(fake_distribution):
    made = fake_distribution("ops-a", "1.0", operators={"Twin": "ops_a"})
    before = plugin_index()
    (made.dist_info / "entry_points.txt").unlink()

    assert plugin_index() is before
    assert plugin_index().names("operators")


def test_scanning_imports_no_plugin(fake_distribution):
    made = fake_distribution(
        "ops-a", operators={"Twin": "noisy_ops"}, files={"noisy_ops.py": "print('imported')\n"}
    )
    code = "from perfcollect_core.discovery import plugin_index; print(plugin_index().providers('operators', 'Twin'))"

    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONPATH": ":".join([str(made.path), *sys.path])},
        capture_output=True,
        text=True,
        check=True,
    )

    assert "imported" not in done.stdout
    assert "noisy_ops" in done.stdout


def test_an_odd_version_is_shown_as_it_stands(fake_distribution, index):
    fake_distribution("ops-broken", "0.9.0rc2+gitdc51c2d", operators={"BrokenOp": "broken"})

    assert index().require("operators", "BrokenOp").label == "ops-broken 0.9.0rc2+gitdc51c2d"
