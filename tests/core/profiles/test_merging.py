"""What a profile changes in tables that are there, and what it must leave alone."""

from __future__ import annotations

import json

import pytest

BASE = "OP State,Accelerator Core,Input Shapes,Input Data Types,Input Formats,Output Shapes,Output Data Types,Output Formats"
SHAPES = ("64,5120;64,5120", "DT_BF16;DT_BF16", "64,5120", "DT_BF16")


@pytest.fixture
def source(made, tmp_path):
    """Two calls of Add on 64 x 5120."""
    rows = [made.kernel("Add", us, *SHAPES, number=n) for n, us in enumerate(("10.0", "12.0"))]
    return made.write(tmp_path / "node-0_ascend_pt" / "ASCEND_PROFILER_OUTPUT" / "kernel_details.csv", rows)


def add_row(m, *cells, core="AI_VECTOR_CORE"):
    return ",".join(
        [f'dynamic,{core},"{m},5120;{m},5120",DT_BF16;DT_BF16,ND;ND,"{m},5120",DT_BF16,ND', *cells]
    )


def table(tmp_path, header, *rows):
    path = tmp_path / "db" / "Add.csv"
    path.parent.mkdir()
    path.write_text("\r\n".join([header, *rows]) + "\r\n", encoding="utf-8", newline="")
    return path


def test_measured_values_theory_rows_and_foreign_columns_survive(source, parse, read_rows, tmp_path):
    path = table(
        tmp_path,
        f"{BASE},Average Duration(us),Profiling Average Duration(us),Owner",
        add_row(4096, "", "", "grid"),
        add_row(64, "9.5", "99.0", "ann"),
        add_row(32, "", "7.0", "older profile"),
    )

    done = parse(source, path.parent)

    assert done.json["tables"] == [
        {"table": "Add.csv", "added": 0, "updated": 1, "unchanged": 0, "problem": ""}
    ]
    rows = {row["Owner"]: row for row in read_rows(path)}
    assert rows["ann"]["Average Duration(us)"] == "9.5"
    assert rows["ann"]["Profiling Average Duration(us)"] == "11.000000"
    assert rows["ann"]["Profiling Count"] == "2"
    assert rows["grid"]["Profiling Average Duration(us)"] == ""
    assert rows["older profile"]["Profiling Average Duration(us)"] == "7.0"


def test_a_theory_row_that_was_seen_gets_its_core(source, parse, read_rows, tmp_path):
    path = table(tmp_path, f"{BASE},Average Duration(us)", add_row(64, "", core=""))

    parse(source, path.parent)

    (row,) = read_rows(path)
    assert (row["Accelerator Core"], row["Profiling Average Duration(us)"]) == ("AI_VECTOR_CORE", "11.000000")


def test_old_counters_do_not_stay_beside_new_durations(source, parse, read_rows, tmp_path, made):
    rows = [made.kernel("Add", "10.0", *SHAPES, aiv_total_cycles="N/A")]
    path = table(
        tmp_path,
        f"{BASE},Profiling Average Duration(us),Profiling Average aiv_total_cycles",
        add_row(64, "7.0", "500.0"),
    )

    parse(made.write(tmp_path / "kernel_details.csv", rows), path.parent)

    (row,) = read_rows(path)
    assert row["Profiling Average aiv_total_cycles"] == ""


def test_new_rows_go_in_by_descending_shape(source, parse, read_rows, tmp_path):
    path = table(tmp_path, f"{BASE},Average Duration(us)", add_row(32, "3.0"), add_row(4096, "70.0"))

    parse(source, path.parent)

    assert [row["Input Shapes"].strip('"').split(",")[0] for row in read_rows(path)] == ["4096", "64", "32"]


def test_the_same_input_again_changes_no_byte(source, parse, tmp_path):
    parse(source, tmp_path / "db")
    before = {path.name: path.read_bytes() for path in (tmp_path / "db").iterdir() if path.is_file()}

    parse(source, tmp_path / "db")

    after = {path.name: path.read_bytes() for path in (tmp_path / "db").iterdir() if path.is_file()}
    assert after == before


def test_a_new_table_has_the_agreed_bytes(source, made, parse, tmp_path):
    parse(source, tmp_path / "db")

    header, row, end = (tmp_path / "db" / "Add.csv").read_bytes().decode("utf-8").split("\r\n")
    assert header.split(",") == [
        *BASE.split(","),
        *(f"Profiling {what} Duration(us)" for what in ("Average", "Median", "Std")),
        *(f"Profiling Average {counter}" for counter in made.COUNTERS),
        "Profiling Count",
    ]
    assert row.startswith(
        'dynamic,AI_VECTOR_CORE,"""64,5120;64,5120""",DT_BF16;DT_BF16,ND;ND,"""64,5120""",DT_BF16,ND,'
        "11.000000,11.000000,1.000000,0.000000,"
    )
    assert row.endswith(",2")
    assert end == ""


