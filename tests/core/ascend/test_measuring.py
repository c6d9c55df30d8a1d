"""Launches in brackets: nothing but the case's own launches falls into one."""

from __future__ import annotations

import attrs
import pytest

from perfcollect_core.families.ascend_measure import GUARD_SECONDS, measure_in_brackets
from perfcollect_core.families.sampling import Eviction
from perfcollect_core.measurements import Kernel, Plan
from perfcollect_core.profiles.attribution import SLACK_NS


@attrs.define
class ScriptedNpu:
    """A device whose launches take ``take_us`` of a clock that only they and sleeping move."""

    take_us: tuple[float, ...] = (10.0,)
    now: int = 1_000_000_000
    launched: list[tuple[str, int]] = attrs.field(factory=list)
    ranges: list[str] = attrs.field(factory=list)

    def launch(self, what: str) -> None:
        self.launched.append((what, self.now))
        self.now += int(self.take_us[len(self.launched) % len(self.take_us)] * 1000)

    def synchronize(self) -> None:
        pass

    def time_us(self, call) -> float:
        start = self.now
        call()
        return (self.now - start) / 1000

    def open_range(self, name: str) -> int:
        self.ranges.append(name)
        return len(self.ranges)

    def close_range(self, number: int) -> None:
        pass

    def sleep(self, seconds: float) -> None:
        self.now += int(seconds * 1e9)

    def measure(self, plan: Plan, *, reset=None, eviction=None, ranks=1):
        kernel = Kernel(lambda: self.launch("kernel"), reset=reset)
        return measure_in_brackets(
            kernel, plan, self, eviction, ranks=ranks, sleep=self.sleep, now_ns=lambda: self.now
        )


def inside(npu: ScriptedNpu, windows) -> list[str]:
    return [what for what, at in npu.launched if any(start <= at < end for start, end in windows)]


def test_one_bracket_holds_the_launches_and_no_warm_up():
    npu = ScriptedNpu()

    samples = npu.measure(Plan(repeat=7, warmup=3))

    assert inside(npu, [samples.window_ns]) == ["kernel"] * 7
    assert len(npu.launched) > 7
    assert (samples.launches, samples.brackets_ns, samples.is_deferred) == (7, (), True)


def test_the_device_is_idle_around_a_bracket_for_longer_than_the_clocks_may_differ():
    npu = ScriptedNpu()

    start, _ = npu.measure(Plan(repeat=2, warmup=2)).window_ns

    before = max(at + 10_000 for _, at in npu.launched if at < start)
    assert start - before > 2 * SLACK_NS
    assert GUARD_SECONDS * 1e9 > 2 * SLACK_NS


def test_resets_run_outside_the_brackets():
    npu = ScriptedNpu()

    samples = npu.measure(Plan(repeat=4, warmup=1), reset=lambda: npu.launch("reset"))

    assert inside(npu, samples.brackets_ns) == ["kernel"] * 4
    assert len(samples.brackets_ns) == 4


def test_flushes_run_outside_the_brackets_and_cold_is_said():
    npu = ScriptedNpu()
    eviction = Eviction(lambda: npu.launch("flush"), 2e9, 1e9)

    samples = npu.measure(Plan(repeat=3, warmup=1, cache="cold"), eviction=eviction)

    assert inside(npu, samples.brackets_ns) == ["kernel"] * 3
    assert samples.cache == "cold"


def test_a_steady_kernel_needs_ten_launches():
    npu = ScriptedNpu()

    assert npu.measure(Plan(repeat=None, warmup=5)).launches == 10


def test_a_noisy_kernel_needs_more():
    npu = ScriptedNpu(take_us=(10.0, 11.0, 10.0, 9.0, 10.5))

    assert 20 < npu.measure(Plan(repeat=None, warmup=5)).launches <= 500


def test_the_budget_of_a_case_bounds_its_launches():
    npu = ScriptedNpu(take_us=(100_000.0,))

    assert npu.measure(Plan(repeat=None, warmup=1, max_seconds=0.5)).launches == 5


@pytest.mark.parametrize("take_us", [(10.0,), (10.0, 30.0, 20.0)])
def test_ranks_launch_equally_often_whatever_they_see(take_us):
    npu = ScriptedNpu(take_us=take_us)

    samples = npu.measure(Plan(repeat=None, warmup=5), ranks=2)

    assert (samples.launches, len(samples.warmup_us)) == (20, 5)
