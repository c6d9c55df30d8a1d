"""A file cut anywhere: the line that was not ended never counts, even where it would parse."""

from __future__ import annotations

import csv

import pytest

from perfcollect_core.profiles.collecting import Collector
from perfcollect_core.profiles.frames import Fault, stream_pieces
from perfcollect_core.profiles.headers import read_header
from perfcollect_core.profiles.ledger import FileLedger

TORN = "last line is not ended, the file may have been cut"


def read(path):
    collector = Collector()
    header = read_header(path)
    ledger = collector.read(header, FileLedger(path, header.layout.name))
    collector.groups.resolve_open()
    return ledger, list(collector.groups.rows())


def twenty_rows(made, path, line_end="\n"):
    shapes = ("64,5120;64,5120", "DT_BF16;DT_BF16", "64,5120", "DT_BF16")
    rows = [made.kernel("Add", f"{10 + number}.125", *shapes, number=number) for number in range(20)]
    return made.write(path, rows, line_end=line_end).read_bytes()


def test_a_cut_at_each_byte_of_the_last_two_kibibytes(made, tmp_path):
    whole = twenty_rows(made, tmp_path / "kernel_details.csv")
    cut_file = tmp_path / "cut.csv"

    for cut in range(len(whole) - 2048, len(whole)):
        cut_file.write_bytes(whole[:cut])
        pieces = list(stream_pieces(read_header(cut_file), ["Type", "Duration(us)"]))

        ended = whole[:cut].count(b"\n") - 1
        torn = [] if whole[cut - 1 : cut] == b"\n" else [Fault(ended + 2, TORN)]
        assert [fault for piece in pieces for fault in piece.faults] == torn, cut
        durations = [text for piece in pieces for text in piece.frame["Duration(us)"]]
        assert durations == [f"{10 + number}.125" for number in range(ended)], cut


@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
def test_a_cut_through_the_last_line_is_accounted_for(made, tmp_path, line_end):
    whole = twenty_rows(made, tmp_path / "kernel_details.csv", line_end)
    cut_file = tmp_path / "cut.csv"

    for cut in range(len(whole) - 120, len(whole)):
        cut_file.write_bytes(whole[:cut])
        ledger, found = read(cut_file)

        ended = whole[:cut].count(b"\n") - 1
        torn = [] if whole[cut - 1 : cut] == b"\n" else [ended + 2]
        aside = {reason: list(rows.lines) for reason, rows in ledger.aside.items()}
        assert aside == ({TORN: torn} if torn else {}), cut
        assert [(row.count, row.max_us) for row in found] == [(ended, 9 + ended + 0.125)], cut
        assert ledger.adds_up, cut


def test_strict_makes_a_torn_line_an_error(made, perfcollect, tmp_path):
    shapes = ("64,5120;64,5120", "DT_BF16;DT_BF16", "64,5120", "DT_BF16")
    source = made.write(tmp_path / "kernel_details.csv", [made.kernel("Add", "10.0", *shapes)] * 3)
    source.write_bytes(source.read_bytes().rstrip(b"\n"))

    done = perfcollect("parse", "--profiling-path", source, "--database-path", tmp_path / "db", "--strict")

    assert (done.code, done.err.splitlines()[-2:]) == (
        1,
        [
            f"error: {source} line 4: {TORN}",
            "hint: nothing is written; without --strict such lines are set aside and listed",
        ],
    )
    assert not (tmp_path / "db").exists()


def test_without_strict_a_torn_line_is_told_with_its_place(made, perfcollect, tmp_path):
    shapes = ("64,5120;64,5120", "DT_BF16;DT_BF16", "64,5120", "DT_BF16")
    source = made.write(tmp_path / "kernel_details.csv", [made.kernel("Add", "10.0", *shapes)] * 3)
    source.write_bytes(source.read_bytes().rstrip(b"\n"))

    done = perfcollect("parse", "--profiling-path", source, "--database-path", tmp_path / "db")

    assert done.code == 0
    assert f"{source}: 3 rows, 2 used, 1 set aside, 0 apart" in done.out
    assert f"set aside 1 row: {TORN} (line 4)" in done.out


def test_lines_that_are_no_records_are_set_aside_and_their_neighbours_kept(made, tmp_path):
    shapes = ("64,5120;64,5120", "DT_BF16;DT_BF16", "64,5120", "DT_BF16")
    source = made.write(
        tmp_path / "kernel_details.csv", [made.kernel("Add", "10.0", *shapes, number=n) for n in range(6)]
    )
    lines = source.read_bytes().split(b"\n")
    lines[2] = lines[2][:200]
    lines[3] += b",one,too,many"
    lines[4] = lines[4].replace(b'"64,5120"""', b'"64,5120')
    source.write_bytes(b"\n".join(lines))
    (short,) = csv.reader([lines[2].decode()])

    ledger, (row,) = read(source)

    assert row.count == 3
    assert {reason: list(rows.lines) for reason, rows in ledger.aside.items()} == {
        f"{len(short)} cells, header has 46": [3],
        "49 cells, header has 46": [4],
        "quotes do not match": [5],
    }
    assert ledger.adds_up
