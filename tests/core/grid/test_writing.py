"""Lines of generated rows, their order, and files that change together or not at all."""

from __future__ import annotations

import pytest

from perfcollect_core.cases import Row, RowRef
from perfcollect_core.errors import TableError
from perfcollect_core.grid.budget import parse_budget, row_bytes
from perfcollect_core.grid.cells import LineWriter, cells_of
from perfcollect_core.grid.spool import Spool
from perfcollect_core.grid.theory import TheoryRow, find_forms, form
from perfcollect_core.tables.atomic import COMMIT_FILE, commit_staged, stage_file
from perfcollect_core.tables.extend import extended_text, plan_extension
from perfcollect_core.tables.lock import database_lock
from perfcollect_core.tables.read import read_table

HEADER = (
    "OP State,Accelerator Core,Input Shapes,Input Data Types,Input Formats,Output Shapes,Output Data Types,"
    "Output Formats,Average Duration(us),Runtime attn_state,aicore_time(us),Notes,Grid Rule"
)
FORM = form("DT_BF16;DT_BF16", "DT_BF16")
GEMM = TheoryRow(
    ((16, 5120), (768, 5120)), ((16, 768),), FORM, "gemm Qwen/Qwen3-32B qkv tp 16", (16, 768, 5120)
)


def template(dtypes: str, formats: str = "ND;ND", shapes: str = "16,64;32,64", rule: str = "") -> Row:
    cells = {
        "OP State": "static", "Input Shapes": f'"{shapes}"', "Input Data Types": dtypes, "Input Formats": formats,
        "Output Shapes": '"16,32"', "Output Data Types": dtypes.split(";")[0], "Output Formats": "ND",
        "Grid Rule": rule,
    }  # fmt: skip
    return Row(RowRef("MatMulV2.csv", (dtypes, formats)), cells)


def test_a_line_has_zero_in_durations_nothing_in_words_and_its_rule_at_the_end():
    line = LineWriter(HEADER.split(","), "\r\n").line(GEMM)

    assert line == (
        'dynamic,,"""16,5120;768,5120""",DT_BF16;DT_BF16,ND;ND,"""16,768""",DT_BF16,ND,0,,0,,'
        "gemm Qwen/Qwen3-32B qkv tp 16\r\n"
    )


def test_metadata_with_commas_is_quoted_and_a_percent_sign_survives():
    row = GEMM._replace(extra={"Runtime attn_state": "1,2"}, rule="50 %, half")

    line = LineWriter(HEADER.split(","), "").line(row)

    assert line.endswith(',ND,0,"1,2",0,,"50 %, half"')


def test_forms_come_from_the_rows_by_variant_and_not_by_position():
    rows = [template("FLOAT;FLOAT"), template("DT_BF16;DT_BF16"), template("FLOAT;FLOAT")]

    forward, backward = find_forms(rows, FORM), find_forms(rows[::-1], FORM)

    assert forward == backward
    assert [one.input_dtypes for one in forward] == [("DT_BF16", "DT_BF16"), ("FLOAT", "FLOAT")]
    assert {one.state for one in forward} == {"static"}


def test_a_row_of_other_slots_gives_no_form():
    rows = [template("DT_BF16;DT_BF16;DT_BF16", "ND;ND;ND", "16,64;32,64;32")]

    assert find_forms(rows, FORM) == (FORM,)


def test_bytes_count_each_tensor_once_and_a_cache_written_in_place_once():
    cache = (64, 128, 8, 128)
    write = TheoryRow(
        ((16, 8, 128), (16, 8, 128), cache, cache, (16,)),
        (cache, cache),
        form("DT_BF16;DT_BF16;DT_BF16;DT_BF16;INT32", "DT_BF16;DT_BF16"),
        "reshape_and_cache",
    )

    assert row_bytes(GEMM) == 2 * (16 * 5120 + 768 * 5120 + 16 * 768)
    assert row_bytes(write) == 2 * (2 * 16 * 8 * 128 + 2 * 64 * 128 * 8 * 128) + 16 * 4


@pytest.mark.parametrize(
    ("gib", "count"), [(1.0, 2**30), (0, 0), (-1, 0), (float("nan"), 0), (float("inf"), 0)]
)
def test_a_budget_of_nothing_or_no_number_is_none(gib, count):
    assert parse_budget(gib) == count