def test_every_spelling_of_a_key_is_refreshed(source, parse, read_rows, tmp_path):
    path = table(
        tmp_path,
        f"{BASE},Profiling Average Duration(us)",
        add_row(64, "7.0"),
        'static,AI_VECTOR_CORE,"64, 5120;64, 5120;",DT_BFLOAT16;DT_BF16,ND;ND;NULL,"64,5120",DT_BF16,ND,8.0',
    )

    parse(source, path.parent)

    assert [row["Profiling Average Duration(us)"] for row in read_rows(path)] == ["11.000000", "11.000000"]


def test_a_table_whose_keys_repeat_under_an_unknown_column_is_never_merged(source, parse, tmp_path):
    path = table(
        tmp_path, f"{BASE},Average Duration(us),Layout", add_row(64, "7.0", "TND"), add_row(64, "8.0", "BNSD")
    )
    before = path.read_bytes()

    done = parse(source, path.parent)

    assert done.code == 3
    (result,) = done.json["tables"]
    assert result["problem"] == (
        f"{path} is not merged: rows of one key differ in 'Layout', which perfcollect does not know "
        "(parse into another directory)"
    )
    assert path.read_bytes() == before


def test_replace_writes_the_table_anew(source, parse, read_rows, tmp_path):
    path = table(tmp_path, f"{BASE},Average Duration(us)", add_row(32, "3.0"))

    parse(source, path.parent, "--on-existing", "replace")

    assert [row["Input Shapes"] for row in read_rows(path)] == ['"64,5120;64,5120"']


def test_fail_stops_before_any_table_is_written(source, perfcollect, tmp_path):
    path = table(tmp_path, f"{BASE},Average Duration(us)", add_row(32, "3.0"))
    before = path.read_bytes()

    done = perfcollect(
        *("parse", "--profiling-path", source, "--database-path", path.parent, "--on-existing", "fail")
    )

    assert (done.code, done.err.splitlines()[-2:]) == (
        1,
        [
            f"error: 1 tables exist in {path.parent}, expected none of Add.csv",
            "hint: --on-existing merge keeps their rows, --on-existing replace writes them anew",
        ],
    )
    assert path.read_bytes() == before


def test_another_familys_database_is_refused(source, perfcollect, tmp_path):
    path = table(tmp_path, f"{BASE},Average Duration(us)", add_row(32, "3.0", core="CPU"))
    before = path.read_bytes()

    done = perfcollect("parse", "--profiling-path", source, "--database-path", path.parent)

    assert done.code == 1
    assert f"database {path.parent} holds cpu durations" in done.err
    assert "perfcollect db derive" in done.err
    assert path.read_bytes() == before


def test_a_new_database_says_that_it_is_for_ascend(source, parse, tmp_path):
    parse(source, tmp_path / "db", "--device", "ATLAS_800_A2_376T_64G")

    identity = json.loads((tmp_path / "db" / "perfcollect.json").read_text(encoding="utf-8"))
    assert (identity["family"], identity["device"]) == ("ascend", "ATLAS_800_A2_376T_64G")


def attention_row(made):
    slots = "64,8,128;4096,128,128;4096,128,128;;2048,2048;64;64;;;;;;;;64,32"
    dtypes = "DT_BF16;DT_BF16;DT_BF16;DT_UNDEFINED;INT8;INT64;INT64" + ";DT_UNDEFINED" * 7 + ";INT32"
    return made.kernel(
        "FusedInferAttentionScore", "50.0", slots, dtypes, "64,8,128", "DT_BF16", core="MIX_AIC"
    )


def test_attention_gets_its_runtime_columns_from_its_plugin(made, parse, read_rows, tmp_path):
    pytest.importorskip("perfcollect_ops_builtin")
    folder = tmp_path / "node-0_4100_20260409_ascend_pt" / "ASCEND_PROFILER_OUTPUT"

    parse(made.write(folder / "kernel_details.csv", [attention_row(made)]), tmp_path / "db")

    (row,) = read_rows(tmp_path / "db" / "FusedInferAttentionScore.csv")
    runtime = {
        name.removeprefix("Runtime "): text for name, text in row.items() if name.startswith("Runtime ")
    }
    assert len(runtime) == 16
    assert {name: text for name, text in runtime.items() if text} == {
        "source_profile": "node-0_4100_20260409_ascend_pt",
        "actual_seq_lengths_shape": "64",
        "actual_seq_lengths_kv_shape": "64",
        "block_table_shape": "64,32",
        "metadata_completeness": "profile_shapes_only",
    }


def test_without_the_plugin_the_standard_columns_are_written_and_a_line_says_so(
    made, parse, read_rows, tmp_path, monkeypatch
):
    from perfcollect_core.profiles import profile_columns

    class NoPlugins:
        def providers(self, group, name):
            return ()

        def names(self, group):
            return ()

    monkeypatch.setattr("perfcollect_core.discovery.plugin_index", NoPlugins)
    profile_columns.load_profile_columns.cache_clear()
    source = made.write(tmp_path / "kernel_details.csv", [attention_row(made)])

    done = parse(source, tmp_path / "db")

    profile_columns.load_profile_columns.cache_clear()
    assert done.code == 0
    assert done.json["notes"] == [
        "FusedInferAttentionScore.csv has the standard columns only: no installed distribution provides "
        "FusedInferAttentionScore"
    ]
    (row,) = read_rows(tmp_path / "db" / "FusedInferAttentionScore.csv")
    assert not [name for name in row if name.startswith("Runtime ")]


