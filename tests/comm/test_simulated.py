"""Sweeps over a simulated library: what went in comes out, through all ranks, the journal and the tables."""

from __future__ import annotations

import csv
import itertools
import json
from pathlib import Path

import pytest

pytestmark = pytest.mark.torch

GRID = ("--nproc", "4", "--grid-shape", "2", "2", "--check", "off", "--budget", "0.001")
MODEL = {"alpha_us": [30.0, 5.0], "beta_gbps": [20.0, 150.0], "jitter": 0.02}
SIZES = [str(1 << k) for k in range(7, 30)]


def rows(path: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(path.read_text().splitlines()))


def lines(run_dir: Path) -> list[dict]:
    return [json.loads(line) for line in (run_dir / "journal.jsonl").read_text().splitlines()]


def fit(points: list[tuple[float, float]]) -> tuple[float, float]:
    """Return intercept and slope with relative weights: small sizes know the latency, large ones the bandwidth."""
    w = [1 / (y * y) for _, y in points]
    sw = sum(w)
    sx = sum(wi * x for wi, (x, _) in zip(w, points, strict=True))
    sy = sum(wi * y for wi, (_, y) in zip(w, points, strict=True))
    sxx = sum(wi * x * x for wi, (x, _) in zip(w, points, strict=True))
    sxy = sum(wi * x * y for wi, (x, y) in zip(w, points, strict=True))
    slope = (sw * sxy - sx * sy) / (sw * sxx - sx * sx)
    return (sy - slope * sx) / sw, slope


@pytest.fixture
def swept(comm, tmp_path) -> Path:
    outcome = comm(
        *(
            "run",
            "--backend",
            "simulated",
            *GRID,
            "--num-devices",
            "2",
            "--ops",
            "all_gather",
            "--bytes-grid",
            *SIZES,
        ),
        *("--run-dir", "R", "--database-path", "OUT"),
        model=MODEL,
    )
    assert outcome.code == 0, outcome.err
    return tmp_path


def test_latency_and_bandwidth_of_each_tier_are_recovered_within_three_per_cent(swept):
    table = rows(swept / "OUT" / "hcom_allGather_.csv")

    for tier in (0, 1):
        points = [
            (float(row["message_bytes"]), float(row["Duration(us)"]))
            for row in table
            if row["topology_tier"] == str(tier)
        ]
        assert len(points) == 23
        alpha, slope = fit(points)
        # all_gather of m bytes among two moves m bytes over the slowest link; 1 GB/s is 1e3 bytes a microsecond.
        assert alpha == pytest.approx(MODEL["alpha_us"][tier], rel=0.03)
        assert 1 / (slope * 1e3) == pytest.approx(MODEL["beta_gbps"][tier], rel=0.03)


def test_an_interrupted_sweep_ends_in_the_same_table_as_one_that_was_not(comm, tmp_path, swept):
    whole = (swept / "OUT" / "hcom_allGather_.csv").read_bytes()
    journal = swept / "R" / "journal.jsonl"
    kept = journal.read_text().splitlines(keepends=True)[:20]
    journal.write_text("".join(kept) + '{"key": "torn')

    again = comm(
        *(
            "run",
            "--backend",
            "simulated",
            *GRID,
            "--num-devices",
            "2",
            "--ops",
            "all_gather",
            "--bytes-grid",
            *SIZES,
        ),
        *("--run-dir", "R", "--database-path", "AGAIN", "--resume"),
        model=MODEL,
    )

    assert again.code == 0, again.err
    assert "19 done before" in again.out
    assert (tmp_path / "AGAIN" / "hcom_allGather_.csv").read_bytes() == whole


def test_a_rank_that_is_late_in_every_iteration_is_named_and_the_transfer_time_is_kept(comm, tmp_path):
    model = {"alpha_us": [100.0, 100.0], "beta_gbps": [1e9, 1e9], "late_rank": 3, "late_us": 50.0}

    outcome = comm(
        *(
            "run",
            "--backend",
            "simulated",
            *GRID,
            "--num-devices",
            "4",
            "--ops",
            "all_reduce",
            "--bytes-grid",
            "1024",
        ),
        *("--run-dir", "R"),
        model=model,
    )

    (line,) = [line for line in lines(tmp_path / "R") if line.get("state") == "measured"]
    assert outcome.code == 0, outcome.err
    assert line["late_rank"] == 3
    assert line["duration_us"] == pytest.approx(150, abs=0.01)
    assert line["min_over_ranks_us"]["median"] == pytest.approx(100, abs=0.01)
    assert line["skew_median_us"] == pytest.approx(50, abs=0.01)


def test_a_cliff_between_two_sizes_stays_where_it_is(comm, tmp_path):
    sizes = [str(int(65536 * 1.06**k)) for k in range(12)]
    model = {**MODEL, "jitter": 0.0, "cliff_bytes": 90_000, "cliff_factor": 4.0}

    comm(
        *(
            "run",
            "--backend",
            "simulated",
            *GRID,
            "--num-devices",
            "2",
            "--topology-tier",
            "1",
            "--ops",
            "all_gather",
        ),
        *("--bytes-grid", *sizes, "--database-path", "OUT"),
        model=model,
    )

    table = rows(tmp_path / "OUT" / "hcom_allGather_.csv")
    jumps = [
        (int(low["message_bytes"]), int(high["message_bytes"]))
        for low, high in itertools.pairwise(table)
        if float(high["Duration(us)"]) > 2 * float(low["Duration(us)"])
    ]
    assert len(jumps) == 1
    assert jumps[0][0] < 90_000 <= jumps[0][1]
    assert jumps[0][1] / jumps[0][0] < 1.07
