"""What a database holds, and the refusal to mix device families (decision 1)."""

from __future__ import annotations

import hashlib
import json

import pytest

from perfcollect_core.errors import DatabaseMismatchError, DataError
from perfcollect_core.tables.identity import (
    Identity,
    adopt_identity,
    check_identity,
    contradicting_rows,
    generation,
    read_identity,
    write_identity,
)


def hashes(directory):
    return {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in directory.iterdir()}


def refusal(database, **run):
    with pytest.raises(DatabaseMismatchError) as caught:
        check_identity(database, **run)
    return str(caught.value).replace(str(database), "DB"), (caught.value.hint or "").replace(
        str(database), "DB"
    )


def test_nothing_known_and_nothing_measured_is_nobodys_database(write, tmp_path, row):
    write([row(1, 512, 512, "0", core="AI_CORE")])

    assert read_identity(tmp_path) is None
    check_identity(tmp_path, family="cpu", device="CPU_X86_64")


@pytest.mark.parametrize(
    ("core", "family"),
    [("AI_CORE", "ascend"), ("MIX_AIC", "ascend"), ("AI_CPU", "ascend"), ("CPU", "cpu"), ("GPU", "cuda")],
)
def test_measured_rows_tell_the_family_by_their_core(write, tmp_path, row, core, family):
    write([row(1, 512, 512, "18.2", core=core), row(2, 512, 512, core="GPU")])

    assert read_identity(tmp_path) == Identity(family)


@pytest.mark.parametrize("column", ["Cold Average Duration(us)", "Profiling Average Duration(us)"])
def test_cold_and_profiled_durations_are_valid_too(write, tmp_path, base, row, column):
    write([f"{row(1, 512, 512, core='AI_CORE')},4.5"], header=f"{base},Average Duration(us),{column}")

    assert read_identity(tmp_path) == Identity("ascend")


def test_the_file_is_stronger_than_the_path_and_the_path_than_the_rows(write, tmp_path, row):
    version = "vllm0.18.0_torch2.9.0_cann8.5"
    database = tmp_path / "ATLAS_800_A2_280T_64G" / "vllm_ascend" / version
    write([row(1, 512, 512, "18.2", core="CPU")], directory=database)

    by_path = read_identity(database)
    write_identity(database, Identity("cpu", "CPU_X86_64", {"torch": "2.13.0"}))
    by_file = read_identity(database)

    assert by_path == Identity("ascend", "ATLAS_800_A2_280T_64G", {"directory": version})
    assert by_file == Identity("cpu", "CPU_X86_64", {"torch": "2.13.0"})


def test_a_collective_database_is_known_by_its_path(tmp_path):
    database = tmp_path / "ATLAS_800_A3_752T_128G_DIE" / "hccl" / "v8.5"
    database.mkdir(parents=True)

    assert read_identity(database) == Identity(
        "ascend", "ATLAS_800_A3_752T_128G_DIE", {"directory": "v8.5"}, evidence="path"
    )


@pytest.mark.parametrize(
    ("header", "cells", "family"),
    [
        ("message_bytes,num_devices,Duration(us)", "1024,8,21.5", "ascend"),
        ("message_bytes,num_devices,Duration(us),Backend", "1024,4,21.5,gloo", "cpu"),
        ("message_bytes,num_devices,Duration(us),Backend", "1024,4,21.5,nccl", "cuda"),
    ],
)
def test_collective_rows_say_their_backend(write, tmp_path, header, cells, family):
    write([cells], name="hcom_allReduce_.csv", header=header)

    assert read_identity(tmp_path) == Identity(family)


def test_another_family_is_refused_and_nothing_changes(write, tmp_path, row):
    write([row(1, 512, 512, "18.2", core="AI_CORE")])
    before = hashes(tmp_path)

    message, hint = refusal(tmp_path, family="cpu", device="CPU_X86_64")

    assert message == (
        "database DB holds ascend durations (known from its Accelerator Core column), "
        "this run would measure cpu durations of CPU_X86_64"
    )
    assert hint == (
        "perfcollect db derive DB NEW_DIRECTORY --device CPU_X86_64 copies its rows without their durations; "
        "measure into that"
    )
    assert hashes(tmp_path) == before


def test_measured_rows_of_no_known_core_are_refused_with_counts(write, tmp_path, row):
    write(
        [row(1, 512, 512, "1.0", core=""), row(2, 512, 512, "1.0", core=""), row(3, 512, 512, "1", core="X")]
    )

    message, hint = refusal(tmp_path, family="cpu", device="CPU_X86_64")

    assert message == (
        "database DB holds durations of an unknown device: Accelerator Core is blank in 2 rows, X in 1 row"
    )
    assert hint == "perfcollect db check DB"


