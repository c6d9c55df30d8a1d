"""From samples to stored numbers."""

from __future__ import annotations

import math
import random
import statistics

import attrs
import pytest

from perfcollect_core.measurements import Measurement, Samples, Statistics
from perfcollect_core.runner.statistics import (
    achieved_cache,
    median_interval,
    merge_passes,
    relative_half_width,
    split_warmup,
    summarise,
)

MIB = 1 << 20
#: Thirty launches, the first three of which compiled (case B32).
FIRST_CALLS = (1_520_000.0, 97.0, 42.0)
STEADY = tuple([20.3, 20.4] + [20.0, 20.1, 20.2, 20.3, 20.4] * 5)


def test_the_summary_of_samples_is_right():
    found = summarise([20.0, 20.1, 20.2, 20.3, 20.4] * 6)

    assert found.n == 30
    assert found.min == 20.0
    assert found.p10 == 20.0
    assert found.median == 20.2
    assert found.mean == pytest.approx(20.2)
    assert found.mad == pytest.approx(0.1)


def test_p10_lies_between_order_statistics():
    assert summarise([float(i) for i in range(1, 12)]).p10 == 2.0
    assert summarise([10.0, 20.0]).p10 == pytest.approx(11.0)


@pytest.mark.parametrize("bad", [0.0, -1.0, math.nan, math.inf])
def test_a_sample_that_is_no_duration_is_refused(bad):
    with pytest.raises(ValueError) as caught:
        summarise([20.0, bad])

    assert str(caught.value) == f"sample {bad!r} us, expected a finite positive duration"


def test_no_sample_is_refused():
    with pytest.raises(ValueError) as caught:
        summarise([])

    assert str(caught.value) == "no sample, expected at least one duration"


@pytest.mark.parametrize(("name", "value"), [("min", 1.0), ("p10", 2.0), ("median", 3.0), ("mean", 4.0)])
def test_the_statistic_asked_for_is_the_value(name, value):
    made = Statistics(n=9, min=1.0, p10=2.0, median=3.0, mean=4.0, mad=0.1)

    assert Measurement(Samples(), made, statistic=name).value_us == value


# Ranks of the 95 % interval of a median as statistical tables give them, from 1.
@pytest.mark.parametrize(
    ("count", "low", "high"),
    [(6, 1, 6), (8, 1, 8), (9, 2, 8), (10, 2, 9), (20, 6, 15), (30, 10, 21), (100, 40, 61)],
)
def test_the_interval_of_the_median_has_the_tabulated_ranks(count, low, high):
    values = [float(i) for i in range(1, count + 1)]
    random.Random(1).shuffle(values)

    assert median_interval(values) == (low, high)


@pytest.mark.parametrize("count", [0, 1, 5])
def test_too_few_samples_have_no_interval(count):
    assert median_interval([1.0] * count) is None
    assert relative_half_width([1.0] * count) == math.inf


@pytest.mark.parametrize("count", [12, 40, 250, 1000])
def test_the_interval_covers_the_true_median_of_skewed_noise(count):
    draw = random.Random(count)
    covered = 0
    for _ in range(400):
        low, high = median_interval([draw.expovariate(1.0) for _ in range(count)]) or (0.0, 0.0)
        covered += low <= math.log(2) <= high

    assert covered / 400 >= 0.93


def test_compiling_first_calls_are_split_off_and_reported_apart():
    first, steady = split_warmup(FIRST_CALLS + STEADY)

    assert first == FIRST_CALLS
    found = summarise(steady)
    assert found.n == 27
    assert found.mean == pytest.approx(20.211111, abs=1e-6)
    assert found.median == 20.2


def test_the_mean_over_compile_time_is_never_among_the_statistics():
    trap = statistics.fmean(FIRST_CALLS + STEADY)

    _, steady = split_warmup(FIRST_CALLS + STEADY)

    assert trap == pytest.approx(50_689.49, abs=0.01)
    assert max(attrs.astuple(summarise(steady))) < 30


def test_an_outlier_later_on_is_noise_and_stays():
    samples = (*STEADY[:10], 500.0, *STEADY[10:])

    assert split_warmup(samples) == ((), samples)


