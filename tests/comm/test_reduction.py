"""Samples of all ranks reduced to what the job sees, what the transfer takes, and who came late."""

from __future__ import annotations

import pytest

from perfcollect_comm.reduction import arrival_skew_us, reduce_samples
from perfcollect_core.errors import DataError


def started_late() -> dict[int, list[float]]:
    """Eight ranks whose profilers start up to 12.5 s apart, then repeat 40.2 / 40.0 us, each rank 0.1 us later."""
    steady = [40.2, 40.0] * 4 + [40.2]
    return {rank: [12_480_000.0 if rank < 5 else 42.0, *(v + rank / 10 for v in steady)] for rank in range(8)}


def test_the_iteration_in_which_ranks_start_up_is_left_out_and_reported():
    reduced = reduce_samples(started_late())

    assert reduced.rejected == (0,)
    assert reduced.largest.n == 9


def test_largest_and_smallest_over_ranks_are_reduced_apart():
    reduced = reduce_samples(started_late())

    assert (reduced.largest.median, reduced.largest.mean) == pytest.approx((40.9, 40.811111), abs=1e-6)
    assert (reduced.smallest.median, reduced.smallest.mean) == pytest.approx((40.2, 40.111111), abs=1e-6)
    assert reduced.largest.std == pytest.approx(0.099381, abs=1e-6)


def test_the_rank_that_waits_least_is_the_late_one():
    reduced = reduce_samples({0: [150.0] * 10, 1: [150.0] * 10, 2: [150.0] * 10, 3: [100.0] * 10})

    assert reduced.duration_us == 150
    assert reduced.smallest.median == 100
    assert reduced.skew_median_us == 50
    assert reduced.late_rank == 3


def test_ranks_that_arrive_together_name_nobody():
    assert reduce_samples({0: [100.0] * 5, 1: [101.0] * 5}).late_rank is None


def test_one_slow_iteration_in_the_middle_is_kept():
    reduced = reduce_samples({0: [10.0, 10.0, 900.0, 10.0], 1: [10.0, 10.0, 900.0, 10.0]})

    assert reduced.rejected == ()
    assert reduced.largest.max == 900


def test_skew_across_hosts_is_unknown_without_a_measured_offset():
    ends = {rank: ("h0" if rank < 4 else "h1", 1e15 + (0 if rank < 4 else 730)) for rank in range(8)}

    assert arrival_skew_us(ends) is None
    assert arrival_skew_us(ends, {"h0": 0.0, "h1": 730.0}) == 0
    assert arrival_skew_us({rank: ends[rank] for rank in range(4)}) == 0


@pytest.mark.parametrize("bad", [0.0, -1.0, float("nan"), float("inf")])
def test_a_duration_that_cannot_be_is_refused(bad):
    with pytest.raises(DataError, match="expected a finite positive number of microseconds"):
        reduce_samples({0: [1.0, bad], 1: [1.0, 1.0]})


def test_ranks_with_different_numbers_of_samples_are_refused():
    with pytest.raises(DataError, match="different numbers of samples"):
        reduce_samples({0: [1.0], 1: [1.0, 1.0]})
