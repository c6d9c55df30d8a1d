"""Checks of finished tables: what is an error, what a warning, and that nothing passes for want of rows."""

from __future__ import annotations

from pathlib import Path

import pytest

from perfcollect_comm.checks import CheckSettings, check_directory
from perfcollect_comm.collectives import collective
from perfcollect_comm.tables import CommRow, export_rows
from perfcollect_comm.topology import Grid, Link, links_of
from perfcollect_core.errors import UsageError

A3 = CheckSettings(links_of("ATLAS_800_A3_752T_128G_DIE", Grid((48, 8, 2))))


def found(directory: Path, settings: CheckSettings | None = None) -> list[str]:
    return [f"{f.severity}: {f.what}" for f in check_directory(directory, settings or CheckSettings())]


def write(directory: Path, op: str, rows: list[CommRow]) -> None:
    export_rows(directory, {collective(op): rows})


def test_a_directory_without_a_table_fails(tmp_path):
    assert found(tmp_path) == ["error: no hcom_*.csv table here"]


def test_a_table_without_a_duration_fails(tmp_path):
    (tmp_path / "hcom_allReduce_.csv").write_text(
        "message_bytes,num_devices,dtype,topology_tier,Duration(us),bandwidth_gbps\n1024,2,DT_BF16,1,0,0\n"
    )

    assert found(tmp_path) == ["error: no row has a duration"]


def test_latency_that_does_not_grow_with_size_means_the_size_was_not_applied(tmp_path):
    write(tmp_path, "reduce_scatter", [CommRow(8 << k, 4, "DT_BF16", 1, 2.05 - k / 100) for k in range(18)])

    errors = [line for line in found(tmp_path) if line.startswith("error")]
    assert len(errors) == 1
    assert "the size grows 131072 times" in errors[0]
    assert errors[0].endswith("size probably not applied")


def test_one_disturbed_small_size_does_not_accuse_a_sound_table(tmp_path):
    rows = [CommRow(1 << k, 2, "DT_BF16", 1, 5.0 + (1 << k) / 1e3) for k in range(7, 21)]
    write(tmp_path, "all_reduce", [CommRow(64, 2, "DT_BF16", 1, 3000.0), *rows])

    assert not [line for line in found(tmp_path) if line.startswith("error")]


def test_a_key_twice_is_an_error(tmp_path):
    write(tmp_path, "all_reduce", [CommRow(1024, 2, "DT_BF16", 1, 5.0)])
    path = tmp_path / "hcom_allReduce_.csv"
    path.write_text(path.read_text() + path.read_text().splitlines()[1] + "\n")

    assert "error: 2 rows of 1024 B, n=2, tier 1: consumers use the first and ignore the rest" in found(
        tmp_path
    )


def test_two_dtypes_in_one_table_are_an_error(tmp_path):
    (tmp_path / "hcom_allReduce_.csv").write_text(
        "message_bytes,num_devices,dtype,topology_tier,Duration(us),bandwidth_gbps\n"
        "1024,2,DT_BF16,1,5.0,0.2\n2048,2,DT_FLOAT,1,5.0,0.4\n"
    )

    assert "error: mixed dtypes DT_BF16, DT_FLOAT: consumers cannot tell them apart" in found(tmp_path)


def test_a_hole_wider_than_factor_two_is_a_warning(tmp_path):
    write(tmp_path, "all_reduce", [CommRow(m, 2, "DT_BF16", 1, m / 100) for m in (1024, 2048, 16384)])

    assert "warning: n=2, tier 1 has a hole between 2048 and 16384 B (ratio 8)" in found(tmp_path)


@pytest.mark.parametrize(("size_mib", "n", "us"), [(40, 16, 3664.6), (3.5, 8, 202.1)])
def test_published_reduce_scatter_values_agree_with_the_estimate_by_their_own_convention(
    tmp_path, size_mib, n, us
):
    write(tmp_path, "reduce_scatter", [CommRow(int(size_mib * 2**20), n, "DT_BF16", 1, us)])

    assert not [line for line in found(tmp_path, A3) if "times the estimate" in line]


def test_a_duration_far_from_the_estimate_is_an_error(tmp_path):
    write(tmp_path, "all_gather", [CommRow(40 << 20, 16, "DT_BF16", 1, 60_000.0)])

    assert [
        line
        for line in found(tmp_path, A3)
        if line.startswith("error") and line.endswith("times the estimate")
    ]


def test_a_bandwidth_above_the_wire_is_a_warning(tmp_path):
    settings = CheckSettings((Link("wire", 10.0, 1.0),), tolerance=1000)
    write(tmp_path, "all_gather", [CommRow(1 << 20, 2, "DT_BF16", 0, 50.0)])

    assert [line for line in found(tmp_path, settings) if "busbw 21 GB/s is above the link's 10 GB/s" in line]


def test_an_all_reduce_slower_than_its_parts_is_a_warning(tmp_path):
    write(tmp_path, "all_reduce", [CommRow(4096, 4, "DT_BF16", 1, 100.0)])
    write(tmp_path, "reduce_scatter", [CommRow(1024, 4, "DT_BF16", 1, 20.0)])
    write(tmp_path, "all_gather", [CommRow(1024, 4, "DT_BF16", 1, 20.0)])

    assert [line for line in found(tmp_path) if "2.50 times a reduce_scatter plus an all_gather" in line]


def test_a_tolerance_below_one_is_refused():
    with pytest.raises(UsageError, match=r"^tolerance 0.5, expected at least 1$"):
        CheckSettings(tolerance=0.5)
