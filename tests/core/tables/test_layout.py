"""Where a database lies, by options, versions and what is there (decision 2)."""

from __future__ import annotations

import random

import pytest

from perfcollect_core.errors import DataError, UsageError
from perfcollect_core.tables import layout, versions
from perfcollect_core.tables.layout import (
    DatabaseOptions,
    data_root,
    find_database,
    list_databases,
    locate_database,
)

DEVICE = "ATLAS_800_A3_752T_128G_DIE"
#: Rising: 0.9 before 0.13, dev before rc before final before post, CANN 8.5 before 8.10.
ORDER = [
    "vllm0.9.1_torch2.7.1_cann8.2",
    "vllm0.13.0rc2_torch2.8.0_cann8.3",
    "vllm0.13.0_torch2.8.0_cann8.3",
    "vllm0.13.0.post1_torch2.8.0_cann8.3",
    "vllm0.18.0.dev3+g1a2b3c4.d20260810_torch2.9.0_cann8.5",
    "vllm0.18.0rc1_torch2.9.0.post1+gitdc51c2d_cann8.5.1",
    "vllm0.18.0_torch2.9.0_cann8.5",
    "vllm0.18.0_torch2.9.0_cann8.10",
]
VARIANT = "vllm0.18.0_torch2.9.0_cann8.5_shape_generated"


@pytest.fixture
def root(tmp_path):
    """A data root with every directory of ``ORDER`` and a variant, made in no order."""
    names = [*ORDER, VARIANT]
    random.Random(7).shuffle(names)
    for name in names:
        (tmp_path / "root" / DEVICE / "vllm_ascend" / name).mkdir(parents=True)
    return tmp_path / "root"


@pytest.fixture(autouse=True)
def bare_machine(monkeypatch):
    """Nothing installed but torch 2.13.0, no variable set."""
    monkeypatch.delenv("PERFCOLLECT_DATA_ROOT", raising=False)
    monkeypatch.setattr(layout, "detect_vllm", lambda: None)
    monkeypatch.setattr(layout, "detect_torch", lambda: "2.13.0+cpu")
    monkeypatch.setattr(layout, "detect_cann", lambda: None)


def find(root, family="ascend", **options):
    return find_database(DatabaseOptions(data_root=root, **options), family=family, device_name="CPU_X86_64")


def test_databases_are_listed_in_version_order_with_variants_marked(root):
    entries = list_databases(root)

    assert [entry.path.name for entry in entries if not entry.variant] == ORDER
    assert [entry.path.name for entry in entries if entry.variant] == [VARIANT]


def test_databases_of_every_kind_are_listed(root):
    for name in ("torch2.9.0", "torch2.13.0"):
        (root / "CPU_X86_64" / name).mkdir(parents=True)
    (root / DEVICE / "hccl" / "v8.5").mkdir(parents=True)

    names = [f"{entry.device}/{entry.path.name}" for entry in list_databases(root)]

    assert names[9:] == [f"{DEVICE}/v8.5", "CPU_X86_64/torch2.9.0", "CPU_X86_64/torch2.13.0"]


def test_latest_is_the_highest_release_never_a_variant_and_is_told(root):
    located = find(root, vllm_version="latest")

    assert located.path.name == "vllm0.18.0_torch2.9.0_cann8.10"
    assert located.notes == ("--vllm-version latest is vllm0.18.0_torch2.9.0_cann8.10",)


def test_latest_may_be_a_post_release(root):
    assert find(root, vllm_version="latest", torch_version="2.8.0").path.name == ORDER[3]


def test_latest_without_a_release_is_refused(tmp_path):
    base = tmp_path / DEVICE / "vllm_ascend"
    (base / "vllm0.18.0rc1_torch2.9.0_cann8.5").mkdir(parents=True)

    with pytest.raises(DataError) as caught:
        find(tmp_path, vllm_version="latest")

    assert str(caught.value) == f"--vllm-version latest finds no release below {base}"


@pytest.mark.parametrize(
    ("given", "read"), [("v0.18.0", "0.18.0"), ("0.18.0 ", "0.18.0"), ("0.18.0-rc1", "0.18.0rc1")]
)
def test_versions_are_normalised_and_told(tmp_path, given, read):
    located = find(tmp_path, vllm_version=given, torch_version="2.9.0", cann_version="8.5")

    assert located.path.name == f"vllm{read}_torch2.9.0_cann8.5"
    assert located.notes == (f"--vllm-version {given!r} is read as {read}",)


