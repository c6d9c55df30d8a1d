"""Reading tables: rows with their physical lines, and every unusable file in one sentence."""

from __future__ import annotations

import pytest

from perfcollect_core.errors import DataError, TableError
from perfcollect_core.tables.read import read_table, scan_table, table_paths


def error_of(path) -> tuple[str, str | None]:
    with pytest.raises(TableError) as caught:
        read_table(path)
    return str(caught.value).replace(str(path), "TABLE"), caught.value.hint


def test_cells_keep_their_text_and_headings_lose_blanks(write, base, row):
    path = write([row(136, 7168, 3584, " 61.0 ")], header=f"{base}, Average Duration(us) ")

    table = read_table(path)

    assert table.header[-1] == "Average Duration(us)"
    assert table.rows[0].cells["Input Shapes"] == '"136,7168;3584,7168"'
    assert table.rows[0].cells["Average Duration(us)"] == " 61.0 "


def test_a_byte_order_mark_is_no_part_of_the_first_heading(write, row):
    table = read_table(write([row(1, 256, 256)], bom=True))

    assert table.header[0] == "OP State"


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
def test_lines_are_physical_with_quoted_newlines_and_blank_lines(write, base, row, newline):
    note = f'"two{newline}lines"'
    path = write(
        [f"{row(64, 512, 512)},{note}", "", f"{row(32, 512, 512)},", f"{row(16, 512, 512)},x"],
        header=f"{base},Average Duration(us),Note",
        newline=newline,
    )

    table = read_table(path)

    assert table.lines == (2, 5, 6)
    assert table.rows[0].cells["Note"] == f"two{newline}lines"


def test_lines_are_physical_where_line_ends_are_mixed(tmp_path, base, row):
    path = tmp_path / "MatMulV2.csv"
    header = f"{base},Average Duration(us)"
    path.write_bytes(f"{header}\n{row(4, 64, 64)}\r\n{row(3, 64, 64)}\r{row(2, 64, 64)}".encode())

    assert read_table(path).lines == (2, 3, 4)


def test_blank_lines_before_the_header_count_as_lines(tmp_path, base, row):
    path = tmp_path / "MatMulV2.csv"
    path.write_bytes(f"\r\n{base},Average Duration(us)\r\n{row(4, 64, 64)}\r\n".encode())

    assert read_table(path).lines == (3,)


def test_equal_keys_are_told_apart_by_occurrence(write, row):
    table = read_table(write([row(1, 512, 512, "18.2"), row(2, 512, 512), row(1, 512, 512, "18.4")]))

    assert [r.ref.occurrence for r in table.rows] == [0, 0, 1]
    assert len({r.ref for r in table.rows}) == 3


def test_older_headings_are_read_under_their_present_name(write, base, row):
    table = read_table(write([row(1, 512, 512, "18.2")], header=f"{base},MicroBench Duration(us)"))

    assert table.rows[0].cells["Average Duration(us)"] == "18.2"


def test_a_row_with_too_many_cells_is_refused_with_its_line(write, row):
    path = write([row(1, 512, 512, "18.2"), row(16, 512, 512, "310.2,1650,21.5,")])

    message, hint = error_of(path)

    assert message == "TABLE line 3: 12 cells, header has 9"
    assert hint == "perfcollect db check lists every such line; correct them by hand"


def test_a_row_with_too_few_cells_is_refused_with_its_line(write, row):
    assert error_of(write(["dynamic,CPU"]))[0] == "TABLE line 2: 2 cells, header has 9"


def test_a_repeated_header_is_refused_even_with_other_columns(write, base, row):
    path = write([row(1, 512, 512), f"{base},Power(W),Clock(MHz),Average Duration(us)"])

    assert error_of(path)[0] == "TABLE line 3: header repeated"


def test_further_torn_lines_are_counted(write, base, row):
    path = write([row(1, 512, 512, "1,2"), f"{base},Average Duration(us)", "short"])

    assert error_of(path)[0] == "TABLE line 2: 10 cells, header has 9 (and 2 more such lines)"


def test_scanning_lists_every_torn_line_and_keeps_the_rows_between(write, base, row):
    path = write([row(1, 512, 512, "1,2"), f"{base},Average Duration(us)", row(2, 512, 512)])

    table = scan_table(path)

    assert [(t.line, t.reason) for t in table.torn] == [
        (2, "10 cells, header has 9"),
        (3, "header repeated"),
    ]
    assert table.lines == (4,)


@pytest.mark.parametrize("newline", [b"\n", b"\r\n"])
def test_a_git_lfs_pointer_is_named_with_the_real_size(tmp_path, newline):
    path = tmp_path / "Add.csv"
    lines = (b"version https://git-lfs.github.com/spec/v1", b"oid sha256:" + b"5" * 64, b"size 16400", b"")
    path.write_bytes(newline.join(lines))

    assert error_of(path) == (
        "TABLE is a Git LFS pointer (real size 16400 bytes), expected a table",
        "run git lfs pull",
    )


