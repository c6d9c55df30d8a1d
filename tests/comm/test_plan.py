"""Plans at any world size, without a distributed runtime."""

from __future__ import annotations

import pytest

from perfcollect_comm.plan import DEFAULT_BYTES, CommRequest, make_plan
from perfcollect_comm.topology import Grid
from perfcollect_core.errors import UsageError


def test_the_default_sizes_reach_from_128_b_to_512_mib_by_factor_two():
    assert DEFAULT_BYTES[0] == 128
    assert DEFAULT_BYTES[-1] == 512 * 2**20
    assert len(DEFAULT_BYTES) == 23


def test_a_requested_tier_filters_families_and_never_labels_them():
    plan = make_plan(CommRequest(16, num_devices=(2,), grid=Grid((2, 4, 2)), tiers=(1,), bytes_grid=(1024,)))

    assert {config.tier for config in plan.configs} == {1}
    assert {config.groups[0] for config in plan.configs} == {(0, 2)}


def test_a_tier_no_group_has_is_said_not_measured_under_another_name():
    plan = make_plan(CommRequest(16, num_devices=(16,), grid=Grid((2, 4, 2)), tiers=(2,), bytes_grid=(1024,)))

    assert plan.configs == ()
    assert plan.uncovered[0].what == "groups of 16 at tier 2"


def test_a_supernode_is_planned_in_this_process():
    plan = make_plan(CommRequest(768, num_devices=(2, 16, 768), device="ATLAS_800_A3_752T_128G_DIE"))

    keys = {(config.n, config.tier) for config in plan.configs}
    assert keys == {(2, 2), (2, 1), (2, 0), (16, 1), (16, 0), (768, 0)}
    assert all(config.predicted_us > 0 for config in plan.configs)


def test_sizes_beyond_the_memory_of_a_rank_are_left_out_with_the_reason():
    request = CommRequest(
        128, ops=("all_gather",), num_devices=(128,), bytes_grid=(1024, 512 * 2**20), memory_bytes=64 * 2**30
    )

    plan = make_plan(request)

    assert [config.size.message_bytes for config in plan.configs] == [1024]
    assert plan.uncovered[0].what == "all_gather of 536870912 B on 128 ranks"
    assert plan.uncovered[0].why == "needs 64.50 GiB a rank, 64.00 GiB are free"


def test_a_group_larger_than_the_world_is_one_clear_error():
    with pytest.raises(UsageError) as caught:
        make_plan(CommRequest(4, num_devices=(8,)))

    assert str(caught.value) == "group size 8 is larger than the world of 4 ranks"
    assert caught.value.hint == "lower --num-devices, or raise --nproc or --nnodes"


def test_groups_are_created_once_each_in_one_order():
    plan = make_plan(CommRequest(16, num_devices=(16, 2), grid=Grid((2, 4, 2)), bytes_grid=(1024, 4096)))

    assert plan.groups() == ((0, 1), (0, 2), tuple(range(16)), (0, 8))


def test_concurrent_configurations_hold_every_tile():
    plan = make_plan(
        CommRequest(
            8, ops=("all_reduce",), num_devices=(2,), grid=Grid((8,)), bytes_grid=(64,), concurrent=True
        )
    )

    assert plan.configs[0].groups == ((0, 1), (2, 3), (4, 5), (6, 7))


def test_other_sizes_make_another_plan():
    one = make_plan(CommRequest(2, num_devices=(2,), grid=Grid((2,)), bytes_grid=(64,)))
    other = make_plan(CommRequest(2, num_devices=(2,), grid=Grid((2,)), bytes_grid=(128,)))

    assert one.digest() != other.digest()
    assert (
        one.digest()
        == make_plan(CommRequest(2, num_devices=(2,), grid=Grid((2,)), bytes_grid=(64,))).digest()
    )


def test_rounded_and_dropped_sizes_are_announced():
    plan = make_plan(
        CommRequest(4, ops=("all_to_all",), num_devices=(4,), grid=Grid((4,)), bytes_grid=(6, 8, 1002))
    )

    assert plan.notes == (
        "all_to_all on 4 ranks in bfloat16: 1002 B rounded up to 1008 B",
        "all_to_all on 4 ranks in bfloat16: 6 B dropped, rounding makes it equal to another size",
    )
