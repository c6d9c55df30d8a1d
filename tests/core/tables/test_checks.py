"""Checking a database: everything that is wrong, with physical lines, without stopping."""

from __future__ import annotations

from perfcollect_core.tables.checks import Finding, check_database
from perfcollect_core.tables.identity import adopt_identity


def found(database):
    return [(f.table, f.kind, f.line, f.message) for f in check_database(database)]


def test_a_sound_database_has_no_finding(write, tmp_path, row):
    write([row(1, 512, 512, "18.2"), row(2, 512, 512)], bom=True)
    write(
        ["1024,8,2.5,gloo"],
        name="hcom_allReduce_.csv",
        header="message_bytes,num_devices,Duration(us),Backend",
    )

    assert found(tmp_path) == []


def test_torn_rows_and_repeated_headers_of_every_table_are_listed(write, tmp_path, base, row):
    header = f"{base},Average Duration(us)"
    write([row(1, 512, 512), row(64, 512, 512, "310.2,1650,21.5,"), header, row(2, 512, 512)])
    write(["short", row(1, 512, 512), "dynamic,CPU"], name="Add.csv")

    assert found(tmp_path) == [
        ("Add.csv", "torn", 2, "1 cells, header has 9"),
        ("Add.csv", "torn", 4, "2 cells, header has 9"),
        ("MatMulV2.csv", "torn", 3, "12 cells, header has 9"),
        ("MatMulV2.csv", "torn", 4, "header repeated"),
    ]


def test_files_that_are_no_tables_are_listed_and_the_others_checked(write, tmp_path, row):
    write([row(1, 512, 512), row(1, 512, 512)])
    (tmp_path / "Add.csv").write_bytes(
        b"version https://git-lfs.github.com/spec/v1\r\noid sha256:" + b"5" * 64 + b"\r\nsize 16400\r\n"
    )

    assert [(table, kind) for table, kind, _, _ in found(tmp_path)] == [
        ("Add.csv", "unreadable"),
        ("MatMulV2.csv", "duplicate"),
    ]
    assert str(check_database(tmp_path)[0]) == (
        "Add.csv: is a Git LFS pointer (real size 16400 bytes), expected a table (run git lfs pull)"
    )


def test_duplicates_are_named_with_all_their_lines(write, tmp_path, row):
    write([row(1, 512, 512, "18.2"), row(2, 512, 512), row(1, 512, 512), row(1, 512, 512, "18.4")])

    assert check_database(tmp_path) == (
        Finding("MatMulV2.csv", "duplicate", "3 rows describe one call (1,512;512,512): lines 2, 4, 5", 2),
    )


def test_columns_that_tell_equal_keys_apart_are_named_once(write, tmp_path, base, row):
    lines = [f"{row(1, 512, 512)},{window}" for window in ("128", "4096", "128")]
    write(lines, header=f"{base},Average Duration(us),Window")

    assert [(f.kind, f.message) for f in check_database(tmp_path)] == [
        (
            "separating-columns",
            "3 rows share 1 keys and only 'Window' tells them apart: the table is never merged",
        ),
        ("duplicate", "2 rows describe one call (1,512;512,512): lines 2, 4"),
    ]


def test_missing_columns_are_a_finding(write, tmp_path):
    write(['"1,2","1,2"'], header="Input Shapes,Output Shapes")

    assert found(tmp_path) == [
        ("MatMulV2.csv", "schema", 1, "no column 'Input Data Types', 'Output Data Types'")
    ]


def test_shapes_that_a_consumer_fails_on_are_findings(write, tmp_path, base):
    cells = "DT_BF16,ND,4,DT_BF16,ND,2.5"
    write([f"dynamic,CPU,N/A,{cells}", f"dynamic,CPU,4096.0,{cells}"])

    assert found(tmp_path) == [
        ("MatMulV2.csv", "shapes", 2, "'Input Shapes' is 'N/A', expected shapes"),
        (
            "MatMulV2.csv",
            "shapes",
            3,
            "column 'Input Shapes': shape '4096.0' has dimension '4096.0', expected a non-negative integer",
        ),
    ]


def test_rows_of_another_family_than_the_database_is_for_are_a_finding(write, tmp_path, row):
    write([row(1, 512, 512, "18.2", core="AI_CORE")])
    adopt_identity(tmp_path, family="cpu", device="CPU_X86_64")

    assert found(tmp_path) == [
        ("", "identity", None, "the rows hold ascend durations, perfcollect.json says cpu")
    ]


def test_a_directory_without_tables_is_a_finding(tmp_path):
    assert found(tmp_path) == [
        ("", "empty", None, f"{tmp_path} holds no table, expected *.csv directly in it")
    ]


def test_other_parts_bring_their_own_checks(write, tmp_path, row):
    write([row(1, 512, 512)])

    findings = check_database(tmp_path, checks=[lambda table: iter([Finding(table.path.name, "mine", "x")])])

    assert findings == (Finding("MatMulV2.csv", "mine", "x"),)
