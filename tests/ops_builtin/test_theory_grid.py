"""The whole command on a database with one row of every installed operator."""

from __future__ import annotations

import hashlib
import json

import pytest

from perfcollect_core.cases import RunRequest
from perfcollect_core.cli import main
from perfcollect_core.discovery import plugin_index
from perfcollect_core.host import compose, read_spec
from perfcollect_core.loading import load_family, load_operator
from perfcollect_core.tables.init import init_database
from perfcollect_core.tables.read import read_table, table_paths

ARGUMENTS = [
    "--target-models",
    "deepseek-ai/DeepSeek-V3,Qwen/Qwen3-32B",
    "--rows",
    "60",
    "--seed",
    "20260409",
]


@pytest.fixture(scope="module")
def extended(tmp_path_factory):
    """The database after one grid, and what the command reported."""
    database = tmp_path_factory.mktemp("grid") / "db"
    names = [name for name in plugin_index().names("operators") if not name.startswith("hcom_")]
    init_database(database, {name: read_spec(load_operator(name)).examples[:1] for name in names})
    report = database.parent / "report.json"
    assert main(["grid", "--database-path", str(database), *ARGUMENTS, "--report", str(report)]) == 0
    return database, json.loads(report.read_text())


def test_no_generated_row_is_refused_and_slots_ranks_and_types_agree(extended):
    database, _ = extended
    family = load_family("cpu")

    for path in table_paths(database):
        host = compose(load_operator(path.stem), family)
        generated = [row for row in read_table(path).rows if row.get("Grid Rule")]
        matched = host.match_rows(host.spec(), generated, RunRequest("cpu"))
        assert [skip.reason for _, skip in matched.skips] == []
        for row in generated:
            for side in ("Input", "Output"):
                shapes, words = row.get(f"{side} Shapes").split(";"), row.get(f"{side} Data Types").split(";")
                assert len(shapes) == len(words) == len(row.get(f"{side} Formats").split(";")), row.cells


def test_every_table_stays_within_its_cap_and_says_what_was_left(extended):
    _, report = extended

    assert all(table["kept"] <= 60 for table in report["tables"])
    left = {table["table"]: table["left"] for table in report["tables"]}
    assert left["MatMulV2.csv"] > 2000
    assert left["KvRmsNormRopeCache.csv"] == 0


def test_a_second_run_changes_no_byte(extended):
    database, _ = extended
    before = {path: hashlib.sha256(path.read_bytes()).digest() for path in table_paths(database)}

    assert main(["grid", "--database-path", str(database), *ARGUMENTS]) == 0

    assert {path: hashlib.sha256(path.read_bytes()).digest() for path in table_paths(database)} == before


def test_metadata_that_a_table_lacks_gets_its_columns(extended):
    database, _ = extended

    assert {row.get("EP Size") for row in read_table(database / "DispatchFFNCombine.csv").rows} >= {
        "16",
        "256",
    }
    assert "Num Experts" in read_table(database / "MoeTokenPermute.csv").header


def test_a_table_without_the_column_of_ranks_gets_it(tmp_path):
    if not plugin_index().providers("operators", "DispatchFFNCombine"):
        pytest.skip("needs perfcollect-ops-vllm-ascend")
    example = read_spec(load_operator("DispatchFFNCombine")).examples[0]
    plain = {name: text for name, text in example.items() if not name.startswith(("EP", "Runtime"))}
    init_database(tmp_path / "db", {"DispatchFFNCombine": [plain]})

    assert main(["grid", "--database-path", str(tmp_path / "db"), *ARGUMENTS]) == 0

    table = read_table(tmp_path / "db" / "DispatchFFNCombine.csv")
    assert {bool(row.get("EP Size")) for row in table.rows if row.get("Grid Rule")} == {True}
    assert [row.get("EP Size") for row in table.rows if not row.get("Grid Rule")] == [""]
