"""Durations of HCCL collectives out of a profile: by window, type, device and count."""

from __future__ import annotations

import pytest

from perfcollect_comm.plan import CommRequest, make_plan
from perfcollect_comm.profiled import durations_in, fill_outcomes
from perfcollect_comm.sweep import ConfigOutcome, Window
from perfcollect_comm.topology import Grid
from perfcollect_core import TaskRecord
from perfcollect_core.errors import DataError

WINDOW = Window(begin_ns=1_000_000_000, end_ns=1_010_000_000, calls=2, device=0)


def record(
    at_us: float, duration_us: float, kernel: str = "hcom_allReduce_", device: int = 0, name: str = ""
) -> TaskRecord:
    return TaskRecord(kernel, 1_000_000_000 + int(at_us * 1000), duration_us, {"Op Name": name}, device)


def test_calls_of_the_window_are_taken_in_order_of_their_start():
    records = [record(500, 20.0), record(100, 10.0), record(20_000, 99.0), record(-5_000, 99.0)]

    assert durations_in(records, "hcom_allReduce_", WINDOW) == (10.0, 20.0)


def test_other_types_devices_and_the_vector_core_part_are_not_the_collective():
    records = [
        *(record(100, 10.0), record(500, 20.0), record(300, 1.0, "Add"), record(100, 9.0, device=1)),
        record(510, 5.0, name="hcom_allReduce_AivKernel"),
    ]

    assert durations_in(records, "hcom_allReduce_", WINDOW) == (10.0, 20.0)


def test_a_collective_that_appears_twice_is_one_call_of_the_longer_duration():
    records = [record(100, 10.0), record(100, 10.4), record(500, 20.0)]

    assert durations_in(records, "hcom_allReduce_", WINDOW) == (10.4, 20.0)


@pytest.mark.parametrize("records", [[record(100, 10.0)], [record(100 * k, 1.0) for k in range(1, 4)]])
def test_a_count_that_does_not_fit_is_an_error(records):
    with pytest.raises(
        DataError, match=rf"holds {len(records)} records of hcom_allReduce_ on device 0 where 2 calls"
    ):
        durations_in(records, "hcom_allReduce_", WINDOW)


def test_a_configuration_with_lost_records_fails_alone():
    plan = make_plan(
        CommRequest(2, ops=("all_reduce",), num_devices=(2,), grid=Grid((2,)), bytes_grid=(64, 128))
    )
    later = Window(2_000_000_000, 2_010_000_000, 1, 0)
    launched = [
        ConfigOutcome(
            plan.configs[0], "launched", windows={0: WINDOW, 1: Window(WINDOW.begin_ns, WINDOW.end_ns, 2, 1)}
        ),
        ConfigOutcome(plan.configs[1], "launched", windows={0: later, 1: later}),
    ]
    records = [record(100 * k, 10.0 * k + device, device=device) for k in (1, 2) for device in (0, 1)]

    first, second = fill_outcomes(launched, records)

    assert first.state == "measured"
    assert first.reduced is not None
    assert first.reduced.duration_us == 16.0
    assert (second.state, second.failure) == ("failed", "not_observed")