def test_rows_written_with_and_without_the_plugin_are_one(made, parse, read_rows, tmp_path, monkeypatch):
    pytest.importorskip("perfcollect_ops_builtin")
    from perfcollect_core.profiles import profile_columns
    from perfcollect_core.profiles.profile_columns import ProfileColumns

    source = made.write(tmp_path / "kernel_details.csv", [attention_row(made)])
    parse(source, tmp_path / "db")
    monkeypatch.setattr(profile_columns, "load_profile_columns", lambda operator: ProfileColumns())

    done = parse(source, tmp_path / "db")

    assert done.json["tables"][0]["unchanged"] == 1
    assert len(read_rows(tmp_path / "db" / "FusedInferAttentionScore.csv")) == 1


@pytest.mark.parametrize(
    ("types", "kept", "reason"),
    [
        (("A:B", "A_B"), ["A_B.csv"], "type 'A:B' would share the table A_B.csv with 'A_B'"),
        (("A:B", "A?B"), [], "type 'A:B' would share the table A_B.csv with 'A?B'"),
        (("Add", "ADD"), [], "type 'Add' would share the table Add.csv with 'ADD'"),
        (("CON",), [], "type 'CON' cannot be the name of a table on every system"),
        (("..",), [], "type '..' cannot be the name of a table on every system"),
    ],
)
def test_types_that_would_share_a_file_are_set_aside(made, perfcollect, tmp_path, types, kept, reason):
    rows = [made.kernel(name, "10.0", *SHAPES, number=n) for n, name in enumerate(types)]
    rows.append(made.kernel("Mul", "3.0", *SHAPES, number=9))
    source = made.write(tmp_path / "kernel_details.csv", rows)
    report = tmp_path / "report.json"

    done = perfcollect(
        *("parse", "--profiling-path", source, "--database-path", tmp_path / "db", "--report", report)
    )

    assert done.code == 0
    (account,) = json.loads(report.read_text(encoding="utf-8"))["files"]
    aside = {entry["reason"]: entry["lines"] for entry in account["set_aside"]}
    assert aside[reason] == [2]
    assert account["adds_up"]
    assert sorted(path.name for path in (tmp_path / "db").glob("*.csv")) == [*kept, "Mul.csv"]


def test_a_call_without_dtypes_joins_its_only_known_sibling(made, parse, read_rows, tmp_path):
    blank = {"Input Data Types": "", "Input Formats": ""}
    rows = [
        made.kernel("Add", "20.0", *SHAPES, number=0, **blank),
        made.kernel("Add", "10.0", *SHAPES, number=1),
        made.kernel("Mul", "30.0", *SHAPES, number=2, **blank),
        made.kernel("Cast", "2.0", "8", "DT_BF16", "8", "FLOAT", number=3),
        made.kernel("Cast", "4.0", "8", "INT8", "8", "FLOAT", number=4),
        made.kernel("Cast", "6.0", "8", "", "8", "FLOAT", number=5),
    ]

    done = parse(made.write(tmp_path / "kernel_details.csv", rows), tmp_path / "db")

    (row,) = read_rows(tmp_path / "db" / "Add.csv")
    assert (row["Profiling Count"], row["Profiling Average Duration(us)"]) == ("2", "15.000000")
    assert row["Input Data Types"] == "DT_BF16;DT_BF16"
    (account,) = done.json["files"]
    assert [(entry["reason"], entry["lines"]) for entry in account["set_aside"]] == [
        ("dtypes or formats are blank, and no row that has them would fit", [4]),
        ("dtypes or formats are blank, and several rows that differ in them would fit", [7]),
    ]
    assert account["adds_up"]


def test_a_report_that_cannot_be_written_costs_no_table(source, perfcollect, tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("", encoding="utf-8")
    report = blocked / "below" / "report.md"

    done = perfcollect(
        "parse", "--profiling-path", source, "--database-path", tmp_path / "db", "--report", report
    )

    assert done.code == 1
    assert done.err.splitlines()[-2:] == [
        f"error: report {report} cannot be written: Not a directory; the tables are written and whole",
        "hint: name another file with --report and run the same command again",
    ]
    assert (tmp_path / "db" / "Add.csv").exists()


def test_a_markdown_report_lists_every_line_that_was_set_aside(made, perfcollect, tmp_path):
    rows = [made.kernel("Add", us, *SHAPES, number=n) for n, us in enumerate(("10.0", "N/A", "nan"))]
    source = made.write(tmp_path / "kernel_details.csv", rows)
    report = tmp_path / "report.md"

    perfcollect("parse", "--profiling-path", source, "--database-path", tmp_path / "db", "--report", report)

    text = report.read_text(encoding="utf-8")
    assert "3 rows, 1 used, 2 set aside, 0 apart; kernel time 10.000 us = 10.000 used" in text
    assert "| duration is N/A | 3 | N/A |\n| duration is not finite | 4 | nan |\n" in text
    assert "| Add.csv | 1 | 0 | 0 |  |" in text
