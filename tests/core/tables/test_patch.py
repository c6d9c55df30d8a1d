"""Patching: the cells that change, and not one byte more."""

from __future__ import annotations

import os
import time

import pytest

from perfcollect_core.cases import RowRef
from perfcollect_core.errors import TableError
from perfcollect_core.tables.patch import consumer_order, patch_table, write_table
from perfcollect_core.tables.read import read_table

AVERAGE = "Average Duration(us)"


def refs(path):
    return [row.ref for row in read_table(path).rows]


def test_only_the_cell_that_changes_changes(write, base, row):
    path = write(
        [f"{row(136, 7168, 3584)},61.0", '"dynamic",CPU,"136,1;1,1",X,"ND",1,B,,"1.0",'],
        header=f"{base},{AVERAGE},Profiling Average Duration(us)",
        bom=True,
    )
    before = path.read_bytes()

    result = patch_table(path, {refs(path)[1]: {AVERAGE: "2.500000"}})

    assert path.read_bytes() == before.replace(b'"1.0"', b'"2.500000"')
    assert (result.updated, result.unchanged, result.added, result.deleted) == (1, 0, 0, 0)


def test_a_mark_and_line_ends_of_either_kind_stay(write, base, row):
    for newline in ("\n", "\r\n"):
        path = write(
            [f"{row(136, 7168, 3584)},61.0"],
            header=f"{base},{AVERAGE},Profiling Average Duration(us)",
            newline=newline,
            bom=True,
        )
        before = path.read_bytes()

        patch_table(path, {refs(path)[0]: {AVERAGE: "60.250000"}})

        assert path.read_bytes() == before.replace(b",,61.0", b",60.250000,61.0")
        path.unlink()


def test_new_columns_stand_at_the_end_and_old_rows_get_blanks(write, row):
    path = write([row(1, 512, 512, "18.2"), row(16, 512, 512, "19.0"), row(64, 512, 512)], newline="\n")
    old = path.read_text().splitlines()

    patch_table(path, {refs(path)[2]: {AVERAGE: "21.5", "Power(W)": "310.2", "Clock(MHz)": "1650"}})

    assert path.read_text().splitlines() == [
        f"{old[0]},Power(W),Clock(MHz)",
        f"{old[1]},,",
        f"{old[2]},,",
        f"{old[3]}21.5,310.2,1650",
    ]


def test_no_column_is_added_where_no_row_has_text_for_it(write, row):
    path = write([row(1, 512, 512, "18.2")])
    before = path.read_bytes()

    result = patch_table(path, {refs(path)[0]: {"Cache Policy": "", AVERAGE: "18.2"}})

    assert path.read_bytes() == before
    assert (result.updated, result.unchanged, result.added_columns) == (0, 1, ())


def test_nothing_is_written_where_nothing_changes(write, row):
    path = write([row(1, 512, 512, "18.2")])
    os.utime(path, (1, 1))

    patch_table(path, {refs(path)[0]: {AVERAGE: "18.2"}})

    assert path.stat().st_mtime == 1


def test_an_unterminated_last_line_stays_unterminated(write, row):
    path = write([row(2, 512, 512)])
    path.write_bytes(path.read_bytes() + row(1, 512, 512).encode())

    patch_table(path, {refs(path)[1]: {AVERAGE: "18.2"}})

    assert path.read_bytes().endswith(row(1, 512, 512, "18.2").encode())


def test_quoted_newlines_and_trailing_blanks_survive_in_a_patched_row(write, base, row):
    path = write([f'{row(1, 512, 512, "3 ")},"two\r\nlines" '], header=f"{base},{AVERAGE},Note")

    patch_table(path, {refs(path)[0]: {"Quant Type": "bf16"}})

    assert path.read_bytes().endswith(f'{row(1, 512, 512, "3 ")},"two\r\nlines" ,bf16\r\n'.encode())


def test_blank_lines_stay_where_they_are(tmp_path, base, row):
    path = tmp_path / "MatMulV2.csv"
    path.write_bytes(f"\r\n{base},{AVERAGE}\r\n\r\n{row(1, 512, 512)}\r\n  \r\n".encode())
    before = path.read_bytes()

    patch_table(path, {refs(path)[0]: {AVERAGE: "18.2"}})

    assert path.read_bytes() == before.replace(b"ND,\r\n", b"ND,18.2\r\n")


def test_rows_that_are_gone_are_named_and_the_others_patched(write, row):
    path = write([row(1, 512, 512)])
    gone = RowRef("MatMulV2.csv", ("MatMulV2", "9,512;512,512"), 0)

    result = patch_table(path, {gone: {AVERAGE: "1.0"}, refs(path)[0]: {AVERAGE: "2.0"}})

    assert result.missing == (gone,)
    assert read_table(path).rows[0].cells[AVERAGE] == "2.0"


def test_the_second_of_two_equal_rows_is_patched_by_its_occurrence(write, row):
    path = write([row(1, 512, 512, "18.2"), row(1, 512, 512)])

    patch_table(path, {refs(path)[1]: {AVERAGE: "18.4"}})

    assert [r.cells[AVERAGE] for r in read_table(path).rows] == ["18.2", "18.4"]


