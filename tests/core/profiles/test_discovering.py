"""Which files below a directory are read, whose they are, and what is said about the rest."""

from __future__ import annotations

import pytest

SHAPES = ("64,5120;64,5120", "DT_BF16;DT_BF16", "64,5120", "DT_BF16")


def capture(made, root, rank, rows, name=None):
    folder = root / (name or f"node-0_{4100 + rank}_2026040912000012{rank}_ascend_pt")
    made.write(folder / "ASCEND_PROFILER_OUTPUT" / "kernel_details.csv", rows)
    (folder / f"profiler_info_{rank}.json").write_text("{}", encoding="utf-8")
    return folder


def calls(made, *durations, first=0):
    return [
        made.kernel("Add", us, *SHAPES, number=first + n, Device_id=str(first))
        for n, us in enumerate(durations)
    ]


def accounts(done):
    return {(a["capture"], a["rank"]): (a["rows_used"], a["rows_set_aside"]) for a in done.json["files"]}


def test_each_rank_is_read_and_named(made, parse, tmp_path):
    capture(made, tmp_path / "run", 0, calls(made, "10.0"))
    capture(made, tmp_path / "run", 1, calls(made, "12.0", first=50))

    done = parse(tmp_path / "run", tmp_path / "db")

    assert accounts(done) == {
        ("node-0_4100_20260409120000120_ascend_pt", 0): (1, 0),
        ("node-0_4101_20260409120000121_ascend_pt", 1): (1, 0),
    }


def test_ranks_can_be_chosen(made, parse, read_rows, tmp_path):
    for rank in range(3):
        capture(made, tmp_path / "run", rank, calls(made, f"{10 + rank}.0", first=50 * rank))

    done = parse(tmp_path / "run", tmp_path / "db", "--ranks", "0-1")

    (row,) = read_rows(tmp_path / "db" / "Add.csv")
    assert (row["Profiling Count"], row["Profiling Average Duration(us)"]) == ("2", "10.500000")
    assert any(note.endswith("left out by --ranks") for note in done.json["notes"])


def test_a_rank_that_is_not_there_is_an_error(made, perfcollect, tmp_path):
    capture(made, tmp_path / "run", 0, calls(made, "10.0"))

    done = perfcollect(
        *("parse", "--profiling-path", tmp_path / "run", "--database-path", tmp_path / "db", "--ranks", "4")
    )

    assert done.code == 1
    assert "error: --ranks asks for 4, found 0\n" in done.err


def test_steps_can_be_chosen(made, parse, read_rows, tmp_path):
    rows = [
        {**row, "Step Id": step}
        for row, step in zip(calls(made, "10.0", "20.0", "30.0"), ("1", "2", ""), strict=True)
    ]
    source = made.write(tmp_path / "kernel_details.csv", rows, header=["Step Id", *made.HEADER])

    done = parse(source, tmp_path / "db", "--steps", "2-5")

    (row,) = read_rows(tmp_path / "db" / "Add.csv")
    assert row["Profiling Average Duration(us)"] == "20.000000"
    (account,) = done.json["files"]
    assert account["set_aside"][0]["reason"] == "not in the steps asked for"
    assert account["set_aside"][0]["lines"] == [2, 4]


def test_steps_of_a_profile_without_steps_are_an_error(made, perfcollect, tmp_path):
    source = made.write(tmp_path / "kernel_details.csv", calls(made, "10.0"))

    done = perfcollect(
        *("parse", "--profiling-path", source, "--database-path", tmp_path / "db", "--steps", "1")
    )

    assert (done.code, done.err) == (
        1,
        f"error: {source} has no column 'Step Id', so --steps cannot choose among its rows\n"
        "hint: take the profile with a step schedule, or leave --steps out\n",
    )


def test_a_stale_copy_is_counted_once_and_reported(made, parse, read_rows, tmp_path):
    rows = calls(made, "10.0", "20.0")
    made.write(tmp_path / "run" / "kernel_details.csv", rows)
    copy = made.write(tmp_path / "run" / "backup_kernel_details.csv", rows)

    done = parse(tmp_path / "run", tmp_path / "db")

    (row,) = read_rows(tmp_path / "db" / "Add.csv")
    assert row["Profiling Count"] == "2"
    original, second = done.json["files"]
    assert (original["rows_used"], second["file"], second["rows_used"]) == (2, str(copy), 0)
    assert second["set_aside"][0]["reason"] == f"the same kernel was counted from {original['file']}"
    assert second["notes"] == [f"a copy of what {original['file']} holds: counted once"]


def test_op_summary_beside_kernel_details_is_the_same_kernels(made, parse, read_rows, tmp_path):
    rows = calls(made, "10.0", "20.0")
    made.write(tmp_path / "run" / "kernel_details.csv", rows)
    made.write(tmp_path / "run" / "op_summary_20260409.csv", rows, renamed=made.OP_SUMMARY)

    parse(tmp_path / "run", tmp_path / "db")

    (row,) = read_rows(tmp_path / "db" / "Add.csv")
    assert row["Profiling Count"] == "2"


