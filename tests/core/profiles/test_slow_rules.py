"""The streamed pipeline and a second, slow computation of the rules agree in every cell."""

from __future__ import annotations

import math

import pytest


def same_cell(ours: str, theirs: str) -> bool:
    if ours == theirs:
        return True
    try:
        return math.isclose(float(ours), float(theirs), rel_tol=1e-9, abs_tol=1.0001e-6)
    except ValueError:
        return False


def by_key(rows):
    columns = ("Input Shapes", "Input Data Types", "Input Formats", "Output Shapes", "Output Data Types")
    keyed = {tuple(row[column] for column in columns): row for row in rows}
    assert len(keyed) == len(rows)
    return keyed


@pytest.mark.parametrize(("bom", "line_end"), [(False, "\n"), (True, "\r\n")])
def test_ten_thousand_rows_equal_the_slow_computation(made, slow, parse, read_rows, tmp_path, bom, line_end):
    source = made.write(tmp_path / "kernel_details.csv", made.synthetic(10_000), bom=bom, line_end=line_end)
    expected, counts = slow.database(source)

    done = parse(source, tmp_path / "db")

    assert done.code == 0
    (account,) = done.json["files"]
    assert account["rows_used"] == counts["used"]
    assert account["rows_set_aside"] == counts["aside"]
    assert account["rows_apart"] == counts["collective"] + counts["no_shape"]
    assert account["adds_up"]
    tables = {path.stem: read_rows(path) for path in (tmp_path / "db").glob("*.csv")}
    assert set(tables) == set(expected)
    for name, rows in tables.items():
        ours, theirs = by_key(rows), by_key(expected[name])
        assert set(ours) == set(theirs)
        for key, row in ours.items():
            known = theirs[key]
            different = {
                column: (row[column], known[column])
                for column in known
                if not same_cell(row[column], known[column])
            }
            assert not different, key


@pytest.mark.parametrize("piece_bytes", [700, 5_000, 100_000])
def test_the_size_of_a_piece_changes_nothing(made, parse, tmp_path, monkeypatch, piece_bytes):
    from perfcollect_core.profiles import frames

    source = made.write(tmp_path / "kernel_details.csv", made.synthetic(800))
    parse(source, tmp_path / "whole")
    stream = frames.stream_pieces
    monkeypatch.setattr(
        "perfcollect_core.profiles.collecting.stream_pieces",
        lambda header, columns, **options: stream(header, columns, piece_bytes=piece_bytes, **options),
    )

    parse(source, tmp_path / "pieces")

    for path in (tmp_path / "whole").glob("*.csv"):
        assert path.read_bytes() == (tmp_path / "pieces" / path.name).read_bytes()
