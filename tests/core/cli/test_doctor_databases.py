"""`doctor` names the data root and the databases below it, with what keeps one from being used."""

from __future__ import annotations

from pathlib import Path

import pytest

from perfcollect_core.diagnosis.databases import databases
from perfcollect_core.diagnosis.findings import Finding, Scope
from perfcollect_core.tables.patch import write_table

HEADER = ("OP State", "Accelerator Core", "Input Shapes", "Input Data Types", "Average Duration(us)")
POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n"


@pytest.fixture
def root(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("PERFCOLLECT_DATA_ROOT", str(tmp_path / "data"))
    return tmp_path / "data"


def table(database: Path, name: str = "Add.csv", **cells: str) -> Path:
    database.mkdir(parents=True, exist_ok=True)
    row = {"OP State": "dynamic", "Input Shapes": '"128,7168"', "Input Data Types": "DT_BF16", **cells}
    write_table(database / name, HEADER, [row])
    return database / name


def test_a_root_that_is_not_there_is_named_with_where_it_came_from(root):
    assert list(databases(Scope())) == [
        Finding(
            "databases",
            "info",
            f"data root {root}",
            "is not there ($PERFCOLLECT_DATA_ROOT)",
            "make a database with perfcollect db init, db derive or parse, or export PERFCOLLECT_DATA_ROOT",
        )
    ]


def test_a_root_without_a_database_says_how_to_make_one(root):
    root.mkdir()

    (finding,) = databases(Scope())

    assert (finding.level, finding.message) == ("info", "holds no database ($PERFCOLLECT_DATA_ROOT)")


def test_each_database_is_named_with_what_it_holds(root):
    ascend = root / "ATLAS_800_A2_280T_64G" / "vllm_ascend" / "vllm0.18.0_torch2.9.0_cann8.5"
    table(ascend)
    table(root / "CPU_X86_64" / "torch2.13.0")

    assert [(f.level, f.subject, f.message) for f in databases(Scope())] == [
        ("ok", str(ascend), "1 tables, ascend ATLAS_800_A2_280T_64G"),
        ("ok", str(root / "CPU_X86_64" / "torch2.13.0"), "1 tables, nothing measured yet"),
    ]


def test_tables_that_are_pointers_are_found_with_what_to_run(root):
    database = root / "CPU_X86_64" / "torch2.13.0"
    table(database, "Add.csv").write_text(POINTER)
    table(database, "Mul.csv").write_text(POINTER)

    (finding,) = databases(Scope())

    assert (finding.level, finding.subject) == ("warning", str(database / "Add.csv"))
    assert finding.message.startswith("is a Git LFS pointer")
    assert finding.message.endswith("(and 1 more tables)")
    assert "git lfs pull" in finding.fix


def test_durations_of_two_families_in_one_database_are_found(root):
    database = root / "CPU_X86_64" / "torch2.13.0"
    table(database, "Add.csv", **{"Accelerator Core": "CPU", "Average Duration(us)": "3.1"})
    table(database, "Mul.csv", **{"Accelerator Core": "AI_CORE", "Average Duration(us)": "7.7"})

    (finding,) = databases(Scope())

    assert (finding.level, finding.subject) == ("warning", str(database))
    assert "AI_CORE" in finding.message
    assert finding.fix
