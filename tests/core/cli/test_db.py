"""``perfcollect db``: what each command prints and which exit code it ends with."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import platform

import pytest

from perfcollect_core.cli import main
from perfcollect_core.runner.journal import JOURNAL_NAME, Journal
from perfcollect_core.runner.protocol import encode_row
from perfcollect_core.tables.read import read_table

HEADER = (
    "OP State,Accelerator Core,Input Shapes,Input Data Types,Input Formats,"
    "Output Shapes,Output Data Types,Output Formats,Average Duration(us)"
)
EXAMPLES = """
from perfcollect_core import OperatorSpec

def perfcollect_operator_spec(operator):
    row = {
        "Input Shapes": "136,5120;136,5120", "Input Data Types": "DT_BF16;DT_BF16", "Input Formats": "ND;ND",
        "Output Shapes": "136,5120", "Output Data Types": "DT_BF16", "Output Formats": "ND",
        "Average Duration(us)": "9.9", "Accelerator Core": "AI_VECTOR_CORE", "EP Size": "16",
    }
    larger = {**row, "Input Shapes": "4096,5120;4096,5120", "Output Shapes": "4096,5120"}
    return OperatorSpec(name=operator, examples=() if operator == "Bare" else (row, larger))

def perfcollect_bind_kernel(case, inputs, device):
    return None
