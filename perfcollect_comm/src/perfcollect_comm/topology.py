"""The device grid: coordinates, tiers and the groups that tile a world.

Ranks are laid out row-major over the grid, the innermost dimension fastest; the outermost coordinate wraps. The tier of
a group is the index of the outermost dimension in which two of its members differ, so it always follows from the rank
list and is never a label.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from importlib import resources
from typing import Literal

import attrs

from perfcollect_core.errors import UsageError

__all__ = ["DEFAULT_SHAPE", "Family", "Grid", "Link", "families", "links_of", "tiles"]

DEFAULT_SHAPE = (48, 8, 2)


@attrs.frozen
class Link:
    """One tier of a device: its name and the constants of the analytic estimate."""

    name: str
    bandwidth_gbps: float
    latency_us: float
    efficiency: float = 0.7


@attrs.frozen
class Grid:
    """A device grid, outermost dimension first (``48 8 2``)."""

    shape: tuple[int, ...] = DEFAULT_SHAPE

    def __attrs_post_init__(self) -> None:
        if not self.shape or min(self.shape) < 1:
            raise UsageError(
                f"grid shape {' '.join(map(str, self.shape)) or '(empty)'}, expected positive sizes",
                hint="give the sizes outermost first, such as --grid-shape 48 8 2",
            )

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def innermost_tier(self) -> int:
        return len(self.shape) - 1

    def coordinates(self, rank: int) -> tuple[int, ...]:
        """Return the coordinates of *rank*."""
        found = []
        for extent in reversed(self.shape):
            rank, coordinate = divmod(rank, extent)
            found.append(coordinate)
        return tuple(reversed(found))

    def tier(self, ranks: Sequence[int]) -> int:
        """Return the outermost dimension in which two of *ranks* differ, the innermost one for a single rank."""
        points = [self.coordinates(rank) for rank in ranks]
        for dimension in range(len(self.shape)):
            if len({point[dimension] for point in points}) > 1:
                return dimension
        return self.innermost_tier

    def block_size(self, tier: int) -> int:
        """Return how many consecutive ranks share every coordinate outside *tier* and the dimensions inside it."""
        return math.prod(self.shape[tier:])

    def stride(self, tier: int) -> int:
        """Return the distance between ranks that differ by one step in dimension *tier* only."""
        return math.prod(self.shape[tier + 1 :])


@attrs.frozen
class Family:
    """All disjoint groups of one kind that tile (part of) the world; ``groups[0]`` holds rank 0."""

    layout: Literal["block", "axis"]
    n: int
    tier: int
    groups: tuple[tuple[int, ...], ...]

    @property
    def anchor(self) -> tuple[int, ...]:
        return self.groups[0]


def families(grid: Grid, world: int, n: int) -> tuple[Family, ...]:
    """Return the families of groups of *n* ranks in a world, innermost tier first.

    Block groups are consecutive ranks; axis groups differ in one dimension only and stand in only where no block
    group has that size and tier (two ranks across tier 0, say).
    """
    found: dict[int, Family] = {}
    block = _block_groups(grid, world, n)
    for tier, groups in sorted(block.items(), reverse=True):
        found[tier] = Family("block", n, tier, groups)
    for tier in reversed(range(len(grid.shape))):
        if tier not in found and n > 1:
            groups = _axis_groups(grid, world, n, tier)
            if groups:
                found[tier] = Family("axis", n, tier, groups)
    return tuple(found[tier] for tier in sorted(found, reverse=True))


def _block_groups(grid: Grid, world: int, n: int) -> dict[int, tuple[tuple[int, ...], ...]]:
    """Return consecutive groups of *n* by tier; those of one tier tile the world or nothing else does."""
    by_tier: dict[int, list[tuple[int, ...]]] = {}
    for start in range(0, world - n + 1, n):
        group = tuple(range(start, start + n))
        by_tier.setdefault(grid.tier(group), []).append(group)
    # A later tile may straddle a boundary the first one does not (n that does not divide a block): only tiles that
    # are alike belong to one family, and the family must start at rank 0 to be the one everybody compares.
    return {tier: tuple(groups) for tier, groups in by_tier.items() if groups[0][0] == 0}


def _axis_groups(grid: Grid, world: int, n: int, tier: int) -> tuple[tuple[int, ...], ...]:
    stride, extent = grid.stride(tier), grid.shape[tier]
    if n > extent:
        return ()
    groups = []
    for base in range(0, world, stride * extent):
        for first in range(base, base + stride):
            for step in range(0, extent - n + 1, n):
                group = tuple(first + (step + k) * stride for k in range(n))
                if group[-1] < world:
                    groups.append(group)
    return tuple(sorted(groups))


def tiles(groups: Iterable[Sequence[int]], world: int) -> bool:
    """Say whether *groups* are disjoint and cover every rank of the world."""
    seen = [rank for group in groups for rank in group]
    return len(seen) == len(set(seen)) and set(seen) == set(range(world))


def links_of(device: str | None, grid: Grid) -> tuple[Link, ...]:
    """Return the tiers of *device*, outermost first; unnamed ones without constants where the device is unknown."""
    text = resources.files(__package__).joinpath("devices.json").read_text(encoding="utf-8")
    known = json.loads(text)["devices"]
    for entry in known:
        if device in entry["names"] and len(entry["tiers"]) == len(grid.shape):
            return tuple(Link(**tier) for tier in entry["tiers"])
    return tuple(Link(f"tier {index}", math.nan, math.nan) for index in range(len(grid.shape)))
