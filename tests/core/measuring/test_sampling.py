"""The measuring loop, on a clock that is scripted: nothing here waits."""

from __future__ import annotations

import gc
import itertools
import queue
import random
from concurrent.futures import ThreadPoolExecutor

import pytest

from perfcollect_core.families.sampling import Eviction, measure_samples
from perfcollect_core.measurements import Kernel, Plan, Samples
from perfcollect_core.testing.scripted_clock import ScriptedClock

MIB = 1 << 20


def nothing() -> None:
    return None


IDLE = Kernel(call=nothing)


def noise(level: float, spread: float, count: int = 30_000) -> list[float]:
    draw = random.Random(7)
    return [level * (1 + spread * draw.uniform(-1, 1)) for _ in range(count)]


def test_a_steady_kernel_stops_as_soon_as_its_median_is_known():
    samples = measure_samples(IDLE, Plan(), ScriptedClock(steady_us=20_000.0))

    assert samples.stop == "precision"
    assert samples.durations_us == (20_000.0,) * 10
    assert samples.inner == 1
    assert samples.flags == ()


@pytest.mark.parametrize(
    ("steady_us", "fewest", "most"), [(625.0, 40, 60), (30.0, 300, 400), (1.0, 250, 400)]
)
def test_samples_of_a_short_kernel_span_more_than_a_burst_of_noise(steady_us, fewest, most):
    samples = measure_samples(IDLE, Plan(), ScriptedClock(steady_us=steady_us))

    assert samples.stop == "precision"
    assert fewest <= len(samples.durations_us) <= most


def test_a_noisy_kernel_is_repeated_until_the_interval_is_narrow():
    from perfcollect_core.runner.statistics import relative_half_width

    samples = measure_samples(IDLE, Plan(max_seconds=60), ScriptedClock(script=noise(650.0, 0.2)))

    assert samples.stop == "precision"
    assert len(samples.durations_us) > 100
    assert relative_half_width(samples.durations_us) <= 0.01


def test_a_spent_budget_ends_measuring_and_is_named():
    clock = ScriptedClock(script=noise(650.0, 0.9))

    samples = measure_samples(IDLE, Plan(precision=0.0001, max_seconds=0.5), clock)

    assert samples.stop == "budget"
    assert clock.seconds() == pytest.approx(0.5, abs=0.05)


@pytest.mark.parametrize("repeat", [1, 7, 300])
def test_a_given_repeat_count_gives_exactly_that_many_samples(repeat):
    samples = measure_samples(IDLE, Plan(repeat=repeat, max_seconds=0.001), ScriptedClock(steady_us=400.0))

    assert samples.stop == "repeat"
    assert len(samples.durations_us) == repeat
    assert samples.launches == repeat


def test_a_kernel_slower_than_the_budget_is_still_measured_three_times():
    samples = measure_samples(IDLE, Plan(max_seconds=2.0), ScriptedClock(steady_us=900_000.0))

    assert samples.durations_us == (900_000.0,) * 3
    assert samples.stop == "budget"


def test_a_kernel_whose_single_call_exceeds_the_budget_is_measured_once():
    clock = ScriptedClock(steady_us=5_000_000.0)

    samples = measure_samples(IDLE, Plan(max_seconds=2.0), clock)

    assert samples.durations_us == (5_000_000.0,)
    assert clock.calls == 2


def test_a_compiling_first_call_is_warm_up_and_not_in_any_sample():
    clock = ScriptedClock(script=[1_520_000.0, 97.0, 42.0], steady_us=20.2)

    samples = measure_samples(IDLE, Plan(max_seconds=30), clock)

    assert samples.warmup_us[:3] == (1_520_000.0, 97.0, 42.0)
    assert set(samples.durations_us) == {20.2}


def test_first_calls_that_no_warm_up_caught_are_split_off_the_samples():
    clock = ScriptedClock(script=[20.2, 1_520_000.0, 97.0, 42.0], steady_us=20.2)

    samples = measure_samples(IDLE, Plan(repeat=30, warmup=0), clock)

    assert samples.warmup_us == (1_520_000.0, 97.0, 42.0)
    assert samples.durations_us == (20.2,) * 27