@pytest.mark.parametrize("content", [b"", b"\r\n", b"\xef\xbb\xbf", b" \n\n"])
def test_an_empty_file_is_no_table(tmp_path, content):
    path = tmp_path / "Add.csv"
    path.write_bytes(content)

    assert error_of(path)[0] == "TABLE is empty, expected a header"


def test_utf_16_is_named(tmp_path, base):
    for encoding in ("utf-16", "utf-16-le", "utf-16-be"):
        path = tmp_path / "Add.csv"
        path.write_bytes(f"{base}\r\n".encode(encoding))

        assert error_of(path) == ("TABLE is UTF-16, expected UTF-8", "save it again as CSV in UTF-8")


def test_bytes_that_are_not_utf_8_are_named_with_offset_and_line(write, base, row):
    path = write([f"{row(1, 512, 512)},ok"], header=f"{base},Average Duration(us),Note", newline="\n")
    content = path.read_bytes()
    path.write_bytes(content + row(2, 512, 512).encode() + b",\xb4\xf3\n")
    offset = len(content) + len(row(2, 512, 512)) + 1

    message, hint = error_of(path)

    assert message == f"TABLE is not UTF-8: byte 0xb4 at offset {offset}, line 3"
    assert hint == "save it again as CSV in UTF-8"


@pytest.mark.parametrize(
    ("content", "place"),
    [
        (b"\xb4\xf3", "offset 0, line 1"),
        (b"Input Shapes\r\n\xb4", "offset 14, line 2"),
        (b"a\n\nb\xb4", "offset 4, line 3"),
    ],
)
def test_the_line_of_a_bad_byte_counts_from_one(tmp_path, content, place):
    path = tmp_path / "Add.csv"
    path.write_bytes(content)

    assert error_of(path)[0] == f"TABLE is not UTF-8: byte 0xb4 at {place}"


@pytest.mark.parametrize(("separator", "word"), [(";", "';'"), ("\t", "a tab")])
def test_a_spreadsheet_dialect_is_named(write, separator, word):
    columns = ["OP State", "Input Shapes", "Output Shapes", "Average Duration(us)"]
    path = write(["dynamic;x;y;61,4"], header=separator.join(columns))

    message, hint = error_of(path)

    assert message == f"TABLE is separated by {word}, expected ','"
    assert hint == "the file was saved by a spreadsheet; export it again with commas and decimal points"


def test_a_header_without_input_shapes_is_refused(write):
    path = write(["dynamic,CPU,61.0"], header="OP State,Accelerator Core,Average Duration(us)")

    message, _ = error_of(path)

    assert message == (
        "TABLE line 1: no column 'Input Shapes', 'Output Shapes', "
        "the header has 'OP State', 'Accelerator Core', 'Average Duration(us)'"
    )


def test_a_column_that_stands_twice_is_refused(write, base, row):
    path = write([row(1, 512, 512, "1,2")], header=f"{base},Average Duration(us),Average Duration(us)")

    assert error_of(path)[0] == "TABLE line 1: column 'Average Duration(us)' stands twice in the header"


def test_a_quote_that_is_never_closed_is_refused_with_its_line(write, row):
    path = write([row(1, 512, 512), 'dynamic,CPU,"1,512', "2,512"])

    assert error_of(path)[0] == "TABLE line 3: a quoted cell is never closed"


def test_an_unterminated_last_line_is_a_row(write, row):
    path = write([row(1, 512, 512)])
    path.write_bytes(path.read_bytes() + row(2, 512, 512, "7.5").encode())

    assert read_table(path).rows[1].cells["Average Duration(us)"] == "7.5"


def test_a_missing_table_is_refused(tmp_path):
    assert error_of(tmp_path / "Add.csv")[0] == "TABLE cannot be read: No such file or directory"


def test_only_csv_files_directly_in_the_database_are_tables(write, tmp_path, row):
    write([row(1, 512, 512)])
    write([row(1, 512, 512)], name="hcom_allReduce_.csv")
    for name in ("MatMulV2.csv.partial", "._MatMulV2.csv", "notes.txt"):
        (tmp_path / name).write_text("x")
    write([row(1, 512, 512)], directory=tmp_path / "backup")
    (tmp_path / "folder.csv").mkdir()

    assert [path.name for path in table_paths(tmp_path)] == ["MatMulV2.csv"]
    assert [path.name for path in table_paths(tmp_path, collectives=True)] == [
        "MatMulV2.csv",
        "hcom_allReduce_.csv",
    ]


def test_a_missing_database_is_named(tmp_path):
    with pytest.raises(DataError) as caught:
        table_paths(tmp_path / "gone")

    assert str(caught.value) == f"database {tmp_path / 'gone'} cannot be read: No such file or directory"