def test_deleted_rows_go_and_the_others_keep_their_bytes(write, row):
    path = write([row(m, 512, 512) for m in (1, 2, 3)])
    lines = path.read_bytes().splitlines(keepends=True)

    result = patch_table(path, {}, delete=[refs(path)[1]])

    assert path.read_bytes() == b"".join([lines[0], lines[1], lines[3]])
    assert result.deleted == 1


def test_patching_moves_no_row_and_appending_puts_all_into_consumer_order(write, row):
    path = write([row(1, 512, 512), row(96, 512, 512), row(136, 512, 512)], newline="\n")
    rows = path.read_text().splitlines()[1:]
    patch_table(path, {refs(path)[0]: {AVERAGE: "1.0"}})
    assert [r.get("Output Shapes") for r in read_table(path).rows] == ["1,512", "96,512", "136,512"]

    appended = {"Input Shapes": "64,512;512,512", "Output Shapes": "64,512", AVERAGE: "5.500000"}
    result = patch_table(path, {}, append=[appended])

    assert result.added == 1
    assert path.read_text().splitlines()[1:] == [
        rows[2],
        rows[1],
        ',,"""64,512;512,512""",,,"""64,512""",,,5.500000',
        f"{rows[0]}1.0",
    ]


def test_a_row_appended_after_an_unterminated_line_starts_its_own(write, row):
    path = write([])
    path.write_bytes(path.read_bytes() + row(1, 512, 512).encode())

    patch_table(path, {}, append=[{"Input Shapes": "2,512;512,512", "Output Shapes": "2,512"}])

    assert [r.get("Output Shapes") for r in read_table(path).rows] == ["2,512", "1,512"]


@pytest.mark.parametrize("shapes", ["N/A", "", '""', "4096.0"])
def test_a_row_whose_shapes_do_not_parse_is_never_appended(write, row, shapes):
    path = write([row(1, 512, 512)])
    before = path.read_bytes()
    bad = {"Input Shapes": shapes, "Output Shapes": "1,512", AVERAGE: "1.0"}

    result = patch_table(path, {}, append=[bad])

    assert [cells for cells, _ in result.refused] == [bad]
    assert path.read_bytes() == before


def test_larger_shapes_come_first_by_number_not_by_text():
    shapes = ["136,7168", "1024,8", "96,512", "", "96,4096"]
    ordered = sorted(({"Output Shapes": s} for s in shapes), key=consumer_order, reverse=True)

    assert [row["Output Shapes"] for row in ordered] == ["1024,8", "136,7168", "96,4096", "96,512", ""]


def test_older_headings_are_brought_up_to_date_when_a_row_changes(write, base, row):
    path = write(
        [f"{row(1, 512, 512, '18.2')},3,4,5.5", f"{row(2, 512, 512)},,,6.5"],
        header=f"{base},MicroBench Duration(us),MicroBench Task Duration(us),"
        "MicroBench Kernel Duration(us),Profiling Average aicore_time(us)",
        newline="\n",
    )

    patch_table(path, {refs(path)[1]: {AVERAGE: "19.0", "MicroBench aicore_time(us)": "7.25"}})

    assert path.read_text().splitlines() == [
        f"{base},{AVERAGE},MicroBench aicore_time(us),Profiling Average aicore_time(us)",
        f"{row(1, 512, 512, '18.2')},,5.5",
        f"{row(2, 512, 512)}19.0,7.25,6.5",
    ]


def test_an_older_heading_alone_is_no_reason_to_write(write, base, row):
    path = write([row(1, 512, 512, "18.2")], header=f"{base},MicroBench Duration(us)")
    before = path.read_bytes()

    patch_table(path, {refs(path)[0]: {AVERAGE: "18.2"}})

    assert path.read_bytes() == before


def test_a_torn_table_is_refused_and_untouched(write, row):
    path = write([row(1, 512, 512), row(64, 512, 512, "310.2,1650,21.5,")])
    before = path.read_bytes()

    with pytest.raises(TableError):
        patch_table(path, {}, append=[{"Input Shapes": "2,2", "Output Shapes": "2,2"}])

    assert path.read_bytes() == before


def test_a_new_table_has_crlf_no_mark_and_inner_quotes(tmp_path, base):
    path = tmp_path / "Add.csv"
    rows = [
        {"Input Shapes": "512;512", "Output Shapes": "512", AVERAGE: "1.500000"},
        {"Input Shapes": '"4096,8;4096,8"', "Output Shapes": '"4096,8"'},
    ]

    write_table(path, ("Input Shapes", "Output Shapes", AVERAGE), rows)

    assert path.read_bytes() == (
        b"Input Shapes,Output Shapes,Average Duration(us)\r\n"
        b'"""4096,8;4096,8""","""4096,8""",\r\n'
        b'"""512;512""","""512""",1.500000\r\n'
    )


def test_writing_a_new_table_never_replaces_one(write, row):
    path = write([row(1, 512, 512)])

    with pytest.raises(TableError) as caught:
        write_table(path, ("Input Shapes", "Output Shapes"), [])

    assert str(caught.value) == f"{path} exists, expected a new file"


def test_fifty_thousand_rows_are_read_and_patched_in_seconds(write, row):
    path = write([row(m, 512, m % 700 + 1) for m in range(1, 50_001)])
    started = time.process_time()

    result = patch_table(path, {ref: {AVERAGE: "1.0", "Cache Policy": "warm"} for ref in refs(path)})

    assert result.updated == 50_000
    assert time.process_time() - started < 6
