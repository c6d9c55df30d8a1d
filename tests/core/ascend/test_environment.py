"""The environment workers are started with: found, never guessed over what a person set, and said."""

from __future__ import annotations

from pathlib import Path

import pytest

from perfcollect_core.families.ascend_environment import find_worker_environment


@pytest.fixture
def package(tmp_path) -> Path:
    """A vllm_ascend with custom operators."""
    vendor = tmp_path / "site/vllm_ascend/_cann_ops_custom/vendors/vllm-ascend"
    (vendor / "op_api/lib").mkdir(parents=True)
    (vendor / "op_api/lib/libcust_opapi.so").touch()
    return tmp_path / "site/vllm_ascend"


def find(environ, tmp_path, package=None, **fields):
    (tmp_path / "work").mkdir(exist_ok=True)
    return find_worker_environment(
        environ,
        root=tmp_path / "root",
        working_directory=tmp_path / "work",
        find_package=lambda name: package,
        **fields,
    )


def test_nothing_is_added_where_nothing_is_found(tmp_path):
    found = find({}, tmp_path)

    assert (found.env, found.said) == ({}, ())


def test_custom_operators_of_the_installed_package_are_used(tmp_path, package):
    vendor = package / "_cann_ops_custom/vendors/vllm-ascend"

    found = find({"LD_LIBRARY_PATH": "/cann/lib64"}, tmp_path, package)

    assert found.env == {
        "ASCEND_CUSTOM_OPP_PATH": str(vendor),
        "LD_LIBRARY_PATH": f"{vendor}/op_api/lib:/cann/lib64",
    }
    assert found.said == (
        f"ASCEND_CUSTOM_OPP_PATH={vendor} (the custom operators of vllm_ascend)",
        f"LD_LIBRARY_PATH begins with {vendor}/op_api/lib (custom operators)",
    )


def test_a_path_a_person_set_stays_though_it_names_nothing(tmp_path, package):
    found = find({"ASCEND_CUSTOM_OPP_PATH": "/nonexistent"}, tmp_path, package)

    assert found.env == {}


def test_a_source_tree_that_is_named_is_importable(tmp_path):
    (tmp_path / "tree/vllm_ascend").mkdir(parents=True)

    found = find({"VLLM_ASCEND_PATH": str(tmp_path / "tree")}, tmp_path)

    assert found.env == {"PYTHONPATH": str(tmp_path / "tree")}


def test_a_source_tree_beside_the_working_directory_is_used(tmp_path):
    (tmp_path / "vllm-ascend/vllm_ascend").mkdir(parents=True)

    found = find({}, tmp_path)

    tree = str(tmp_path / "vllm-ascend")
    assert found.env == {"VLLM_ASCEND_PATH": tree, "PYTHONPATH": tree}


@pytest.mark.parametrize(("torch", "abi"), [("2.5.1", "cxx_abi_0"), ("2.9.0+cpu", "cxx_abi_1")])
def test_the_transformer_library_is_of_the_build_torch_has(tmp_path, torch, abi):
    for each in ("cxx_abi_0", "cxx_abi_1"):
        lib = tmp_path / "root/usr/local/Ascend/nnal/atb/latest/atb" / each / "lib"
        lib.mkdir(parents=True)
        (lib / "libatb.so").touch()

    found = find({}, tmp_path, torch_version=torch)

    home = tmp_path / "root/usr/local/Ascend/nnal/atb/latest/atb" / abi
    assert found.env == {"ATB_HOME_PATH": str(home), "LD_LIBRARY_PATH": f"{home}/lib"}


def test_a_sourced_transformer_library_is_left_alone(tmp_path):
    lib = tmp_path / "atb/lib"
    lib.mkdir(parents=True)
    (lib / "libatb.so").touch()

    found = find({"LD_LIBRARY_PATH": str(lib)}, tmp_path)

    assert found.env == {}


@pytest.mark.parametrize(("environ", "expected"), [({}, "1024"), ({"HCCL_BUFFSIZE": "200"}, None)])
def test_several_ranks_get_a_window_unless_one_is_set(tmp_path, environ, expected):
    found = find(environ, tmp_path, ranks=2)

    assert found.env.get("HCCL_BUFFSIZE") == expected