"""


def matmul(m: int, average: str = "", core: str = "CPU") -> str:
    return f'dynamic,{core},"{m},512;512,512",DT_BF16;DT_BF16,ND;ND,"{m},512",DT_BF16,ND,{average}'


@pytest.fixture
def database(tmp_path):
    """An Ascend database of two rows, one of them measured."""
    directory = tmp_path / "ascend"
    directory.mkdir()
    rows = [matmul(16, "61.0", "AI_CORE"), matmul(32, core="AI_CORE")]
    (directory / "MatMulV2.csv").write_bytes("".join(f"{line}\r\n" for line in (HEADER, *rows)).encode())
    return directory


@pytest.fixture
def operators(fake_distribution):
    """Operators ``Sum`` and ``Bare``, the second without example rows."""
    fake_distribution(
        "ops-tiny", operators={"Sum": "ops_tiny", "Bare": "ops_tiny"}, files={"ops_tiny.py": EXAMPLES}
    )


def test_info_says_what_a_database_holds_and_what_is_measured(database, capsys):
    assert main(["db", "info", str(database)]) == 0

    assert capsys.readouterr().out.splitlines() == [
        f"{database}: ascend durations (known from rows)",
        "Table         Rows  Measured  Average  Profiling",
        "MatMulV2.csv     2         1        1          0",
        "note: op_mapping.yaml is missing: TensorCast treats every operator as unmapped",
    ]


def test_info_is_there_for_programs(database, capsys):
    main(["db", "info", str(database), "--format", "json"])

    assert json.loads(capsys.readouterr().out)["tables"] == [
        {"name": "MatMulV2.csv", "rows": 2, "measured": 1, "average": 1, "profiling": 0, "problem": ""}
    ]


@pytest.mark.parametrize(
    ("mapping", "note"),
    [
        ("Add: {kernel_type: Add}\n", "names no table that is here: TensorCast opens none of the 1"),
        ("", "is empty: TensorCast stops on it"),
    ],
)
def test_info_notes_a_mapping_that_is_of_no_use(database, capsys, mapping, note):
    (database / "op_mapping.yaml").write_text(mapping)

    main(["db", "info", str(database)])

    assert capsys.readouterr().out.splitlines()[-1] == f"note: op_mapping.yaml {note}"


def test_info_has_nothing_to_note_where_the_mapping_names_every_table(database, capsys):
    (database / "op_mapping.yaml").write_text("aten.mm.default:\n  kernel_type: MatMulV2\n")

    main(["db", "info", str(database)])

    assert "note: " not in capsys.readouterr().out


def test_info_counts_tables_that_cannot_be_read(database, capsys):
    (database / "Add.csv").write_bytes(b"")

    assert main(["db", "info", str(database)]) == 0
    assert (
        "Add.csv          -         -        -          -  is empty, expected a header"
        in capsys.readouterr().out
    )


def test_info_of_a_missing_directory_is_an_error(tmp_path, capsys):
    assert main(["db", "info", str(tmp_path / "gone")]) == 1
    assert capsys.readouterr().err.splitlines() == [
        f"error: database {tmp_path / 'gone'} cannot be read: No such file or directory",
        "hint: name the directory that holds the tables with --database-path",
    ]


def test_check_of_a_sound_database_exits_0(database, capsys):
    assert main(["db", "check", str(database)]) == 0
    assert capsys.readouterr().out == f"{database}: nothing found\n"


def test_check_lists_torn_lines_and_exits_1_and_changes_nothing(database, capsys):
    table = database / "MatMulV2.csv"
    table.write_bytes(table.read_bytes() + f"{matmul(64, '310.2,1650,21.5,')}\r\n{HEADER}\r\n".encode())
    before = hashlib.sha256(table.read_bytes()).hexdigest()

    assert main(["db", "check", str(database)]) == 1

    assert capsys.readouterr().out.splitlines() == [
        "MatMulV2.csv line 4: 12 cells, header has 9",
        "MatMulV2.csv line 5: header repeated",
        f"{database}: 2 findings",
    ]
    assert hashlib.sha256(table.read_bytes()).hexdigest() == before


def test_check_is_there_for_programs(database, capsys):
    (database / "Add.csv").write_bytes(b"")

    assert main(["db", "check", str(database), "--format", "json"]) == 1
    assert json.loads(capsys.readouterr().out) == [
        {
            "table": "Add.csv",
            "kind": "unreadable",
            "message": "is empty, expected a header (restore the file; an empty table has its header line)",
            "line": None,
        }
    ]


def test_list_shows_databases_in_version_order_and_marks_variants(tmp_path, capsys):
    for name in (
        "vllm0.9.1_torch2.7.1_cann8.2",
        "vllm0.18.0_torch2.9.0_cann8.10",
        "vllm0.18.0_torch2.9.0_cann8.5_shape_generated",
        "vllm0.18.0rc1_torch2.9.0_cann8.5",
    ):
        (tmp_path / "ATLAS_800_A3_752T_128G_DIE" / "vllm_ascend" / name).mkdir(parents=True)

    assert main(["db", "list", str(tmp_path)]) == 0

    rows = [line.split() for line in capsys.readouterr().out.splitlines()[1:]]
    assert [row[1:] for row in rows] == [
        ["vllm0.9.1_torch2.7.1_cann8.2", "0"],
        ["vllm0.18.0rc1_torch2.9.0_cann8.5", "0"],
        ["vllm0.18.0_torch2.9.0_cann8.5_shape_generated", "0", "variant", "shape_generated"],
        ["vllm0.18.0_torch2.9.0_cann8.10", "0"],
    ]


def test_list_without_a_root_uses_the_data_root(tmp_path, monkeypatch, capsys):
    (tmp_path / "CPU_X86_64" / "torch2.13.0").mkdir(parents=True)
    monkeypatch.setenv("PERFCOLLECT_DATA_ROOT", str(tmp_path))

    main(["db", "list", "--format", "json"])

    assert [entry["name"] for entry in json.loads(capsys.readouterr().out)] == ["torch2.13.0"]


def test_derive_copies_the_rows_for_another_device(database, tmp_path, capsys):
    target = tmp_path / "cpu"

    assert main(["db", "derive", str(database), str(target), "--device", "CPU_AARCH64"]) == 0

    assert capsys.readouterr().out == f"{target}: 2 rows in 1 table for CPU_AARCH64\n"
    assert (target / "MatMulV2.csv").read_bytes().splitlines()[1] == matmul(16, core="").encode()
    assert json.loads((target / "perfcollect.json").read_text())["family"] == "cpu"


def test_derive_marks_an_emulated_database(database, tmp_path, capsys):
    target = tmp_path / "emulated"

    main(["db", "derive", str(database), str(target), "--device", "ATLAS_800_A3_752T_128G_DIE", "--emulated"])

    identity = json.loads((target / "perfcollect.json").read_text())
    assert (identity["family"], identity["emulated"]) == ("ascend", True)


def test_derive_is_for_this_machines_cpu_by_default(database, tmp_path):
    if importlib.util.find_spec("torch") is None:
        pytest.skip("the CPU is a device where torch is installed")

    main(["db", "derive", str(database), str(tmp_path / "cpu")])

    device = json.loads((tmp_path / "cpu" / "perfcollect.json").read_text())["device"]
    assert device == f"CPU_{platform.machine().upper().replace('-', '_')}"


@pytest.mark.parametrize(
    ("device", "message"),
    [
        ("TPU_V5", "--device 'TPU_V5' belongs to no installed device family"),
        ("ATLAS_900", "--device 'ATLAS_900' is no device name"),
        ("../CPU", "--device '../CPU' is no device name"),
    ],
)
def test_derive_refuses_a_device_of_no_family(database, tmp_path, capsys, device, message):
    assert main(["db", "derive", str(database), str(tmp_path / "new"), "--device", device]) == 2
    assert capsys.readouterr().err.startswith(f"error: {message}")
    assert not (tmp_path / "new").exists()


def test_derive_says_which_tables_it_leaves_out(database, tmp_path, capsys):
    (database / "hcom_allReduce_.csv").write_text("message_bytes,num_devices,Duration(us)\n1024,8,21.5\n")

    main(["db", "derive", str(database), str(tmp_path / "cpu"), "--device", "CPU_X86_64"])

    assert capsys.readouterr().err == (
        "not copied, measured by one backend only: hcom_allReduce_.csv; see perfcollect comm run\n"
    )


def test_init_makes_tables_of_example_rows_without_durations(operators, tmp_path, capsys):
    assert main(["db", "init", str(tmp_path / "db"), "--ops", "Sum"]) == 0

    assert capsys.readouterr().out == f"{tmp_path / 'db'}: Sum.csv (2 rows)\n"
    shape = "DT_BF16;DT_BF16,ND;ND"
    assert (tmp_path / "db" / "Sum.csv").read_bytes() == (
        f"{HEADER},EP Size\r\n"
        f'dynamic,,"""4096,5120;4096,5120""",{shape},"""4096,5120""",DT_BF16,ND,,16\r\n'
        f'dynamic,,"""136,5120;136,5120""",{shape},"""136,5120""",DT_BF16,ND,,16\r\n'
    ).encode()


def test_init_never_touches_a_table_that_is_there(operators, tmp_path, capsys):
    main(["db", "init", str(tmp_path / "db"), "--ops", "Sum"])
    before = (tmp_path / "db" / "Sum.csv").stat().st_mtime_ns
    capsys.readouterr()

    assert main(["db", "init", str(tmp_path / "db"), "--ops", "Sum"]) == 1
    assert capsys.readouterr().err.splitlines() == [
        f"error: {tmp_path / 'db' / 'Sum.csv'} already exists, expected no table of that operator",
        "hint: init only makes new tables; leave the operator out",
    ]
    assert (tmp_path / "db" / "Sum.csv").stat().st_mtime_ns == before


def test_init_refuses_an_operator_without_examples_before_making_anything(operators, tmp_path, capsys):
    assert main(["db", "init", str(tmp_path / "db"), "--ops", "Sum", "Bare"]) == 1
    assert capsys.readouterr().err.splitlines()[0] == "error: operator 'Bare' has no example rows"
    assert not (tmp_path / "db").exists()


def test_init_of_an_unknown_operator_is_an_error(tmp_path, capsys):
    assert main(["db", "init", str(tmp_path / "db"), "--ops", "NoSuchKernel"]) == 1
    assert not (tmp_path / "db").exists()


def test_apply_writes_a_journal_back_into_its_database(database, tmp_path, capsys):
    row = read_table(database / "MatMulV2.csv").rows[1]
    run = Journal(tmp_path / "run" / JOURNAL_NAME)
    run.append(
        {"kind": "run", "database": str(database), "family": "ascend", "devices": [[0, "Ascend910B3"]]}
    )
    run.append(
        {"kind": "measured", "row": encode_row(row.ref), "cells": {"Average Duration(us)": "70.500000"}}
    )
    run.close()

    assert main(["db", "apply", str(tmp_path / "run")]) == 0

    assert capsys.readouterr().out == f"{database}: 1 rows updated, 0 unchanged\n"
    table = (database / "MatMulV2.csv").read_text().splitlines()
    assert table[1:] == [matmul(16, "61.0", "AI_CORE"), matmul(32, "70.500000", "AI_CORE")]


def test_apply_without_a_journal_is_an_error(tmp_path, capsys):
    assert main(["db", "apply", str(tmp_path)]) == 1
    assert capsys.readouterr().err.splitlines()[0] == (
        f"error: journal {tmp_path / 'journal.jsonl'} cannot be read: no such file or directory"
    )