def test_cores_of_two_families_are_refused_with_counts(write, tmp_path, row):
    write([row(1, 512, 512, "1.0", core="AI_CORE"), row(2, 512, 512, "1.0"), row(3, 512, 512, "2.0")])

    message, _ = refusal(tmp_path, family="cpu", device="CPU_X86_64")

    assert message == (
        "database DB holds durations of several device families: "
        "Accelerator Core is CPU in 2 rows, AI_CORE in 1 row"
    )


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("Ascend910B3", "A2"),
        ("Ascend910_9382", "A3"),
        ("ATLAS_800_A2_280T_64G", "A2"),
        ("ATLAS_800_A3_752T_128G_DIE", "A3"),
        ("CPU_X86_64", ""),
    ],
)
def test_device_names_tell_the_generation(name, expected):
    assert generation(name) == expected


def test_an_ascend_device_of_another_generation_is_refused(tmp_path):
    adopt_identity(tmp_path, family="ascend", device="ATLAS_800_A3_752T_128G_DIE")

    message, _ = refusal(tmp_path, family="ascend", device="Ascend910B3")

    assert message == (
        "database DB holds ascend durations of ATLAS_800_A3_752T_128G_DIE (known from its perfcollect.json), "
        "this run would measure ascend durations of Ascend910B3"
    )


def test_another_model_of_one_generation_is_welcome(tmp_path):
    adopt_identity(tmp_path, family="ascend", device="ATLAS_800_A3_752T_128G_DIE")

    check_identity(tmp_path, family="ascend", device="Ascend910_9382")
    check_identity(tmp_path, family="ascend", device="ATLAS_800_A3_560T_128G_DIE")


@pytest.mark.parametrize(("marked", "run"), [(False, True), (True, False)])
def test_emulated_and_real_numbers_do_not_mix(tmp_path, marked, run):
    adopt_identity(tmp_path, family="ascend", device="ATLAS_800_A3_752T_128G_DIE", emulated=marked)

    message, hint = refusal(tmp_path, family="ascend", device="ATLAS_800_A3_752T_128G_DIE", emulated=run)

    assert ("holds emulated" in message, "measure emulated" in message) == (marked, run)
    assert ("--emulated" in hint) == run


def test_adopting_writes_the_file_once(tmp_path):
    adopt_identity(tmp_path, family="cpu", device="CPU_X86_64", versions={"torch": "2.13.0"})
    second = adopt_identity(tmp_path, family="cuda", device="CUDA_NVIDIA_H200")

    assert second == Identity("cpu", "CPU_X86_64", {"torch": "2.13.0"})
    assert json.loads((tmp_path / "perfcollect.json").read_text()) == {
        "schema": 1,
        "device": "CPU_X86_64",
        "family": "cpu",
        "versions": {"torch": "2.13.0"},
        "emulated": False,
    }


def test_the_first_run_adds_its_versions_to_a_derived_database(tmp_path):
    write_identity(tmp_path, Identity("cpu", "CPU_X86_64", emulated=True))

    adopt_identity(tmp_path, family="cpu", device="CPU_AARCH64", versions={"torch": "2.13.0"})
    adopt_identity(tmp_path, family="cpu", device="CPU_X86_64", versions={"torch": "2.14.0"})

    assert read_identity(tmp_path) == Identity("cpu", "CPU_X86_64", {"torch": "2.13.0"}, emulated=True)


def test_a_database_known_by_its_path_is_not_adopted(tmp_path):
    database = tmp_path / "ATLAS_800_A3_752T_128G_DIE" / "vllm_ascend" / "vllm0.18.0_torch2.9.0_cann8.5"
    database.mkdir(parents=True)

    held = adopt_identity(database, family="ascend", device="ATLAS_800_A3_560T_128G_DIE")

    assert held.device == "ATLAS_800_A3_752T_128G_DIE"
    assert list(database.iterdir()) == []


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("{}", "no 'schema'"),
        ('{"schema": 2, "family": "cpu"}', "schema 2, this version knows 1"),
        ('{"schema": 1, "family": ""}', "'family' must be a name and 'emulated' true or false"),
        ("[]", "list indices must be integers or slices, not str"),
    ],
)
def test_a_broken_identity_file_stops_everything(tmp_path, content, reason):
    path = tmp_path / "perfcollect.json"
    path.write_text(content)

    with pytest.raises(DataError) as caught:
        check_identity(tmp_path, family="cpu", device="CPU_X86_64")

    assert str(caught.value) == f"{path} does not say what the database holds: {reason}"


def test_rows_that_contradict_the_file_are_told(write, tmp_path, row):
    write([row(1, 512, 512, "18.2", core="AI_CORE")])
    adopt_identity(tmp_path, family="cpu", device="CPU_X86_64")

    assert contradicting_rows(tmp_path) == "the rows hold ascend durations, perfcollect.json says cpu"
