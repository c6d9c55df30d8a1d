"""Troubles from the field: what each input must and must not become."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys

import pytest

POINTER = (
    "version https://git-lfs.github.com/spec/v1\n"
    "oid sha256:5555555555555555555555555555555555555555555555555555555555555555\n"
    "size 311199\n"
)
FIA_SHAPES = "6,16,1,512;905,1,128,512;905,1,128,512;;;6;6;;;;;;;;6,384;;;;;;;;;;6,16,1,64;905,1,128,64;;;;;"
FIA_DTYPES = ["DT_BF16"] * 3 + ["DT_UNDEFINED"] * 28
FIA_DTYPES[5] = FIA_DTYPES[6] = "INT64"
FIA_DTYPES[14] = "INT32"
FIA_DTYPES[24] = FIA_DTYPES[25] = "DT_BF16"


def figures(rows):
    return [
        (
            int(row["Profiling Count"]),
            float(row["Profiling Average Duration(us)"]),
            float(row["Profiling Median Duration(us)"]),
            float(row["Profiling Std Duration(us)"]),
        )
        for row in rows
    ]


def matmul(made, number, duration, **cells):
    shapes = ("136,7168;3584,7168", "DT_BF16;DT_BF16", "136,3584", "DT_BF16")
    return made.kernel("MatMulV2", duration, *shapes, number=number, core="AI_CORE", **cells)


def add(made, number, duration, shape="64,5120", dtype="DT_BF16", **cells):
    shapes = (f"{shape};{shape}", f"{dtype};{dtype}", shape, dtype)
    return made.kernel("Add", duration, *shapes, number=number, **cells)


def rms_norm(made, number, duration, shape="136,7168"):
    rows, width = shape.split(",")
    shapes = (f"{shape};{width}", "DT_BF16;DT_BF16", f"{shape};{rows},1", "DT_BF16;FLOAT")
    return made.kernel("RmsNorm", duration, *shapes, number=number)


def sha256(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.fixture
def b01(made, tmp_path):
    """Seven kernels, start times padded by a tab but for one, two kernels one nanosecond apart."""
    rows = [
        matmul(made, 0, "61.42"),
        rms_norm(made, 1, "8.06"),
        matmul(made, 2, "60.98"),
        matmul(made, 3, "61.2", **{"Start Time(us)": "1786500000000234.101"}),
        rms_norm(made, 4, "8.14\t"),
        add(made, 5, " 12.5\t", **{"Start Time(us)": "1786500000000305.913\t"}),
        add(made, 6, "12.7", **{"Start Time(us)": "1786500000000305.914\t"}),
    ]
    return made.write(tmp_path / "b01" / "kernel_details.csv", rows)


def test_b01_padding_costs_no_digit(b01, parse, read_rows, tmp_path):
    done = parse(b01, tmp_path / "db")

    assert done.code == 0
    tables = {path.stem: figures(read_rows(path)) for path in (tmp_path / "db").glob("*.csv")}
    assert tables == {
        "MatMulV2": [(3, 61.2, 61.2, 0.179629)],
        "RmsNorm": [(2, 8.1, 8.1, 0.04)],
        "Add": [(2, 12.6, 12.6, 0.1)],
    }
    totals = done.json["totals"]
    assert (totals["rows_in"], totals["rows_used"], totals["rows_set_aside"]) == (7, 7, 0)


def test_b01_start_times_keep_all_nineteen_digits_and_their_order(b01):
    from perfcollect_core.profiles.frames import stream_pieces
    from perfcollect_core.profiles.headers import read_header

    (piece,) = stream_pieces(read_header(b01), ["Start Time(us)", "Type"])

    starts = [text.strip() for text in piece.frame["Start Time(us)"]]
    assert starts[3] == "1786500000000234.101"
    assert starts[5:] == ["1786500000000305.913", "1786500000000305.914"]


def test_b04_late_decimals_and_a_counter_of_all_ones(made, parse, read_rows, tmp_path):
    rows = [add(made, i, "56"[i % 2], "16,5120", aiv_total_cycles="421800") for i in range(120)]
    rows += [
        add(made, 120, "5.25", "16,5120", aic_total_cycles="18446744073709551615", aiv_total_cycles="421800"),
        made.collective("hcom_allReduce_", "214507.31", number=121),
        add(made, 122, "5.5", "16,5120", aiv_total_cycles="N/A"),
    ]
    source = made.write(tmp_path / "kernel_details.csv", rows)

    done = parse(source, tmp_path / "db")

    assert done.code == 0
    (row,) = read_rows(tmp_path / "db" / "Add.csv")
    assert figures([row]) == [(122, 5.497951, 5.375, 0.496397)]
    assert row["Profiling Average aiv_total_cycles"] == "421800.000000"
    assert row["Profiling Average aic_total_cycles"] == "0.000000"
    assert done.json["collectives"] == {"hcom_allReduce_": {"count": 1, "sum_us": 214507.31}}
    assert done.json["files"][0]["implausible_cells"] == [
        {"line": 122, "column": "aic_total_cycles", "value": "18446744073709551615"}
    ]
    assert done.json["totals"]["rows_in"] == 123


def test_b04_the_mean_of_a_counter_is_over_the_121_calls_that_have_it(made, tmp_path):
    from perfcollect_core.profiles.discover import discover
    from perfcollect_core.profiles.reading import open_files, read_profile

    rows = [add(made, i, "5", aiv_total_cycles=str(i)) for i in range(121)]
    rows.append(add(made, 121, "5.5", aiv_total_cycles="N/A"))
    source = made.write(tmp_path / "kernel_details.csv", rows)

    opened, _ = open_files(discover([source]), {source}, None)
    (found,) = read_profile(opened).rows["Add"]

    assert found.count == 122
    assert found.counters["aiv_total_cycles"] == sum(range(121)) / 121


def fia(made, number, duration, shapes, dtypes, quoted=True):
    formats = ["NULL" if dtype == "DT_UNDEFINED" else "ND" for dtype in dtypes]
    row = made.kernel(
        "FusedInferAttentionScore",
        duration,
        shapes,
        ";".join(dtypes),
        "6,16,1,512;6,16,1,1",
        "DT_BF16;FLOAT",
        number=number,
        core="MIX_AIC",
        formats=";".join(formats),
    )
    return row if quoted else {**row, "Input Shapes": shapes}


@pytest.fixture
def b07(made, tmp_path):
    """All 31 slots; trailing blanks trimmed to 26; holes written N/A and (); the block table one slot later."""
    holes = iter(("N/A", "()", "") * 11)
    filled = ";".join(slot or next(holes) for slot in FIA_SHAPES.split(";"))
    moved = FIA_SHAPES.replace(";6,384;;", ";;6,384;")
    rows = [
        fia(made, 0, "27.76", FIA_SHAPES, FIA_DTYPES),
        fia(made, 1, "28.00", FIA_SHAPES.rstrip(";"), FIA_DTYPES[:26]),
        fia(made, 2, "27.94", filled, FIA_DTYPES, quoted=False),
        fia(made, 3, "99.0", moved, FIA_DTYPES),
    ]
    return made.write(tmp_path / "profile" / "kernel_details.csv", rows)


def test_b07_blank_slots_keep_their_place(b07, parse, read_rows, tmp_path):
    done = parse(b07, tmp_path / "db")

    assert done.code == 0
    rows = read_rows(tmp_path / "db" / "FusedInferAttentionScore.csv")
    by_count = {count: (mean, median, std) for count, mean, median, std in figures(rows)}
    assert by_count == {3: (27.9, 27.94, 0.10198), 1: (99, 99, 0)}
    (row,) = (row for row in rows if row["Profiling Count"] == "3")
    slots = row["Input Shapes"].strip('"').split(";")
    assert len(slots) == 31
    assert {i: slot for i, slot in enumerate(slots) if slot} == {
        0: "6,16,1,512",
        1: "905,1,128,512",
        2: "905,1,128,512",
        5: "6",
        6: "6",
        14: "6,384",
        24: "6,16,1,64",
        25: "905,1,128,64",
    }


def test_b07_a_second_write_changes_no_byte(b07, parse, tmp_path):
    parse(b07, tmp_path / "db")
    before = sha256(tmp_path / "db" / "FusedInferAttentionScore.csv")

    done = parse(b07, tmp_path / "db")

    assert done.json["tables"][0]["unchanged"] == 2
    assert sha256(tmp_path / "db" / "FusedInferAttentionScore.csv") == before


def test_b08_kernels_without_shapes_keep_their_time_and_make_no_key(made, parse, read_rows, tmp_path):
    bare = dict.fromkeys(
        (
            "Input Shapes",
            "Input Data Types",
            "Input Formats",
            "Output Shapes",
            "Output Data Types",
            "Output Formats",
        ),
        "N/A",
    )
    rows = [rms_norm(made, 0, "6.1", "96,6144"), rms_norm(made, 1, "6.3", "96,6144")]
    for number, duration in enumerate(("41.0", "43.0", "88.0"), start=2):
        rows.append({**matmul(made, number, duration), "Type": "mla_preprocess_0_mix_aic", **bare})
    rows += [
        {**matmul(made, 5, "310.5"), "Type": "RINGMLAPrefillBF16Kernel", **bare},
        made.collective("hcom_allReduce_", "52.5", number=6),
        made.collective("hcom_allReduce_", "53.5", number=7),
        made.kernel("Cast", "904.0", "102", "INT64", "102", "INT32", number=8, core="AI_CPU"),
    ]
    source = made.write(tmp_path / "kernel_details.csv", rows)

    done = parse(source, tmp_path / "db", "--report", tmp_path / "db" / "report.json")

    assert done.code == 0
    assert {path.stem: figures(read_rows(path)) for path in (tmp_path / "db").glob("*.csv")} == {
        "RmsNorm": [(2, 6.2, 6.2, 0.1)],
        "Cast": [(1, 904, 904, 0)],
    }
    report = done.json
    assert report["no_shape"] == {
        "RINGMLAPrefillBF16Kernel": {"count": 1, "sum_us": 310.5},
        "mla_preprocess_0_mix_aic": {"count": 3, "sum_us": 172.0},
    }
    assert report["collectives"] == {"hcom_allReduce_": {"count": 2, "sum_us": 106.0}}
    totals = report["totals"]
    assert (totals["total_us"], totals["keyed_us"], totals["keyed_share"]) == (1504.9, 916.4, 0.6089)
    assert totals["adds_up"]
    assert report["ran_on_ai_cpu"] == {"Cast": 1}
    assert (tmp_path / "db" / "report.json").read_text(encoding="utf-8").startswith("{")


def slices(made, tmp_path):
    cells = {"aic_mac_ratio": "0.8", "aiv_gm_to_ub_bw(GB/s)": "101.5", "L2 Hit Rate(%)": "88.1"}
    first = [matmul(made, 0, "30"), matmul(made, 1, "31"), rms_norm(made, 2, "4")]
    second = [
        {**row, **cells, "Block Dim": "20"}
        for row in (matmul(made, 3, "32"), matmul(made, 4, "33"), rms_norm(made, 5, "6"))
    ]
    header = [name for name in made.HEADER if name not in ("Type", "Duration(us)", "Name")]
    folder = tmp_path / "slices" / "mindstudio_profiler_output"
    newer = {**made.OP_SUMMARY, "Block Dim": "Block Num"}
    made.write(folder / "op_summary_slice_0_20260810093519.csv", first, renamed=made.OP_SUMMARY)
    made.write(
        folder / "op_summary_slice_1_20260810093519.csv",
        second,
        header=["Type", "Duration(us)", "Name", *header, "aiv_gm_to_ub_bw(GB/s)", "L2 Hit Rate(%)"],
        renamed=newer,
    )
    return tmp_path / "slices"


def test_b11_slices_join_by_column_name(made, parse, read_rows, tmp_path):
    done = parse(slices(made, tmp_path), tmp_path / "db")

    assert done.code == 0
    (row,) = read_rows(tmp_path / "db" / "MatMulV2.csv")
    assert figures([row]) == [(4, 31.5, 31.5, 1.118034)]
    assert figures(read_rows(tmp_path / "db" / "RmsNorm.csv")) == [(2, 5, 5, 1)]
    assert row["Profiling Average L2 Hit Rate(%)"] == "88.100000"


def test_b11_block_num_is_block_dim(made, tmp_path):
    from perfcollect_core.profiles.discover import discover
    from perfcollect_core.profiles.frames import stream_pieces
    from perfcollect_core.profiles.headers import read_header

    blocks = [
        value
        for file in discover([slices(made, tmp_path)]).files
        for piece in stream_pieces(read_header(file.path), ["Block Dim"])
        for value in piece.frame["Block Dim"]
    ]

    assert blocks == ["24", "24", "24", "20", "20", "20"]


def test_b11_no_counters_and_no_device_is_fine(made, parse, read_rows, tmp_path):
    rows = [matmul(made, 0, "30"), matmul(made, 1, "31"), rms_norm(made, 2, "4")]
    header = ["Step Id", *(name for name in made.HEADER if name not in (*made.COUNTERS, "Device_id"))]
    source = made.write(tmp_path / "kernel_details.csv", rows, header=header)

    done = parse(source, tmp_path / "db")

    assert done.code == 0
    (row,) = read_rows(tmp_path / "db" / "MatMulV2.csv")
    assert figures([row]) == [(2, 30.5, 30.5, 0.5)]
    assert all(row[f"Profiling Average {counter}"] == "" for counter in made.COUNTERS)
    assert figures(read_rows(tmp_path / "db" / "RmsNorm.csv")) == [(1, 4, 4, 0)]


def test_b11_a_level0_profile_is_refused(made, perfcollect, tmp_path):
    header = [
        *("Step Id", "Device_id", "Name", "Type", "Accelerator Core", "Start Time(us)"),
        *("Duration(us)", "Wait Time(us)", "Block Num"),
    ]
    source = made.write(tmp_path / "level0" / "kernel_details.csv", [matmul(made, 0, "30")], header=header)

    done = perfcollect("parse", "--profiling-path", tmp_path / "level0", "--database-path", tmp_path / "db")

    assert done.code == 1
    assert done.err == (
        f"error: {source} holds no shapes: the profile was taken at Level0\n"
        "hint: take it again with profiler_level=Level1, which records shapes, dtypes and formats\n"
    )
    assert not (tmp_path / "db").exists()


def test_b14_dtypes_never_merge_and_words_stay_as_written(made, parse, read_rows, tmp_path):
    shape = "136,7168"
    rows = [
        add(made, 0, "10.0", shape),
        add(made, 1, "10.4", shape),
        add(made, 2, "30.0", shape, "FLOAT"),
        add(made, 3, "11.0", shape, "FLOAT16"),
        add(made, 4, "11.2", shape, "DT_FLOAT16"),
    ]
    variants = [
        ("21.0", "INT8;INT8;FLOAT", "ND;FRACTAL_NZ;ND"),
        ("13.0", "DT_INT4;DT_INT4;FLOAT", "ND;FRACTAL_NZ;ND"),
        ("14.0", "FLOAT8_E4M3FN;FLOAT8_E4M3FN;FLOAT8_E8M0", "ND;FRACTAL_NZ;ND"),
        ("9.0", "FLOAT4_E2M1;FLOAT4_E2M1;FLOAT8_E8M0", "ND;FRACTAL_NZ;ND"),
        ("22.0", "INT8;INT8;FLOAT", "ND;ND;ND"),
        ("15.0", "HIFLOAT8;HIFLOAT8;FLOAT", "ND;FRACTAL_NZ;ND"),
    ]
    for number, (duration, dtypes, formats) in enumerate(variants, start=5):
        shapes = ("16,7168;2048,7168;2048", dtypes, "16,2048", "DT_BF16")
        rows.append(made.kernel("QuantBatchMatmulV3", duration, *shapes, number=number, formats=formats))
    source = made.write(tmp_path / "kernel_details.csv", rows)

    done = parse(source, tmp_path / "db")

    assert done.code == 0
    assert sorted(figures(read_rows(tmp_path / "db" / "Add.csv"))) == [
        (1, 30, 30, 0),
        (2, 10.2, 10.2, 0.2),
        (2, 11.1, 11.1, 0.1),
    ]
    quantised = read_rows(tmp_path / "db" / "QuantBatchMatmulV3.csv")
    assert sorted(row[1] for row in figures(quantised)) == [9, 13, 14, 15, 21, 22]
    words = {word for row in quantised for word in row["Input Data Types"].split(";")}
    assert words == {"INT8", "DT_INT4", "FLOAT", "FLOAT8_E4M3FN", "FLOAT8_E8M0", "FLOAT4_E2M1", "HIFLOAT8"}


@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
def test_b19_a_pointer_is_named_as_one(made, perfcollect, tmp_path, line_end):
    source = tmp_path / "profile" / "kernel_details.csv"
    source.parent.mkdir()
    source.write_bytes(POINTER.replace("\n", line_end).encode())
    table = tmp_path / "db" / "Add.csv"
    table.parent.mkdir()
    table.write_bytes(POINTER.replace("311199", "16400").replace("\n", line_end).encode())
    before = sha256(source), sha256(table)

    done = perfcollect("parse", "--profiling-path", source.parent, "--database-path", table.parent)

    assert done.code == 1
    assert done.err == (
        f"warning: {table} is a Git LFS pointer (real size 16400 bytes), expected a table (run git lfs pull)\n"
        f"error: {source} is a Git LFS pointer (real size 311199 bytes), expected a profiler file\n"
        "hint: run git lfs pull\n"
    )
    assert (sha256(source), sha256(table)) == before


def test_b19_a_table_that_is_a_pointer_stays_one_and_the_others_are_written(made, b01, perfcollect, tmp_path):
    table = tmp_path / "db" / "Add.csv"
    table.parent.mkdir()
    table.write_text(POINTER, encoding="utf-8")

    done = perfcollect("parse", "--profiling-path", b01, "--database-path", table.parent)

    assert done.code == 3
    assert f"not written: {table} is a Git LFS pointer (real size 311199 bytes)" in done.out
    assert table.read_text(encoding="utf-8") == POINTER
    assert (table.parent / "MatMulV2.csv").exists()


@pytest.fixture
def excel_en(made, tmp_path):
    rows = [
        matmul(made, 0, "61.42"),
        matmul(made, 1, "6.1E+01"),
        matmul(made, 2, "61.2"),
        {
            **made.kernel("Cast", "3.14", "4096,512", "INT64", "4096,512", "INT32", number=3),
            "Output Shapes": "4096512",
        },
    ]
    rows = [{**row, "Step Id": "10", "Start Time(us)": "1.7865E+15"} for row in rows]
    path = tmp_path / "excel_en" / "kernel_details.csv"
    return made.write(path, rows, header=["Step Id", *made.HEADER], bom=True, line_end="\r\n")


def test_b20_a_file_saved_by_a_spreadsheet(excel_en, parse, read_rows, tmp_path):
    from perfcollect_core.profiles.headers import read_header

    done = parse(excel_en.parent, tmp_path / "db")

    assert done.code == 0
    assert read_header(excel_en).columns[0] == "Step Id"
    assert figures(read_rows(tmp_path / "db" / "MatMulV2.csv")) == [(3, 61.206667, 61.2, 0.171529)]
    assert not (tmp_path / "db" / "Cast.csv").exists()
    (account,) = done.json["files"]
    assert account["set_aside"] == [
        {
            "reason": "column 'Output Shapes' holds 4096512, which looks like 4096,512 without its commas",
            "count": 1,
            "sum_us": 3.14,
            "lines": [5],
        }
    ]
    assert account["notes"] == [
        "all start times are equal after rounding, as a spreadsheet leaves them: order and step look-ups are off, "
        "and copies of these kernels in other files are not noticed"
    ]


def test_b20_rounded_start_times_make_no_copies(made, excel_en, parse, tmp_path):
    again = made.write(
        tmp_path / "excel_en" / "kernel_details_2.csv",
        [{**matmul(made, 0, "61.42"), "Start Time(us)": "1.7865E+15"}],
    )

    done = parse(excel_en.parent, tmp_path / "db")

    used = {account["file"]: account["rows_used"] for account in done.json["files"]}
    assert used == {str(excel_en): 3, str(again): 1}


def test_b20_semicolons_are_refused(made, perfcollect, tmp_path):
    path = tmp_path / "excel_de" / "kernel_details.csv"
    made.write(path, [matmul(made, 0, "61,42")], bom=True, line_end="\r\n", delimiter=";")

    done = perfcollect("parse", "--profiling-path", path.parent, "--database-path", tmp_path / "db")

    assert done.code == 1
    assert done.err == (
        f"error: {path} has the delimiter ';', expected ','\n"
        "hint: the file was saved by a spreadsheet; export the profile again and do not open it in one\n"
    )
    assert not (tmp_path / "db").exists()


def test_b20_an_existing_table_keeps_its_bom_and_line_ends(b01, parse, read_rows, tmp_path):
    table = tmp_path / "db" / "MatMulV2.csv"
    table.parent.mkdir()
    table.write_bytes(
        b"\xef\xbb\xbfOP State,Accelerator Core,Input Shapes,Input Data Types,Input Formats,Output Shapes,"
        b"Output Data Types,Output Formats,Average Duration(us),Profiling Average Duration(us)\r\n"
        b'dynamic,AI_CORE,"""136,7168;3584,7168""",DT_BF16;DT_BF16,ND;ND,"""136,3584""",DT_BF16,ND,,61.0\r\n'
    )

    done = parse(b01, table.parent)

    assert done.code == 0
    content = table.read_bytes()
    assert content.startswith(b"\xef\xbb\xbfOP State,")
    assert content.count(b"\xef\xbb\xbf") == 1
    assert content.count(b"\n") == content.count(b"\r\n") == 2
    (row,) = read_rows(table)
    assert (row["Profiling Average Duration(us)"], row["Average Duration(us)"]) == ("61.200000", "")
    before = sha256(table)
    parse(b01, table.parent)
    assert sha256(table) == before


def test_b23_a_file_in_the_way_is_found_before_parsing(b01, perfcollect, tmp_path, monkeypatch):
    plain = tmp_path / "plainfile"
    plain.write_text("", encoding="utf-8")
    monkeypatch.setattr(
        "perfcollect_core.profiles.reading.read_profile", lambda *_, **__: pytest.fail("it was parsed")
    )

    done = perfcollect("parse", "--profiling-path", b01, "--database-path", plain / "db")

    assert done.code == 1
    assert done.err == (
        f"error: database {plain / 'db'} cannot be written: Not a directory\n"
        "hint: name a directory you may write with --database-path\n"
    )
    assert plain.read_bytes() == b""


@pytest.mark.skipif(sys.platform == "win32", reason="needs a file-size limit")
def test_b23_a_table_that_does_not_fit_stays_as_it_was(made, b01, tmp_path):
    database = tmp_path / "db"
    database.mkdir()
    rows = [
        [f'"""{m},512;512,512"""', "DT_BF16;DT_BF16", "ND;ND", f'"""{m},512"""', "DT_BF16"]
        for m in range(1, 400)
    ]
    table = database / "MatMulV2.csv"
    header = (
        "Input Shapes,Input Data Types,Input Formats,Output Shapes,Output Data Types,Accelerator Core,"
        "Average Duration(us)"
    )
    lines = [header, *(",".join(row) + ",AI_CORE,7.5" for row in rows)]
    table.write_text("\r\n".join(lines) + "\r\n", encoding="utf-8", newline="")
    before = sha256(table)
    limited = (
        "import resource, signal, sys; signal.signal(signal.SIGXFSZ, signal.SIG_IGN);"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (16384, 16384));"
        "from perfcollect_core.cli import main;"
        f"sys.exit(main(['parse', '--profiling-path', {str(b01)!r}, '--database-path', {str(database)!r}]))"
    )

    done = subprocess.run([sys.executable, "-c", limited], capture_output=True, text=True, check=False)

    assert done.returncode == 1
    assert f"{table} cannot be written: File too large" in done.stderr
    assert "Traceback" not in done.stderr
    assert sha256(table) == before
    assert not list(database.glob("*.partial"))


def test_b26_impossible_durations_are_set_aside_and_never_zero(made, parse, read_rows, tmp_path):
    durations = [
        *("10.0", "0", "-0.37", "nan", "inf", "1e3", "", "N/A", "12.0"),
        *("18446744073709551.615", "1_0", "\uff10\uff18"),
    ]
    rows = [add(made, number, duration) for number, duration in enumerate(durations)]
    rows.append({**add(made, 12, "11.0"), "Start Time(us)": "0\t"})
    source = made.write(tmp_path / "kernel_details.csv", rows)

    done = parse(source, tmp_path / "db")

    assert done.code == 0
    (row,) = read_rows(tmp_path / "db" / "Add.csv")
    assert figures([row]) == [(4, 258.25, 11.5, 428.250146)]
    (account,) = done.json["files"]
    assert (account["rows_in"], account["rows_used"], account["rows_set_aside"]) == (13, 4, 9)
    assert {entry["reason"]: entry["lines"] for entry in account["set_aside"]} == {
        "duration is zero": [3],
        "duration is negative": [4],
        "duration is not finite": [5, 6],
        "duration is blank": [8],
        "duration is N/A": [9],
        "duration is a negative time wrapped around 2^64 ns": [11],
        "duration is not a number": [12, 13],
    }


@pytest.fixture
def b34(tmp_path):
    base = tmp_path / "root" / "ATLAS_800_A3_752T_128G_DIE" / "vllm_ascend"
    for name in (
        "vllm0.9.1_torch2.7.1_cann8.2",
        "vllm0.13.0_torch2.8.0_cann8.3",
        "vllm0.13.0.post1_torch2.8.0_cann8.3",
        "vllm0.18.0.dev3+g1a2b3c4.d20260810_torch2.9.0_cann8.5",
        "vllm0.18.0rc1_torch2.9.0.post1+gitdc51c2d_cann8.5.1",
        "vllm0.18.0_torch2.9.0_cann8.5",
        "vllm0.18.0_torch2.9.0_cann8.5_shape_generated",
        "vllm0.18.0_torch2.9.0_cann8.10",
    ):
        (base / name).mkdir(parents=True)
    return base


def test_b34_latest_is_the_highest_release_and_is_printed(b01, b34, perfcollect, tmp_path):
    done = perfcollect(
        "parse", "--profiling-path", b01, "--data-root", tmp_path / "root", "--vllm-version", "latest"
    )

    assert done.code == 0
    assert "--vllm-version latest is vllm0.18.0_torch2.9.0_cann8.10\n" in done.err
    assert [path.parent.name for path in b34.glob("*/MatMulV2.csv")] == ["vllm0.18.0_torch2.9.0_cann8.10"]


@pytest.mark.parametrize("version", ["", "main", "0+unknown", "../../etc", "0.18.0_torch2.9"])
def test_b34_what_is_no_version_is_refused_and_makes_no_folder(b01, b34, perfcollect, tmp_path, version):
    before = sorted((tmp_path / "root").rglob("*"))

    done = perfcollect(
        *("parse", "--profiling-path", b01, "--data-root", tmp_path / "root", "--vllm-version", version),
        *("--torch-version", "2.9.0", "--cann-version", "8.5"),
    )

    assert done.code == 2
    assert f"--vllm-version {version!r} is no version" in done.err
    assert sorted((tmp_path / "root").rglob("*")) == before


@pytest.mark.parametrize("version", ["v0.18.0", "0.18.0 "])
def test_b34_a_version_is_normalised_and_that_is_said(b01, b34, perfcollect, tmp_path, version):
    done = perfcollect(
        *("parse", "--profiling-path", b01, "--data-root", tmp_path / "root", "--vllm-version", version),
        *("--torch-version", "2.9.0", "--cann-version", "8.5"),
    )

    assert done.code == 0
    assert f"--vllm-version {version!r} is read as 0.18.0\n" in done.err
    assert (b34 / "vllm0.18.0_torch2.9.0_cann8.5" / "MatMulV2.csv").exists()


def test_a_version_that_is_neither_given_nor_detected_is_named(b01, perfcollect, tmp_path, monkeypatch):
    monkeypatch.setattr("perfcollect_core.tables.layout.detect_cann", lambda: None)

    done = perfcollect(
        *("parse", "--profiling-path", b01, "--data-root", tmp_path / "root"),
        *("--vllm-version", "0.18.0", "--torch-version", "2.9.0"),
    )

    assert done.code == 2
    assert "the CANN version is neither given nor detected on this machine" in done.err
    assert not (tmp_path / "root").exists()


@pytest.fixture
def b37(made, tmp_path):
    """A name with bytes that are no UTF-8 and a Chinese one, in a folder with blanks and brackets."""
    rows = [matmul(made, 0, "61"), matmul(made, 1, "62", Name="算子"), matmul(made, 2, "63", Name="BAD")]
    path = made.write(tmp_path / "性能 数据" / "rank 0 (copy)" / "kernel_details.csv", rows)
    path.write_bytes(path.read_bytes().replace(b"BAD", b"\xff\xfe\x80"))
    return path


def test_b37_bad_bytes_in_a_name_cost_a_warning_with_their_place(b37, parse, read_rows, tmp_path):
    done = parse(b37.parent.parent, tmp_path / "db")

    assert done.code == 0
    assert figures(read_rows(tmp_path / "db" / "MatMulV2.csv")) == [(3, 62, 62, 0.816497)]
    (account,) = done.json["files"]
    place = b37.read_bytes().index(b"\xff\xfe\x80")
    assert account["notes"] == [
        f"not UTF-8 at byte {place}: read as UTF-8, the cells with these bytes are not used"
    ]


def test_b37_the_locale_changes_nothing(b37, parse, tmp_path):
    parse(b37.parent.parent, tmp_path / "db")
    plain = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    command = "import sys; from perfcollect_core.cli import main; sys.exit(main(sys.argv[1:]))"
    arguments = ["parse", "--profiling-path", b37.parent.parent, "--database-path", tmp_path / "db2"]

    done = subprocess.run(
        [sys.executable, "-c", command, *arguments], env=plain, capture_output=True, check=False
    )

    assert done.returncode == 0, done.stderr
    assert (tmp_path / "db" / "MatMulV2.csv").read_bytes() == (tmp_path / "db2" / "MatMulV2.csv").read_bytes()


@pytest.mark.skipif(sys.platform == "win32", reason="a colon in a folder name")
def test_b37_a_colon_in_a_folder_name_is_a_name_like_any_other(made, parse, tmp_path):
    source = made.write(tmp_path / "a:b" / "kernel_details.csv", [{**matmul(made, 0, "61"), "Type": "A:B"}])

    done = parse(source.parent, tmp_path / "db")

    assert done.code == 0
    assert [path.name for path in (tmp_path / "db").glob("*.csv")] == ["A_B.csv"]


def test_b37_utf16_is_named(made, perfcollect, tmp_path):
    source = made.write(tmp_path / "utf16" / "kernel_details.csv", [matmul(made, 0, "61")])
    source.write_bytes(source.read_bytes().decode().encode("utf-16"))

    done = perfcollect("parse", "--profiling-path", source.parent, "--database-path", tmp_path / "db")

    assert (done.code, done.err) == (
        1,
        f"error: {source} is UTF-16, expected UTF-8\nhint: save it again as CSV in UTF-8\n",
    )


def test_b37_another_encoding_in_a_cell_that_counts_is_set_aside(made, parse, tmp_path):
    rows = [matmul(made, 0, "61"), matmul(made, 1, "62", Type="算子")]
    source = made.write(tmp_path / "gbk" / "kernel_details.csv", rows)
    source.write_bytes(source.read_bytes().decode().encode("gbk"))

    done = parse(source, tmp_path / "db")

    (account,) = done.json["files"]
    assert [(entry["reason"], entry["lines"]) for entry in account["set_aside"]] == [
        ("Type is not UTF-8", [3])
    ]
    assert account["notes"][0].startswith("not UTF-8 at byte ")


def test_b37_a_character_nobody_can_see_is_shown_as_an_escape(perfcollect, tmp_path):
    done = perfcollect(
        "parse", "--profiling-path", f"{tmp_path}/a:b\u200b", "--database-path", tmp_path / "db"
    )

    assert (done.code, done.err) == (
        1,
        f"error: {tmp_path}/a:b\\u200b does not exist\nhint: check --profiling-path for a typing error\n",
    )