def test_noise_of_a_memory_bound_kernel_is_not_taken_for_warm_up():
    draw = random.Random(3)
    samples = tuple(650.0 * (1 + 0.3 * draw.random()) for _ in range(40))

    assert split_warmup(samples) == ((), samples)


@pytest.mark.parametrize("samples", [(), (20.0,), (1_520_000.0, 20.0, 20.0)])
def test_a_handful_of_samples_is_not_split(samples):
    assert split_warmup(samples) == ((), samples)


def test_at_most_a_quarter_of_the_samples_is_taken_for_warm_up():
    samples = tuple([90.0] * 10 + [20.0] * 20)

    first, steady = split_warmup(samples)

    assert len(first) == 7
    assert first + steady == samples


@pytest.mark.parametrize(
    ("arguments", "claim", "warning"),
    [
        ({"evicted_bytes": 256 * MIB, "cache_bytes": 192 * MIB}, "cold", None),
        (
            # 64 rotating copies of 640 KiB under an L2 of 192 MiB (case B32).
            {"evicted_bytes": 64 * 640 * 1024, "cache_bytes": 192 * MIB},
            "cold requested, not achieved",
            "40 MiB touched between launches fit in a last-level cache of 192 MiB",
        ),
        (
            {"evicted_bytes": 256 * MIB, "cache_bytes": None},
            "cold requested, not achieved",
            "the size of the last-level cache is not known",
        ),
        (
            {"evicted_bytes": 256 * MIB, "cache_bytes": 192 * MIB, "batched": True},
            "cold requested, not achieved",
            "launches were timed in batches on the same operands, so all but the first ran warm",
        ),
    ],
)
def test_cold_is_claimed_only_where_the_cache_was_exceeded(arguments, claim, warning):
    assert achieved_cache("cold", **arguments) == (claim, warning)


def test_warm_needs_no_proof():
    assert achieved_cache("warm", evicted_bytes=0, cache_bytes=None) == ("warm", None)


def test_passes_weigh_the_same_however_long_they_were():
    short = Samples((10.0,) * 10, stop="precision", launches=10)
    long = Samples((12.0,) * 90, stop="precision", launches=90)

    merged = merge_passes([short, long])

    assert merged.durations_us.count(10.0) == merged.durations_us.count(12.0) == 10
    assert summarise(merged.durations_us).median == 11.0
    assert merged.stop == "precision"
    assert merged.launches == 100


def test_one_pass_is_itself():
    only = Samples((10.0, 11.0))

    assert merge_passes([only]) is only


def test_no_pass_is_refused():
    with pytest.raises(ValueError) as caught:
        merge_passes([])

    assert str(caught.value) == "no pass to merge, expected at least one"


def test_one_pass_out_of_budget_or_flagged_marks_the_whole():
    first = Samples((10.0,), stop="precision", flags=("a",), counters={"Power(W)": 300.0})
    second = Samples((10.0,), stop="budget", flags=("a", "b"), counters={"Power(W)": (310.0, 320.0)})

    merged = merge_passes([first, second])

    assert merged.stop == "budget"
    assert merged.flags == ("a", "b")
    assert merged.counters == {"Power(W)": (300.0, 310.0, 320.0)}


def test_a_pass_that_was_not_cold_spoils_the_claim():
    passes = [Samples((10.0,), cache="cold"), Samples((10.0,), cache="cold requested, not achieved")]

    assert merge_passes(passes).cache == "cold requested, not achieved"


def test_interleaved_passes_shrink_what_repeats_inside_a_process_do_not():
    draw = random.Random(11)

    def visit() -> Samples:
        level = 100 * (1 + 0.05 * draw.gauss(0, 1))
        return Samples(tuple(level + draw.random() for _ in range(30)))

    def spread(passes: int) -> float:
        values = [
            summarise(merge_passes([visit() for _ in range(passes)]).durations_us).median for _ in range(200)
        ]
        return statistics.stdev(values) / statistics.fmean(values)

    assert spread(9) < 0.6 * spread(1)
