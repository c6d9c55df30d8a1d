"""``perfcollect grid`` and what ``perfcollect db check`` says of its rows."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import time

import pytest

from perfcollect_core.cli import main
from perfcollect_core.tables.read import read_table

HEADER = (
    "OP State,Accelerator Core,Input Shapes,Input Data Types,Input Formats,"
    "Output Shapes,Output Data Types,Output Formats,Average Duration(us),Runtime attn_state"
)
ROW = 'dynamic,AI_VECTOR_CORE,"""136,5120""",DT_BF16,ND,"""136,5120""",DT_BF16,ND,12.500000,2'
OPERATOR = """
from perfcollect_core import Axis, GridRequest, OperatorSpec, Skip, Slot, default_case
from perfcollect_core.grid.axes import TOKENS, dim
from perfcollect_core.grid.projections import hidden_widths
from perfcollect_core.grid.rules import token_width_axes, tokens_by_width
from perfcollect_core.grid.theory import find_forms, form

def perfcollect_operator_spec(operator):
    return OperatorSpec(name=operator, inputs=(Slot("x"),), axes=token_width_axes())

def perfcollect_make_case(spec, row):
    made = default_case(spec, row)
    if spec.name == "Picky" and made.tensors["x"].shape[0] == 64:
        return Skip.invalid("64 tokens are refused by 1 kernel")
    return made

def perfcollect_generate_rows(spec, templates, request):
    forms = find_forms(templates, form("DT_BF16", "DT_BF16"))
    same = lambda t, d, one: (((t, d),), ((t, d),))
    yield from tokens_by_width(
        request, forms, same, rule="halve", asked=hidden_widths(request), widths=(128, 5120)
    )

def perfcollect_bind_kernel(case, inputs, device):
    return None
"""
BARE = """
from perfcollect_core import OperatorSpec

def perfcollect_operator_spec(operator):
    return OperatorSpec(name=operator)

def perfcollect_bind_kernel(case, inputs, device):
    return None
"""


PLAIN = """
from perfcollect_core import OperatorSpec

def perfcollect_operator_spec(operator):
    return OperatorSpec(name=operator)

def perfcollect_generate_rows(spec, templates, request):
    for tokens in (4, 16):
        yield {
            "Input Shapes": f'"{tokens},8"', "Input Data Types": "INT8", "Input Formats": "ND",
            "Output Shapes": f'"{tokens},8"', "Output Data Types": "INT8", "Output Formats": "ND",
            "Runtime phase": "decode", "Grid Rule": "by hand",
        }

def perfcollect_bind_kernel(case, inputs, device):
    return None
