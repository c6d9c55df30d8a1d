"""Deriving a database: the same rows and bytes, nothing that was measured."""

from __future__ import annotations

import hashlib
import json

import pytest

from perfcollect_core.errors import DataError, TableError
from perfcollect_core.tables.columns import is_measurement
from perfcollect_core.tables.derive import derive_database
from perfcollect_core.tables.identity import Identity, read_identity


def contents(directory):
    return {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in directory.rglob("*") if p.is_file()}


def derive(source, target, **options):
    return derive_database(source, target, family="cpu", device="CPU_X86_64", **options)


def test_only_durations_counters_and_cores_are_blank(write, tmp_path, base, row):
    header = (
        f"{base},Average Duration(us),Cold Average Duration(us),Profiling Std Duration(us),"
        "MicroBench aicore_time(us),Profiling Average aiv_vec_ratio,Power(W),Observed Kernel,"
        "Runtime avg_seq_len,Quant Type,Author"
    )
    cells = f"{row(136, 7168, 3584, '61.0', core='AI_CORE')},70.1,0.5,40,0.9,310.2,MatMulV3,4096,bf16,li"
    write([cells], header=header, bom=True, directory=tmp_path / "src")

    derive(tmp_path / "src", tmp_path / "dst")

    blank = row(136, 7168, 3584, core="") + ",,,,,,,4096,bf16,li"
    assert (tmp_path / "dst" / "MatMulV2.csv").read_bytes() == f"\ufeff{header}\r\n{blank}\r\n".encode()


@pytest.mark.parametrize(
    "column",
    [
        "Accelerator Core",
        "Average Duration(us)",
        "Profiling Median Duration(us)",
        "Profiling Average cube_utilization(%)",
        "MicroBench aic_total_cycles",
        "Cache Policy",
        "Measured With",
        "Profiling Count",
        "Clock(MHz)",
        "Runtime replay_status",
    ],
)
def test_what_a_measurement_leaves_is_known(column):
    assert is_measurement(column)


@pytest.mark.parametrize(
    "column",
    [
        "OP State",
        "Input Shapes",
        "Output Formats",
        "EP Size",
        "Runtime block_size",
        "Quant Type",
        "Grid Rule",
        "Model",
    ],
)
def test_what_describes_a_row_is_no_measurement(column):
    assert not is_measurement(column)


def test_foreign_files_travel_and_the_source_is_only_read(write, tmp_path, row):
    source = tmp_path / "src"
    write([row(1, 512, 512, "18.2", core="AI_CORE")], directory=source)
    write(
        ["1024,8,21.5"],
        name="hcom_allReduce_.csv",
        header="message_bytes,num_devices,Duration(us)",
        directory=source,
    )
    (source / "op_mapping.yaml").write_text("operator_mappings: {}\n")
    (source / "reports").mkdir()
    (source / "reports" / "run_status.json").write_text("{}")
    (source / "MatMulV2.csv.partial").write_text("half")
    before = contents(source)

    result = derive(source, tmp_path / "dst")

    assert sorted(contents(tmp_path / "dst")) == ["MatMulV2.csv", "op_mapping.yaml", "perfcollect.json"]
    assert (result.tables, result.files, result.left_out) == (
        {"MatMulV2.csv": 1},
        ("op_mapping.yaml",),
        ("hcom_allReduce_.csv",),
    )
    assert contents(source) == before


def test_the_new_database_says_what_it_is_for(write, tmp_path, row):
    write([row(1, 512, 512, "18.2", core="AI_CORE")], directory=tmp_path / "src")
    (tmp_path / "src" / "perfcollect.json").write_text(
        json.dumps({"schema": 1, "family": "ascend", "device": "ATLAS_800_A2_280T_64G"})
    )

    derive(tmp_path / "src", tmp_path / "dst", emulated=True)

    assert read_identity(tmp_path / "dst") == Identity("cpu", "CPU_X86_64", emulated=True)


def test_a_target_with_files_is_refused(write, tmp_path, row):
    write([row(1, 512, 512)], directory=tmp_path / "src")
    write([row(2, 512, 512, "18.2")], directory=tmp_path / "dst")
    before = contents(tmp_path / "dst")

    with pytest.raises(DataError) as caught:
        derive(tmp_path / "src", tmp_path / "dst")

    assert str(caught.value) == f"{tmp_path / 'dst'} exists and is not empty, expected a new directory"
    assert contents(tmp_path / "dst") == before


def test_tables_that_cannot_be_read_are_all_named_and_nothing_is_written(write, tmp_path, row):
    source = tmp_path / "src"
    write([row(1, 512, 512)], directory=source)
    write(["x"], name="Add.csv", directory=source)
    (source / "Mul.csv").write_bytes(b"")

    with pytest.raises(TableError) as caught:
        derive(source, tmp_path / "dst")

    assert str(caught.value) == (
        f"{source / 'Add.csv'} line 2: 1 cells, header has 9; {source / 'Mul.csv'} is empty, expected a header"
    )
    assert not (tmp_path / "dst").exists()


def test_a_directory_without_tables_is_no_database(tmp_path):
    with pytest.raises(DataError) as caught:
        derive(tmp_path, tmp_path / "dst")

    assert str(caught.value) == f"{tmp_path} holds no table, expected *.csv directly in it"
