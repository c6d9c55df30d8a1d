"""Tiers follow from ranks; groups of a family are disjoint and cover the world."""

from __future__ import annotations

import pytest

from perfcollect_comm.topology import Grid, families, links_of, tiles
from perfcollect_core.errors import UsageError

A3 = Grid((48, 8, 2))


@pytest.mark.parametrize(
    ("ranks", "tier"),
    [
        (range(16), 1),
        (range(8), 1),
        (range(4), 1),
        ((0, 2), 1),
        ((0, 1), 2),
        (range(128), 0),
        ((0, 16), 0),
        ((5,), 2),
    ],
)
def test_the_tier_of_ranks_on_the_supernode_grid(ranks, tier):
    assert A3.tier(tuple(ranks)) == tier


@pytest.mark.parametrize(
    ("rank", "point"), [(1, (0, 0, 1)), (15, (0, 7, 1)), (16, (1, 0, 0)), (767, (47, 7, 1))]
)
def test_coordinates_are_row_major_with_the_innermost_dimension_fastest(rank, point):
    assert A3.coordinates(rank) == point


def test_tiers_of_a_grid_with_two_dimensions():
    grid = Grid((8, 4))

    assert grid.tier((0, 4)) == 0
    assert grid.tier((0, 1)) == 1


@pytest.mark.parametrize(
    ("shape", "world"), [((2, 4, 2), 16), ((48, 8, 2), 768), ((128, 8), 64), ((8,), 8), ((2, 8, 2), 32)]
)
def test_every_family_tiles_the_world_and_its_tier_is_that_of_its_ranks(shape, world):
    grid = Grid(shape)

    for n in (2, 4, 8):
        for family in families(grid, world, n):
            assert tiles(family.groups, world)
            assert {grid.tier(group) for group in family.groups} == {family.tier}
            assert 0 in family.anchor


def test_two_ranks_across_the_outermost_tier_exist():
    outermost = [family for family in families(A3, 32, 2) if family.tier == 0]

    assert outermost[0].layout == "axis"
    assert outermost[0].anchor == (0, 16)


def test_axis_groups_stand_in_only_where_no_block_group_has_that_tier():
    found = {family.tier: family.layout for family in families(Grid((2, 4, 2)), 16, 2)}

    assert found == {2: "block", 1: "axis", 0: "axis"}


def test_a_group_larger_than_a_block_reaches_the_tier_above():
    (family,) = families(Grid((2, 4, 2)), 16, 16)

    assert (family.layout, family.tier) == ("block", 0)


def test_a_grid_without_sizes_is_refused():
    with pytest.raises(UsageError, match=r"^grid shape 4 0, expected positive sizes$"):
        Grid((4, 0))


def test_the_tiers_of_a_known_device_have_names_and_rates():
    names = [link.name for link in links_of("ATLAS_800_A3_752T_128G_DIE", A3)]

    assert names == ["inter_pod", "intra_pod", "die_level"]


def test_the_tiers_of_an_unknown_device_have_no_rates():
    (link,) = links_of(None, Grid((8,)))

    assert link.bandwidth_gbps != link.bandwidth_gbps