@pytest.mark.parametrize("given", ["", "main", "0+unknown", "../../etc", "0.18.0_torch2.9", "0.18.0_rc1"])
def test_what_is_no_version_is_refused_and_no_folder_made(tmp_path, given):
    options = DatabaseOptions(
        data_root=tmp_path, vllm_version=given, torch_version="2.9.0", cann_version="8.5"
    )

    with pytest.raises(UsageError) as caught:
        locate_database(options, family="ascend", device_name="", create=True)

    assert str(caught.value) == (
        f"--vllm-version {given!r} is no version, expected one such as 0.18.0, 0.18.0rc1 or latest"
    )
    assert list(tmp_path.iterdir()) == []


def test_detected_cann_8_5_0_opens_the_existing_cann8_5(root, monkeypatch):
    monkeypatch.setattr(layout, "detect_vllm", lambda: "0.18.0")
    monkeypatch.setattr(layout, "detect_torch", lambda: "2.9.0+cpu")
    monkeypatch.setattr(layout, "detect_cann", lambda: "8.5.0")

    located = find(root)

    assert located.path.name == "vllm0.18.0_torch2.9.0_cann8.5"
    assert located.notes == (
        "using the existing directory vllm0.18.0_torch2.9.0_cann8.5 for vllm0.18.0_torch2.9.0_cann8.5.0",
    )


def test_a_variant_is_never_opened_for_the_version_it_belongs_to(tmp_path):
    (tmp_path / DEVICE / "vllm_ascend" / VARIANT).mkdir(parents=True)

    located = find(tmp_path, vllm_version="0.18.0", torch_version="2.9.0", cann_version="8.5.0")

    assert located.path.name == "vllm0.18.0_torch2.9.0_cann8.5.0"


def test_a_whole_directory_name_is_taken_as_it_is(root):
    assert find(root, vllm_version=VARIANT).path.name == VARIANT


def test_a_whole_directory_name_beside_an_equal_part_is_not_doubled(root):
    name = "vllm0.18.0_torch2.9.0_cann8.5"

    assert find(root, vllm_version=name, cann_version="8.5.0").path.name == name


def test_a_whole_directory_name_beside_another_part_is_refused(root):
    with pytest.raises(UsageError) as caught:
        find(root, vllm_version="vllm0.18.0_torch2.9.0_cann8.5", cann_version="8.10")

    assert str(caught.value) == (
        "--cann-version 8.10 contradicts --vllm-version vllm0.18.0_torch2.9.0_cann8.5, which says cann8.5"
    )


@pytest.mark.parametrize(
    ("text", "read"),
    [("[7.6.0.1.220:8.3.RC1]", "8.3.RC1"), ("cann8.5", "8.5"), ("8.5.0", "8.5.0"), ("CANN8.2", "8.2")],
)
def test_cann_versions_give_clean_directory_names(text, read):
    assert versions.normalise_version("cann", text) == read


def test_a_version_neither_given_nor_detected_is_a_usage_error(tmp_path):
    with pytest.raises(UsageError) as caught:
        find(tmp_path, vllm_version="0.18.0")

    assert str(caught.value) == "the CANN version is neither given nor detected on this machine"
    assert caught.value.hint == "give --cann-version, or name the directory itself with --database-path"
    assert caught.value.exit_code == 2


def test_parse_never_falls_back_to_the_cpus_directory(tmp_path):
    with pytest.raises(UsageError, match="the vLLM-Ascend version is neither given nor detected"):
        find(tmp_path)


def test_the_default_of_a_cpu_is_its_device_and_torch(tmp_path):
    located = find(tmp_path, family="cpu")

    assert located.path == tmp_path / "CPU_X86_64" / "torch2.13.0"
    assert located.parts == (
        f"root={tmp_path} (given)",
        "device=CPU_X86_64 (default)",
        "torch=2.13.0 (detected)",
    )


def test_a_given_path_wins_over_everything(tmp_path):
    options = DatabaseOptions(tmp_path / "db", data_root=tmp_path, vllm_version="main", device="x/y")

    assert find_database(options, family="ascend", device_name="").path == tmp_path / "db"