def test_the_raw_data_of_an_analysed_capture_are_not_read(made, parse, tmp_path):
    folder = capture(made, tmp_path / "run", 0, calls(made, "10.0"))
    raw = folder / "PROF_000001_20260409_ABCDEFGH" / "mindstudio_profiler_output" / "op_summary_20260409.csv"
    raw.parent.mkdir(parents=True)
    raw.write_text("Device_id,Op Name\n", encoding="utf-8")

    done = parse(tmp_path / "run", tmp_path / "db")

    assert done.code == 0
    assert done.json["notes"] == [
        f"1 op_summary of {folder.name} not read: its kernel_details holds the same kernels"
    ]


def test_a_rank_that_was_never_analysed_is_reported(made, parse, tmp_path):
    capture(made, tmp_path / "run", 0, calls(made, "10.0"))
    bare = tmp_path / "run" / "node-0_4101_20260409_ascend_pt"
    (bare / "PROF_000002_20260409_ABCDEFGH").mkdir(parents=True)
    (bare / "profiler_info_1.json").write_text("{}", encoding="utf-8")

    done = parse(tmp_path / "run", tmp_path / "db")

    assert done.json["notes"] == [
        f"rank 1 was never analysed: {bare} holds no kernel_details.csv "
        "(torch_npu.profiler.profiler.analyse makes it)"
    ]


def test_several_captures_of_one_rank_are_reported(made, parse, tmp_path):
    capture(made, tmp_path / "run", 0, calls(made, "10.0"), "first_ascend_pt")
    capture(made, tmp_path / "run", 0, calls(made, "12.0", first=50), "second_ascend_pt")

    done = parse(tmp_path / "run", tmp_path / "db")

    assert done.json["notes"] == ["rank 0 has 2 captures, all are used: first_ascend_pt, second_ascend_pt"]


@pytest.mark.parametrize("name", ["KERNEL_DETAILS.CSV", "kernel_details_2.csv", "op_summary_0_1.csv"])
def test_names_count_in_any_case(made, parse, tmp_path, name):
    renamed = made.OP_SUMMARY if name.startswith("op") else None
    made.write(tmp_path / "run" / "deep" / name, calls(made, "10.0"), renamed=renamed)

    assert parse(tmp_path / "run", tmp_path / "db").json["totals"]["rows_used"] == 1


def test_a_directory_without_profiles_is_an_error(perfcollect, tmp_path):
    (tmp_path / "run").mkdir()

    done = perfcollect("parse", "--profiling-path", tmp_path / "run", "--database-path", tmp_path / "db")

    assert (done.code, done.err) == (
        1,
        f"error: no profiler file below {tmp_path / 'run'}\n"
        "hint: kernel_details*.csv (torch_npu.profiler) or op_summary_*.csv (msprof) is looked for\n",
    )


def test_a_file_in_a_directory_that_cannot_be_read_costs_only_itself(made, perfcollect, tmp_path):
    made.write(tmp_path / "run" / "a" / "kernel_details.csv", calls(made, "10.0"))
    bad = tmp_path / "run" / "b" / "kernel_details.csv"
    bad.parent.mkdir()
    bad.write_bytes(b"")

    done = perfcollect("parse", "--profiling-path", tmp_path / "run", "--database-path", tmp_path / "db")

    assert done.code == 3
    assert f"warning: not read: {bad} is empty, expected the header of a profiler file\n" in done.err
    assert (tmp_path / "db" / "Add.csv").exists()


def test_missing_columns_are_named_as_the_file_spells_them(made, perfcollect, tmp_path):
    header = [name for name in made.HEADER if name not in ("Duration(us)", "Output Shapes")]
    source = made.write(
        tmp_path / "op_summary_1.csv", calls(made, "1.0"), header=header, renamed=made.OP_SUMMARY
    )

    done = perfcollect("parse", "--profiling-path", source, "--database-path", tmp_path / "db")

    assert (done.code, done.err) == (
        1,
        f"error: {source} lacks the columns 'Output Shapes', 'Task Duration(us)', expected those of op_summary\n"
        "hint: name a kernel_details.csv of torch_npu.profiler or an op_summary_*.csv of msprof, unchanged\n",
    )


def test_a_header_alone_yields_nothing(made, perfcollect, tmp_path):
    source = made.write(tmp_path / "kernel_details.csv", [])

    done = perfcollect("parse", "--profiling-path", source, "--database-path", tmp_path / "db")

    assert done.code == 0
    assert "0 rows, 0 used" in done.out
    assert not (tmp_path / "db").exists()


def test_a_collective_recorded_twice_is_counted_once(made, parse, tmp_path):
    rows = [
        made.collective("hcom_allReduce_", "50.0", number=1),
        made.collective("hcom_allReduce_", "50.0", number=1, stream="12"),
        made.collective("hcom_allReduce_", "60.0", number=2, stream="12"),
        *calls(made, "10.0", first=5),
    ]

    done = parse(made.write(tmp_path / "kernel_details.csv", rows), tmp_path / "db")

    assert done.json["collectives"] == {"hcom_allReduce_": {"count": 2, "sum_us": 110.0}}
    (account,) = done.json["files"]
    assert account["set_aside"][0]["lines"] == [3]
    assert account["adds_up"]