@pytest.mark.parametrize("run", [2, 1000])
def test_lines_come_in_consumer_order_whether_or_not_they_go_to_disk(run):
    spool = Spool(run)
    for n, line in ((8, "b"), (64, "x"), (8, "a"), (16, "y"), (8, "b")):
        spool.add(((n, 4),), ((n, 2),), line, 1)

    found = [line for _, line, _ in spool.ordered()]
    spool.close()

    assert found == ["x", "y", "a", "b"]


def test_rows_of_a_table_keep_their_bytes_when_lines_come_between_them(tmp_path):
    path = tmp_path / "Neg.csv"
    path.write_bytes(
        b'\xef\xbb\xbfInput Shapes,Output Shapes,Notes\n"8,4","8,4",kept  as,\n'.replace(
            b",kept  as,", b',"kept  as"'
        )
        + b'"64,4","64,4",first\n'
    )
    extension = plan_extension(read_table(path), ["Input Shapes", "Output Shapes", "Grid Rule"])

    lines = [((((16, 4),), ((16, 4),)), '"""16,4""","""16,4""",,rule\n')]
    text = "".join(extended_text(extension, lines)).encode()

    assert text.splitlines() == [
        b"\xef\xbb\xbfInput Shapes,Output Shapes,Notes,Grid Rule",
        b'"64,4","64,4",first,',
        b'"""16,4""","""16,4""",,rule',
        b'"8,4","8,4","kept  as",',
    ]


def test_staged_files_are_put_in_place_together(tmp_path):
    one, two = tmp_path / "A.csv", tmp_path / "B.csv"
    one.write_text("old a")

    commit_staged(tmp_path, [stage_file(one, [b"new a"]), stage_file(two, [b"new ", b"b"])])

    assert (one.read_text(), two.read_text()) == ("new a", "new b")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["A.csv", "B.csv"]


def test_where_one_file_cannot_be_replaced_all_are_as_they_were(tmp_path):
    one, two = tmp_path / "A.csv", tmp_path / "B.csv"
    one.write_text("old a")
    staged = [stage_file(one, [b"new a"]), stage_file(two, [b"new b"])]
    two.mkdir()
    (two / "in the way").write_text("")

    with pytest.raises(TableError) as caught:
        commit_staged(tmp_path, staged)

    assert str(caught.value) == f"{two} cannot be replaced: Is a directory"
    assert caught.value.hint.startswith("no file was changed")
    assert one.read_text() == "old a"
    assert not list(tmp_path.glob("*.partial"))


def test_a_read_only_file_is_not_replaced(tmp_path):
    path = tmp_path / "A.csv"
    path.write_text("old")
    path.chmod(0o444)

    with pytest.raises(TableError) as caught:
        stage_file(path, [b"new"])

    assert str(caught.value) == f"{path} cannot be written: Permission denied"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["A.csv"]


def test_the_next_writer_finishes_what_a_killed_one_had_decided(tmp_path):
    one, two = tmp_path / "A.csv", tmp_path / "B.csv"
    one.write_text("old a")
    two.write_text("old b")
    staged = [stage_file(one, [b"new a"]), stage_file(two, [b"new b"])]
    entries = [[str(s.partial), str(s.target)] for s in staged]
    (tmp_path / COMMIT_FILE).write_text(str(entries).replace("'", '"'))
    staged[0].partial.replace(one)  # killed here

    with database_lock(tmp_path):
        pass

    assert (one.read_text(), two.read_text()) == ("new a", "new b")


def test_the_next_writer_drops_what_a_killed_one_had_only_staged(tmp_path):
    path = tmp_path / "A.csv"
    path.write_text("old a")
    stage_file(path, [b"new a"])

    with database_lock(tmp_path):
        pass

    assert path.read_text() == "old a"
    assert not list(tmp_path.glob("*.partial"))


def test_cells_of_a_row_and_its_line_say_the_same():
    cells = cells_of(GEMM)

    assert cells["Input Shapes"] == '"16,5120;768,5120"'
    assert cells["Grid Rule"] == "gemm Qwen/Qwen3-32B qkv tp 16"
