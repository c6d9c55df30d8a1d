"""Profiler records are matched to calls by their marker."""

from __future__ import annotations

import attrs
import pytest

from perfcollect_comm.kernel_records import match_records
from perfcollect_core.errors import DataError


@attrs.frozen
class Kernel:
    name: str
    duration: float


@attrs.frozen
class Event:
    name: str
    kernels: list[Kernel] = attrs.field(factory=list)
    cpu_children: list[Event] = attrs.field(factory=list)


def call(index: int, duration: float, *more: Kernel) -> Event:
    kernel = Kernel("ncclDevKernel_AllReduce_Sum_bf16_RING_LL", duration)
    return Event(f"perfcollect_comm/{index}", [], [Event("c10d::allreduce_", [kernel, *more])])


def test_each_call_gets_its_own_record_in_whatever_order_they_come():
    events = [call(2, 30.0), Event("aten::copy_", [Kernel("Memcpy", 99.0)]), call(0, 10.0), call(1, 20.0)]

    assert match_records(events, 3, "ncclDevKernel_AllReduce") == [10.0, 20.0, 30.0]


def test_other_kernels_inside_a_call_do_not_count():
    assert match_records([call(0, 10.0, Kernel("fill", 3.0))], 1, "ncclDevKernel_AllReduce") == [10.0]


@pytest.mark.parametrize(
    "events",
    [
        [call(0, 10.0), Event("perfcollect_comm/1")],
        [call(0, 10.0)],
        [call(0, 10.0), call(1, 20.0, Kernel("ncclDevKernel_AllReduce_again", 1.0))],
        [call(0, 10.0), call(1, 20.0), call(2, 30.0)],
    ],
    ids=["no record", "no range", "two records", "a range too many"],
)
def test_a_count_that_does_not_fit_drops_the_configuration(events):
    with pytest.raises(DataError, match="of 2 calls have exactly one kernel record"):
        match_records(events, 2, "ncclDevKernel_AllReduce")