def test_warm_up_goes_on_while_the_kernel_is_getting_faster():
    falling = [2000.0 - 100 * i for i in range(15)]

    samples = measure_samples(IDLE, Plan(warmup=3), ScriptedClock(script=falling, steady_us=600.0))

    assert set(samples.durations_us) == {600.0}


def test_warm_up_waits_for_the_clock_to_ramp():
    clock = ScriptedClock(steady_us=9_000.0, shares=[0.4, 0.6, 0.8, 1.0])

    samples = measure_samples(IDLE, Plan(), clock)

    assert samples.flags == ()
    assert set(samples.durations_us) == {9_000.0}


def test_warm_up_of_none_runs_nothing_before_the_samples():
    clock = ScriptedClock(steady_us=500.0)

    samples = measure_samples(IDLE, Plan(warmup=0, repeat=5), clock)

    assert samples.warmup_us == ()
    assert clock.calls == 6  # one call tells how long it takes


def test_samples_of_a_throttled_device_are_flagged_with_count_and_lowest_clock():
    clock = ScriptedClock(steady_us=20_000.0, shares=[1.0] * 6 + [0.7])

    samples = measure_samples(IDLE, Plan(repeat=10), clock)

    (flag,) = samples.flags
    assert flag.startswith("clock below 95 % of nominal in ")
    assert flag.endswith(" of 10 samples (lowest 70 %)")


def test_what_the_device_says_about_throttling_is_a_flag():
    clock = ScriptedClock(steady_us=625.0, reasons=("held down by its power cap",))

    assert measure_samples(IDLE, Plan(repeat=4), clock).flags == (
        "held down by its power cap in 4 of 4 samples",
    )


def test_unreadable_clocks_flag_nothing():
    assert measure_samples(IDLE, Plan(repeat=5), ScriptedClock(steady_us=50.0)).flags == ()


@pytest.mark.parametrize(("steady_us", "inner"), [(0.5, 200), (2.0, 50), (9.9, 11), (10.1, 1), (600.0, 1)])
def test_kernels_below_ten_microseconds_are_timed_in_batches(steady_us, inner):
    samples = measure_samples(IDLE, Plan(repeat=5), ScriptedClock(steady_us=steady_us))

    assert samples.inner == inner
    assert samples.launches == 5 * inner
    assert samples.durations_us == pytest.approx((steady_us,) * 5)


def test_batching_divides_the_cost_of_reading_the_clock():
    clock = ScriptedClock(steady_us=0.8, overhead_us=0.2)

    samples = measure_samples(IDLE, Plan(repeat=5), clock)

    assert samples.durations_us[0] == pytest.approx(0.8, rel=0.01)


def test_a_kernel_with_a_reset_is_never_batched_and_its_reset_is_not_timed():
    resets = itertools.count()
    kernel = Kernel(call=nothing, reset=lambda: next(resets) and None)
    clock = ScriptedClock(steady_us=3.0, before_us=500.0)

    samples = measure_samples(kernel, Plan(repeat=20), clock)

    assert samples.inner == 1
    assert samples.durations_us == (3.0,) * 20
    assert next(resets) == clock.calls
    assert samples.flags == ("shorter than 10 us and timed one by one",)


def test_cold_runs_the_flush_before_every_launch_and_outside_the_number():
    flushes = itertools.count()
    eviction = Eviction(lambda: next(flushes) and None, 128 * MIB, 64 * MIB)
    clock = ScriptedClock(steady_us=27.4, before_us=4_000.0)

    samples = measure_samples(IDLE, Plan(cache="cold", repeat=30), clock, eviction)

    assert samples.cache == "cold"
    assert samples.durations_us == (27.4,) * 30
    assert next(flushes) == clock.calls