"""


@pytest.fixture(autouse=True)
def operators(fake_distribution):
    """Operators with a rule of 13 token counts by two widths, and one without a rule."""
    fake_distribution(
        "ops-halve",
        operators={"Halve": "ops_halve", "Picky": "ops_halve", "Bare": "ops_bare", "Plain": "ops_plain"},
        files={"ops_halve.py": OPERATOR, "ops_bare.py": BARE, "ops_plain.py": PLAIN},
    )


@pytest.fixture
def database(tmp_path):
    """A database with one profiled row in each of two tables, and files that are none of ours."""
    directory = tmp_path / "db"
    directory.mkdir()
    for name in ("Halve", "Picky"):
        (directory / f"{name}.csv").write_bytes(f"{HEADER}\r\n{ROW}\r\n".encode())
    (directory / "op_mapping.yaml").write_text("mappings: []\n")
    return directory


def run(database, *arguments):
    return main(["grid", "--database-path", str(database), *arguments])


def hashes(directory):
    return {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(directory.iterdir())
        if path.is_file() and not path.name.startswith(".perfcollect")
    }


def error_of(capsys):
    return capsys.readouterr().err.strip().splitlines()


def test_rows_are_added_with_zero_durations_and_the_profiled_row_keeps_its_text(database):
    assert run(database, "--rows", "0") == 0

    lines = (database / "Halve.csv").read_bytes().split(b"\r\n")
    assert lines[0].decode() == f"{HEADER},Grid Rule"
    assert f"{ROW}," in [line.decode() for line in lines]
    generated = [row for row in read_table(database / "Halve.csv").rows if row.get("Grid Rule")]
    assert len(generated) == 26
    assert {(row.get("Average Duration(us)"), row.get("Accelerator Core")) for row in generated} == {
        ("0", "")
    }
    # A column whose name merely contains "time" is metadata, not a duration.
    assert {row.get("Runtime attn_state") for row in generated} == {""}


def test_the_file_ends_in_consumer_order(database):
    run(database, "--rows", "0")

    shapes = [
        tuple(map(int, row.get("Output Shapes").split(",")))
        for row in read_table(database / "Halve.csv").rows
    ]
    assert shapes == sorted(shapes, reverse=True)


def test_a_second_run_changes_no_byte(database):
    run(database, "--rows", "9", "--seed", "4")
    before = hashes(database)

    assert run(database, "--rows", "9", "--seed", "4") == 0

    assert hashes(database) == before


def test_the_cap_counts_generated_rows_and_not_profiled_ones(database):
    run(database, "--rows", "9")

    assert len(read_table(database / "Halve.csv").rows) == 10


def test_rows_the_operator_refuses_are_replaced_and_counted(database, capsys):
    assert run(database, "--rows", "24", "--ops", "Picky", "--format", "json") == 0

    (table,) = json.loads(capsys.readouterr().out)["tables"]
    assert (table["kept"], table["dropped"]) == (
        24,
        {"refused by Picky: # tokens are refused by # kernel": 2},
    )


def test_a_dry_run_reports_the_same_and_writes_nothing(database, capsys):
    before = hashes(database)
    run(database, "--dry-run", "--format", "json")
    dry = json.loads(capsys.readouterr().out)
    assert hashes(database) == before

    run(database, "--format", "json")
    real = json.loads(capsys.readouterr().out)

    assert [t["kept"] for t in dry["tables"]] == [t["kept"] for t in real["tables"]] == [26, 24]
    assert (dry["dry_run"], real["dry_run"]) == (True, False)


def test_out_extends_a_copy_with_the_foreign_files_and_leaves_the_source_alone(database, tmp_path):
    before = hashes(database)

    assert run(database, "--out", str(tmp_path / "new")) == 0

    assert hashes(database) == before
    assert sorted(hashes(tmp_path / "new")) == ["Halve.csv", "Picky.csv", "op_mapping.yaml"]
    assert len(read_table(tmp_path / "new" / "Halve.csv").rows) == 27


def test_out_never_writes_into_a_directory_that_holds_something(database, tmp_path, capsys):
    assert run(database, "--out", str(database)) == 1

    assert error_of(capsys)[0] == f"error: {database} exists and is not empty, expected a new directory"


def test_a_named_table_that_is_absent_is_made_from_its_rule(tmp_path):
    (tmp_path / "empty").mkdir()

    assert run(tmp_path / "empty", "--ops", "Halve", "--rows", "0") == 0

    table = read_table(tmp_path / "empty" / "Halve.csv")
    assert len(table.rows) == 26
    assert table.header[-1] == "Grid Rule"


def test_a_rule_may_give_its_rows_by_column(tmp_path):
    (tmp_path / "empty").mkdir()

    assert run(tmp_path / "empty", "--ops", "Plain") == 0

    rows = read_table(tmp_path / "empty" / "Plain.csv").rows
    assert [(row.get("Input Shapes"), row.get("Runtime phase"), row.get("Grid Rule")) for row in rows] == [
        ("16,8", "decode", "by hand"), ("4,8", "decode", "by hand"),
    ]  # fmt: skip


def test_a_database_of_another_family_is_extended_where_it_is_named(database):
    text = (database / "Halve.csv").read_text().replace("AI_VECTOR_CORE", "CPU")
    (database / "Halve.csv").write_text(text, newline="")
    (database / "Picky.csv").unlink()

    assert run(database, "--rows", "3") == 0

    assert len(read_table(database / "Halve.csv").rows) == 4


def test_kernels_that_no_operator_replays_are_generated_only_by_name_and_marked(database):
    (database / "Mul.csv").write_bytes((database / "Halve.csv").read_bytes())
    run(database)
    assert len(read_table(database / "Mul.csv").rows) == 1

    run(database, "--ops", "Mul", "--rows", "0")

    rules = {row.get("Grid Rule") for row in read_table(database / "Mul.csv").rows}
    assert rules == {"", "elementwise_binary (not replayable)"}


def test_the_report_says_what_the_cap_left_and_how_coverage_changed(database, tmp_path, capsys):
    run(database, "--rows", "15", "--ops", "Halve", "--report", str(tmp_path / "r.md"))

    out = capsys.readouterr().out
    assert "Halve.csv: 26 candidates, 15 added, 11 left by the cap" in out
    assert "the cap leaves 1 of 2 curves incomplete" in out
    assert "coverage of tokens: required values 0 to 2 of 2, compliant buckets 0 to 1 of 2" in out
    markdown = (tmp_path / "r.md").read_text()
    assert "| Halve.csv | 26 | 0 | 15 | 11 | - | 1 of 2 |" in markdown
    assert "- Halve.csv, tokens: required values 0 to 2 of 2, compliant buckets 0 to 1 of 2" in markdown


def test_models_add_their_widths_and_an_unknown_one_changes_nothing(database, capsys):
    before = hashes(database)
    assert run(database, "--target-models", "acme/none") == 2
    assert error_of(capsys)[0] == "error: model 'acme/none' is not in the model table"
    assert hashes(database) == before

    run(database, "--target-models", "deepseek-ai/DeepSeek-V3", "--rows", "0")

    rules = {row.get("Grid Rule") for row in read_table(database / "Halve.csv").rows}
    assert rules == {"", "halve grid", "halve model width"}


def test_a_degree_that_does_not_divide_the_heads_is_noted(database, capsys):
    run(database, "--target-models", "Qwen/Qwen3-32B", "--tp", "3", "--dry-run")

    assert (
        "note: Qwen/Qwen3-32B: tp 3 does not divide its 64 heads: no rows of its attention"
        in capsys.readouterr().out
    )


def test_a_budget_leaves_out_rows_that_need_more(database, capsys):
    run(database, "--rows", "0", "--max-hbm-gb", "0.5", "--ops", "Halve", "--format", "json")

    (table,) = json.loads(capsys.readouterr().out)["tables"]
    assert table["dropped"] == {"needs more than --max-hbm-gb": 1}


def test_no_target_is_a_usage_error_and_never_a_walk_through_the_data_root(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("PERFCOLLECT_DATA_ROOT", str(tmp_path))

    code = main(["grid"])

    assert code == 2
    assert "the vLLM-Ascend version is neither given nor detected" in error_of(capsys)[0]


POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:" + "0" * 64 + "\nsize 16400\n"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (POINTER, "is a Git LFS pointer"),
        (f"{HEADER}\r\n{ROW}\r\ndynamic,x\r\n", "line 3: 2 cells, header has 10"),
        ("", "is empty, expected a header"),
        (HEADER.replace("Input Shapes,", "") + "\r\n", "no column 'Input Shapes'"),
    ],
)
def test_a_table_that_cannot_be_read_ends_in_a_sentence_and_changes_nothing(
    database, capsys, content, message
):
    (database / "Picky.csv").write_text(content, newline="")
    before = hashes(database)

    assert run(database) == 1

    first = error_of(capsys)[0]
    assert first.startswith(f"error: {database / 'Picky.csv'}")
    assert message in first
    assert hashes(database) == before
    # Not even a lock is left where nothing was to be written.
    assert not list(database.glob(".perfcollect*"))


def test_every_table_that_cannot_be_read_is_named(database, capsys):
    for name in ("Halve", "Picky"):
        (database / f"{name}.csv").write_text(POINTER)

    assert run(database) == 1

    first = error_of(capsys)[0]
    assert first.startswith("error: 2 tables cannot be read: ")
    assert "Halve.csv" in first
    assert "Picky.csv" in first
    assert "16400 bytes" in first


def test_a_heading_alone_is_left_alone_unless_it_is_named(database, capsys):
    (database / "Halve.csv").write_bytes(f"{HEADER}\r\n".encode())
    before = hashes(database)["Halve.csv"]

    assert run(database) == 0
    assert (
        "Halve.csv: has a header and no row; --ops Halve fills it from the operator's rule"
        in capsys.readouterr().out
    )
    assert hashes(database)["Halve.csv"] == before

    run(database, "--ops", "Halve", "--rows", "0")
    assert len(read_table(database / "Halve.csv").rows) == 26


def test_a_read_only_table_ends_in_a_sentence_and_changes_nothing(database, capsys):
    (database / "Picky.csv").chmod(0o444)
    before = hashes(database)

    assert run(database) == 1

    assert error_of(capsys)[0] == f"error: {database / 'Picky.csv'} cannot be written: read-only"
    assert hashes(database) == before


def test_a_rule_that_fails_changes_nothing(database, fake_distribution, capsys):
    broken = OPERATOR.replace(
        "    forms = find_forms", "    raise RuntimeError('no')\n    forms = find_forms"
    )
    fake_distribution("ops-zz", operators={"Zz": "ops_zz"}, files={"ops_zz.py": broken})
    (database / "Zz.csv").write_bytes((database / "Halve.csv").read_bytes())
    before = hashes(database)

    assert run(database) != 0

    assert hashes(database) == before
    assert not list(database.glob("*.partial"))


def test_an_operator_without_a_rule_and_a_file_without_an_operator_are_listed(database, capsys):
    for name in ("Bare", "Foreign"):
        (database / f"{name}.csv").write_bytes((database / "Halve.csv").read_bytes())

    assert run(database) == 0

    out = capsys.readouterr().out
    assert "Bare.csv: 0 candidates, 0 added" in out
    assert "Foreign.csv: no rule: no operator of that name is installed" in out


def test_negative_rows_are_refused(database, capsys):
    assert run(database, "--rows", "-1") == 2

    assert error_of(capsys)[0] == "error: --rows is -1, expected a number of rows, or 0 for all of them"


COMMAND = "import sys; from perfcollect_core.cli import main; sys.exit(main(sys.argv[1:]))"


def start(database, environment=None, *arguments):
    path = os.pathsep.join(p for p in sys.path if p)
    return subprocess.Popen(
        [sys.executable, "-c", COMMAND, "grid", "--database-path", str(database), *arguments],
        env={**os.environ, "PYTHONPATH": path, **(environment or {})},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def test_hash_seeds_and_locales_change_no_byte(database, tmp_path):
    import shutil

    copies = []
    for index, environment in enumerate(
        ({"PYTHONHASHSEED": "1", "LC_ALL": "C"}, {"PYTHONHASHSEED": "99", "LC_ALL": "C.UTF-8"})
    ):
        copy = tmp_path / f"copy{index}"
        # Another order of creation is another order of listing on many file systems.
        copy.mkdir()
        for path in sorted(database.iterdir(), reverse=bool(index)):
            shutil.copyfile(path, copy / path.name)
        process = start(copy, environment, "--rows", "15", "--seed", "20260409")
        assert process.wait(60) == 0
        copies.append(hashes(copy))

    assert copies[0] == copies[1]


def test_a_run_killed_before_it_decided_leaves_every_table_as_it_was(database, fake_distribution):
    slow = OPERATOR.replace(
        "    forms = find_forms", "    import time; time.sleep(30)\n    forms = find_forms"
    )
    fake_distribution("ops-zz", operators={"Zz": "ops_zz"}, files={"ops_zz.py": slow})
    (database / "Zz.csv").write_bytes((database / "Halve.csv").read_bytes())
    before = hashes(database)

    process = start(database)
    deadline = time.monotonic() + 30
    while not (database / "Picky.csv.partial").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.wait(10)

    tables = {name: digest for name, digest in hashes(database).items() if not name.endswith(".partial")}
    assert tables == before
    run(database, "--ops", "Halve")
    assert not list(database.glob("*.partial"))


def test_density_holds_for_the_whole_grid_and_names_what_is_removed(database, capsys):
    run(database, "--rows", "0", "--ops", "Halve")
    (database / "Picky.csv").unlink()
    capsys.readouterr()
    lines = (database / "Halve.csv").read_text().splitlines(keepends=True)
    kept = [line for line in lines if '"512,5120"' not in line]
    assert len(kept) == len(lines) - 1
    (database / "Halve.csv").write_text("".join(kept), newline="")

    code = main(["db", "check", str(database), "--density"])

    assert code == 1
    assert "Halve.csv: axis tokens: D=5120: hole 256 to 1024 (ratio at most 2)" in capsys.readouterr().out


def test_a_manifest_is_written_once_and_each_query_is_answered(database, tmp_path, capsys):
    manifest = tmp_path / "q.jsonl"
    asked = [
        "grid",
        "--queries-for",
        "deepseek-ai/DeepSeek-V3",
        "--batch",
        "4",
        "--seq",
        "16",
        "--queries-out",
    ]
    assert main([*asked, str(manifest)]) == 0
    written = manifest.read_text()
    ours = "".join(line + "\n" for line in written.splitlines() if '"kernel": "Halve"' in line)
    assert ours.count("\n") == 2
    manifest.write_text(ours)

    run(database, "--rows", "1", "--queries", str(manifest), "--ops", "Halve")
    capsys.readouterr()
    code = main(["db", "check", str(database), "--queries", str(manifest)])

    out = capsys.readouterr().out
    # One of two critical queries fits under the cap.
    assert code == 1
    assert "2 queries, 1 exact, 0 interpolable, 1 missing; by measured rows 0 exact" in out


def test_a_query_between_two_rows_of_its_bucket_is_interpolable(database, tmp_path, capsys):
    run(database, "--rows", "0", "--ops", "Halve")
    cells = {
        "Input Shapes": '"100,5120"', "Input Data Types": "DT_BF16", "Input Formats": "ND",
        "Output Shapes": '"100,5120"', "Output Data Types": "DT_BF16", "Output Formats": "ND",
    }  # fmt: skip
    line = {"workload_id": "w", "critical": False, "query": {"kernel": "Halve", "cells": cells}}
    (tmp_path / "q.jsonl").write_text(json.dumps(line) + "\n")
    (database / "Picky.csv").unlink()
    capsys.readouterr()

    code = main(["db", "check", str(database), "--queries", str(tmp_path / "q.jsonl")])

    assert "w: Halve 100,5120: interpolable, measured rows: missing" in capsys.readouterr().out
    assert code == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--queries-for", "Qwen/Qwen3-32B"], "--queries-for needs --batch, --seq and --queries-out"),
        (["--batch", "4"], "--batch, --seq and --queries-out go with --queries-for"),
        (["--tp", "0"], "--tp has '0', expected whole numbers above 0"),
    ],
)
def test_options_that_do_not_go_together_are_refused(database, capsys, arguments, message):
    assert run(database, *arguments) == 2

    assert error_of(capsys)[0] == f"error: {message}"


def test_a_line_that_is_no_query_is_named(database, tmp_path, capsys):
    (tmp_path / "q.jsonl").write_text('{"workload_id": "w"}\n')

    assert main(["db", "check", str(database), "--queries", str(tmp_path / "q.jsonl")]) == 1

    assert f"queries {tmp_path / 'q.jsonl'} line 1: " in error_of(capsys)[0]