def test_the_root_is_given_else_the_variable_else_the_seeds_directory_else_data(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    seed = tmp_path / "tensor_cast/performance_model/profiling_database/data"

    roots = [data_root(DatabaseOptions())]
    seed.mkdir(parents=True)
    roots.append(data_root(DatabaseOptions()))
    monkeypatch.setenv("PERFCOLLECT_DATA_ROOT", "/srv/perf")
    roots.append(data_root(DatabaseOptions()))
    roots.append(data_root(DatabaseOptions(data_root=tmp_path)))

    assert [(str(root), origin) for root, origin in roots] == [
        ("data", "default"),
        ("tensor_cast/performance_model/profiling_database/data", "default"),
        ("/srv/perf", "$PERFCOLLECT_DATA_ROOT"),
        (str(tmp_path), "given"),
    ]


def test_a_missing_directory_names_path_parts_and_neighbours(root):
    with pytest.raises(DataError) as caught:
        locate_database(
            DatabaseOptions(data_root=root, vllm_version="0.19.0", torch_version="2.9.0", cann_version="8.5"),
            family="ascend",
            device_name="",
        )

    tried = root / DEVICE / "vllm_ascend" / "vllm0.19.0_torch2.9.0_cann8.5"
    assert str(caught.value) == (
        f"no database at {tried} (root={root} (given), device={DEVICE} (default), "
        "vllm=0.19.0 (given), torch=2.9.0 (given), cann=8.5 (given))"
    )
    assert (caught.value.hint or "").startswith(
        f"the nearest existing directories are {tried.parent / 'vllm0.18.0_torch2.9.0_cann8.5'}, "
    )


def test_a_given_path_that_is_not_there_names_its_neighbours(tmp_path):
    (tmp_path / "torch2.12.0").mkdir()

    with pytest.raises(DataError) as caught:
        locate_database(
            DatabaseOptions(database_path=tmp_path / "torch2.13.0"), family="cpu", device_name="CPU_X86_64"
        )

    assert str(caught.value) == f"no database at {tmp_path / 'torch2.13.0'} (given with --database-path)"
    assert caught.value.hint == (
        f"the nearest existing directories are {tmp_path / 'torch2.12.0'}; "
        "perfcollect db init, db derive and parse make new ones"
    )


def test_the_only_database_below_the_root_is_named(tmp_path):
    only = tmp_path / "CPU_X86_64" / "torch2.12.0"
    only.mkdir(parents=True)

    with pytest.raises(DataError) as caught:
        locate_database(DatabaseOptions(data_root=tmp_path), family="cpu", device_name="CPU_X86_64")

    assert caught.value.hint == f"there is one below {tmp_path}: --database-path {only}"


def test_parse_makes_its_directory(tmp_path):
    options = DatabaseOptions(
        data_root=tmp_path, vllm_version="v0.18.0", torch_version="2.9.0", cann_version="8.5.0"
    )
    told: list[str] = []

    path = locate_database(options, family="ascend", device_name="", create=True, notify=told.append)

    assert path == tmp_path / DEVICE / "vllm_ascend" / "vllm0.18.0_torch2.9.0_cann8.5.0"
    assert path.is_dir()
    assert told == ["--vllm-version 'v0.18.0' is read as 0.18.0"]


def test_a_file_in_the_way_of_the_directory_is_named(tmp_path):
    (tmp_path / "plain").write_text("x")

    with pytest.raises(DataError) as caught:
        locate_database(
            DatabaseOptions(database_path=tmp_path / "plain" / "db"),
            family="cpu",
            device_name="",
            create=True,
        )

    assert str(caught.value) == f"database {tmp_path / 'plain' / 'db'} cannot be created: Not a directory"


@pytest.mark.parametrize("name", ["ATLAS_900", "../x", "", "a/b"])
def test_a_device_that_is_none_is_refused(tmp_path, name):
    with pytest.raises(UsageError) as caught:
        find(tmp_path, device=name, vllm_version="0.18.0", torch_version="2.9.0", cann_version="8.5")

    assert str(caught.value) == f"--device {name!r} is not known"
    assert DEVICE in (caught.value.hint or "")


def test_cann_is_found_in_the_toolkits_files(tmp_path):
    home = tmp_path / "cann"
    (home / "arm64-linux").mkdir(parents=True)
    (home / "arm64-linux" / "ascend_toolkit_install.info").write_text("package_name=x\nversion=8.5.0\n")

    assert versions.detect_cann({"ASCEND_TOOLKIT_HOME": str(home)}.get) == "8.5.0"