def test_the_reset_comes_before_the_flush():
    order: list[str] = []
    kernel = Kernel(call=lambda: order.append("call"), reset=lambda: order.append("reset"))
    eviction = Eviction(lambda: order.append("flush"), 128 * MIB, 64 * MIB)

    measure_samples(
        kernel, Plan(cache="cold", repeat=1, warmup=1), ScriptedClock(steady_us=50_000.0), eviction
    )

    assert order[:3] == ["reset", "flush", "call"]


def test_a_flush_that_fits_the_cache_is_reported_as_not_achieved():
    eviction = Eviction(nothing, 40 * MIB, 192 * MIB)

    samples = measure_samples(IDLE, Plan(cache="cold", repeat=3), ScriptedClock(steady_us=27.4), eviction)

    assert samples.cache == "cold requested, not achieved"
    assert samples.flags == ("40 MiB touched between launches fit in a last-level cache of 192 MiB",)


def test_cold_without_a_known_cache_size_claims_nothing():
    samples = measure_samples(
        IDLE, Plan(cache="cold", repeat=3), ScriptedClock(steady_us=27.4), Eviction(nothing, 40 * MIB, None)
    )

    assert samples.cache == "cold requested, not achieved"
    assert samples.flags == ("the size of the last-level cache is not known",)


def test_a_warm_plan_never_runs_the_flush():
    samples = measure_samples(
        IDLE, Plan(repeat=3), ScriptedClock(), Eviction(lambda: pytest.fail("flushed"), MIB, MIB)
    )

    assert samples.cache == "warm"


def test_slow_flushes_do_not_stretch_the_budget():
    clock = ScriptedClock(script=noise(50.0, 0.9), before_us=100_000.0)
    eviction = Eviction(nothing, 128 * MIB, 64 * MIB)

    measure_samples(IDLE, Plan(cache="cold", max_seconds=2.0, precision=1e-4), clock, eviction)

    assert clock.seconds() == pytest.approx(2.0, abs=0.15)


def test_cold_samples_are_enough_for_an_interval_in_spite_of_slow_flushes():
    clock = ScriptedClock(script=noise(50.0, 0.9), before_us=300_000.0)
    eviction = Eviction(nothing, 128 * MIB, 64 * MIB)

    samples = measure_samples(IDLE, Plan(cache="cold", max_seconds=2.0), clock, eviction)

    assert len(samples.durations_us) == 10
    assert samples.stop == "budget"


def test_no_case_goes_far_past_its_budget():
    clock = ScriptedClock(steady_us=50.0, before_us=1_900_000.0)
    eviction = Eviction(nothing, 128 * MIB, 64 * MIB)

    measure_samples(IDLE, Plan(cache="cold", max_seconds=2.0), clock, eviction)

    assert clock.seconds() < 10


def test_garbage_is_collected_only_around_the_samples():
    states: list[bool] = []

    measure_samples(Kernel(call=lambda: states.append(gc.isenabled())), Plan(repeat=3), ScriptedClock())

    assert not any(states)
    assert gc.isenabled()


def test_the_collector_is_enabled_again_when_a_kernel_raises():
    def broken() -> None:
        raise RuntimeError("device lost")

    with pytest.raises(RuntimeError, match="device lost"):
        measure_samples(Kernel(call=broken), Plan(), ScriptedClock())

    assert gc.isenabled()


def test_ranks_of_different_speed_launch_equally_often():
    clocks = [ScriptedClock(script=noise(600.0, 0.4)), ScriptedClock(script=noise(4.0, 0.9), steady_us=4.0)]
    said: queue.SimpleQueue[int] = queue.SimpleQueue()

    def lead(value: int) -> int:
        said.put(value)
        return value

    def measure(rank: int) -> Samples:
        agree = lead if rank == 0 else lambda value: said.get(timeout=10)
        return measure_samples(IDLE, Plan(max_seconds=0.3), clocks[rank], agree=agree)

    with ThreadPoolExecutor(2) as pool:
        samples = list(pool.map(measure, (0, 1)))

    assert clocks[0].calls == clocks[1].calls
    assert samples[0].stop == samples[1].stop
    assert said.empty()
