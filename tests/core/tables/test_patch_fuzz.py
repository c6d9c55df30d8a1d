"""Patching tables of any quoting, line ends, marks and blank lines."""

from __future__ import annotations

import csv
import io

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from perfcollect_core.tables.patch import patch_table
from perfcollect_core.tables.read import read_table

COLUMNS = ("OP State", "Input Shapes", "Output Shapes", "Average Duration(us)", "Note")
NEWLINES = st.sampled_from(["\n", "\r\n", "\r"])
TEXT = st.text(alphabet='aé,;" \t\n\r1.', max_size=6)


@st.composite
def cells(draw):
    """One written cell: quoted by need, or always."""
    text = draw(TEXT)
    if draw(st.booleans()) or any(mark in text for mark in ',"\r\n'):
        return '"' + text.replace('"', '""') + '"'
    return text


@st.composite
def tables(draw):
    """The header and records of a table, each with its line end, and blank lines between them."""
    pieces = [",".join(COLUMNS) + draw(NEWLINES)]
    for index in range(draw(st.integers(1, 5))):
        shape = f'"{index + 1},4"' if draw(st.booleans()) else f'"""{index + 1},4"""'
        written = [draw(cells()), shape, shape, draw(cells()), draw(cells())]
        pieces.append(",".join(written) + draw(NEWLINES))
        if draw(st.integers(0, 4)) == 0:
            pieces.append(draw(st.sampled_from(["", "  ", "\t"])) + draw(NEWLINES))
    if draw(st.booleans()):
        pieces[-1] = pieces[-1].rstrip("\r\n") or pieces[-1]
    return ("\ufeff" if draw(st.booleans()) else "") + "".join(pieces)


def records(path):
    return [dict(row.cells) for row in read_table(path).rows]


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=tables(), new=TEXT, column=st.sampled_from([*COLUMNS[3:], "Power(W)"]), which=st.integers(0, 9))
def test_a_patch_changes_one_cell_of_one_row(tmp_path, text, new, column, which):
    path = tmp_path / "Add.csv"
    path.write_bytes(text.encode("utf-8"))
    table = read_table(path)
    before = records(path)
    assert patch_table(path, {}).updated == 0
    assert path.read_bytes() == text.encode("utf-8")

    ref = table.rows[which % len(table.rows)].ref
    index = [row.ref for row in table.rows].index(ref)
    patch_table(path, {ref: {column: new}})

    expected = [{**cells, **({column: ""} if new and column not in cells else {})} for cells in before]
    if new or column in expected[index]:
        expected[index][column] = new
    assert records(path) == expected
    assert path.read_bytes().startswith("\ufeff".encode()) == text.startswith("\ufeff")
    if column in COLUMNS:
        kept = [raw for at, raw in table._pieces if at != index]
        assert [raw for at, raw in read_table(path)._pieces if at != index] == kept


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=tables())
def test_cells_are_what_the_csv_module_reads(tmp_path, text):
    path = tmp_path / "Add.csv"
    path.write_bytes(text.encode("utf-8"))
    plain = [r for r in csv.reader(io.StringIO(text.removeprefix("\ufeff"), newline="")) if len(r) > 1]

    read = [list(cells.values()) for cells in records(path)]

    assert read == plain[1:]
