"""The hcom_* tables, and an independent statement of how a consumer looks a duration up."""

from __future__ import annotations

import csv
import math
from pathlib import Path

import pytest

from perfcollect_comm.collectives import collective
from perfcollect_comm.tables import CommRow, export_rows, merge_rows, read_rows, render_rows
from perfcollect_core.errors import TableError, UsageError


def look_up(path: Path, message_bytes: int, n: int, tier: int) -> float | None:
    """The consumer's rules, written from its description alone: exact first row, bracket, no extrapolation."""
    with path.open(newline="") as stream:
        rows = [
            (int(r["message_bytes"]), float(r["Duration(us)"]))
            for r in csv.DictReader(stream)
            if int(r["num_devices"]) == n and int(r["topology_tier"]) == tier
        ]
    rows = [(m, d) for m, d in rows if math.isfinite(d) and d > 0]
    for m, duration in rows:
        if m == message_bytes:
            return duration
    below = max((row for row in rows if row[0] < message_bytes), default=None)
    above = min((row for row in rows if row[0] > message_bytes), default=None)
    if below is None or above is None:
        return None
    share = (message_bytes - below[0]) / (above[0] - below[0])
    return below[1] + share * (above[1] - below[1])


@pytest.fixture
def table(tmp_path: Path) -> Path:
    rows = [CommRow(1 << k, n, "DT_BF16", 1, 10.0 + k * n) for n in (2, 4) for k in range(7, 12)]
    (path,) = export_rows(tmp_path / "db", {collective("all_reduce"): rows})
    return path


def test_a_consumer_finds_each_key_and_brackets_between_sizes(table):
    assert look_up(table, 512, 4, 1) == 46
    assert look_up(table, 768, 4, 1) == pytest.approx(48)
    assert look_up(table, 64, 4, 1) is None
    assert look_up(table, 1 << 20, 4, 1) is None
    assert look_up(table, 512, 8, 1) is None
    assert look_up(table, 512, 4, 0) is None


def test_an_hccl_table_has_the_six_columns_and_no_other():
    text = render_rows([CommRow(1024, 2, "DT_BF16", 2, 12.5)]).decode()

    assert text.splitlines()[0] == "message_bytes,num_devices,dtype,topology_tier,Duration(us),bandwidth_gbps"
    assert text.splitlines()[1] == "1024,2,DT_BF16,2,12.50,0.081920"


def test_tables_of_another_library_say_so_in_a_seventh_column():
    text = render_rows([CommRow(1024, 2, "DT_BF16", 2, 12.5, "gloo")]).decode()

    assert text.splitlines()[0].endswith(",Backend")
    assert text.splitlines()[1].endswith(",gloo")


def test_measuring_again_replaces_the_key(table):
    export_rows(table.parent, {collective("all_reduce"): [CommRow(512, 4, "DT_BF16", 1, 99.0)]})

    rows = read_rows(table)
    assert len(rows) == 10
    assert look_up(table, 512, 4, 1) == 99


def test_rows_are_sorted_by_group_tier_and_size():
    rows = merge_rows(
        [CommRow(2048, 4, "DT_BF16", 1, 1.0)],
        [CommRow(1024, 4, "DT_BF16", 1, 1.0), CommRow(8, 2, "DT_BF16", 2, 1.0)],
    )

    assert [row.key for row in rows] == [(8, 2, 2), (1024, 4, 1), (2048, 4, 1)]


def test_a_second_dtype_is_refused_and_changes_nothing(table):
    before = table.read_bytes()

    with pytest.raises(UsageError) as caught:
        export_rows(table.parent, {collective("all_reduce"): [CommRow(512, 4, "DT_FLOAT", 1, 9.0)]})

    assert str(caught.value) == (
        "two values of dtype in one table, DT_BF16 and DT_FLOAT: consumers could not tell them apart"
    )
    assert table.read_bytes() == before


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_a_git_lfs_pointer_is_named_as_one(tmp_path, end):
    path = tmp_path / "hcom_allReduce_.csv"
    path.write_bytes(
        f"version https://git-lfs.github.com/spec/v1{end}oid sha256:00{end}size 16400{end}".encode()
    )

    with pytest.raises(TableError, match="Git LFS pointer"):
        read_rows(path)


def test_a_cell_that_is_no_number_names_file_and_line(tmp_path):
    path = tmp_path / "hcom_allReduce_.csv"
    path.write_text("message_bytes,num_devices,Duration(us)\n1024,2,1.0\n2048,two,1.0\n")

    with pytest.raises(TableError) as caught:
        read_rows(path)

    assert caught.value.line == 3
