"""Plan a sweep: which groups, sizes and bytes, how long it may take, and what it will not cover and why.

Planning needs no distributed runtime and works for any world size.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Sequence
from typing import Literal

import attrs

from perfcollect_core.errors import UsageError

from .collectives import Collective, CommDtype, MessageSize, collective, comm_dtype, message_sizes
from .topology import Family, Grid, Link, families, links_of

__all__ = ["DEFAULT_BYTES", "CommPlan", "CommRequest", "Config", "Uncovered", "make_plan", "predict_us"]

#: 128 B to 512 MiB by factor 2: the density the consumers' tables are held to.
DEFAULT_BYTES = tuple(1 << power for power in range(7, 30))


@attrs.frozen
class CommRequest:
    """What a sweep is asked to cover; ``tiers`` is a filter on the planned families, never a label."""

    world: int
    ops: tuple[str, ...] = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")
    num_devices: tuple[int, ...] = (16,)
    grid: Grid = attrs.field(factory=Grid)
    tiers: tuple[int, ...] = ()
    dtype: str = "bfloat16"
    bytes_grid: tuple[int, ...] = DEFAULT_BYTES
    concurrent: bool = False
    device: str | None = None
    memory_bytes: int = 0


@attrs.frozen
class Config:
    """One configuration to measure: every group in ``groups`` runs *op* at once, one of them when isolated."""

    index: int
    op: str
    dtype: str
    n: int
    tier: int
    layout: Literal["block", "axis"]
    groups: tuple[tuple[int, ...], ...]
    size: MessageSize
    predicted_us: float = math.nan

    @property
    def concurrency(self) -> int:
        return len(self.groups)

    @property
    def key(self) -> str:
        """Name the configuration in journals: equal keys measure the same thing."""
        parts = (
            self.op,
            self.dtype,
            self.n,
            self.tier,
            self.layout,
            self.concurrency,
            self.size.message_bytes,
        )
        return "/".join(map(str, parts))

    @property
    def members(self) -> frozenset[int]:
        return frozenset(rank for group in self.groups for rank in group)

    def group_of(self, rank: int) -> tuple[int, ...] | None:
        """Return the group *rank* is in, ``None`` where it only waits."""
        return next((group for group in self.groups if rank in group), None)


@attrs.frozen
class Uncovered:
    """Something asked for that the plan leaves out."""

    what: str
    why: str


@attrs.frozen
class CommPlan:
    """Everything the ranks of a sweep execute, in order."""

    world: int
    grid: Grid
    links: tuple[Link, ...]
    configs: tuple[Config, ...]
    uncovered: tuple[Uncovered, ...] = ()
    notes: tuple[str, ...] = ()

    def groups(self) -> tuple[tuple[int, ...], ...]:
        """Return the distinct groups in the order every rank creates them."""
        return tuple(dict.fromkeys(group for config in self.configs for group in config.groups))

    def rank_bytes(self) -> int:
        """Return the bytes of buffers the busiest rank allocates."""
        return max((config.size.rank_bytes for config in self.configs), default=0)

    def digest(self) -> str:
        """Return the hash the ranks compare before they start: equal plans run the same calls in the same order."""
        text = json.dumps([self.world, self.grid.shape, [[c.key, c.groups] for c in self.configs]])
        return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def predict_us(op: Collective, n: int, size: MessageSize, link: Link) -> float:
    """Estimate a duration from latency and bandwidth of the slowest link: the better of ring and tree.

    ``nan`` where the link's constants are unknown. Sizes follow each operator's own convention.
    """
    steps = n - 1
    volume = size.nccl_bytes * op.bus_factor(n) / (link.bandwidth_gbps * link.efficiency * 1e3)
    rounds = 2 if op.name == "all_reduce" else 1
    ring = rounds * steps * link.latency_us + volume
    tree = rounds * math.ceil(math.log2(n)) * link.latency_us + (
        volume
        if op.name != "all_reduce"
        else 2 * size.message_bytes / (link.bandwidth_gbps * link.efficiency * 1e3)
    )
    return min(ring, tree)


def make_plan(request: CommRequest) -> CommPlan:
    """Plan *request*.

    Raises:
        UsageError: A group size is larger than the world, below 2, or nothing is asked for.
    """
    dtype = comm_dtype(request.dtype)
    ops = tuple(dict.fromkeys(collective(name) for name in request.ops))
    if request.world < 2:
        raise UsageError(
            f"a world of {request.world} ranks, expected at least 2", hint="raise --nproc or --nnodes"
        )
    for tier in request.tiers:
        if not 0 <= tier < len(request.grid.shape):
            raise UsageError(
                f"topology tier {tier} of a grid with {len(request.grid.shape)} dimensions",
                hint=f"the tiers are 0 to {request.grid.innermost_tier}, 0 the outermost",
            )
    links = links_of(request.device, request.grid)
    configs: list[Config] = []
    uncovered: list[Uncovered] = []
    notes: list[str] = []
    for family in _families(request, uncovered):
        groups = family.groups if request.concurrent else (family.anchor,)
        for op in ops:
            sizes, dropped = message_sizes(op, family.n, dtype.nbytes, request.bytes_grid)
            notes.extend(_size_notes(op, family, dtype, sizes, dropped))
            for size in sizes:
                needed = size.rank_bytes
                if request.memory_bytes and needed > request.memory_bytes:
                    uncovered.append(
                        Uncovered(
                            f"{op.name} of {size.message_bytes} B on {family.n} ranks",
                            f"needs {needed / 2**30:.2f} GiB a rank, {request.memory_bytes / 2**30:.2f} GiB are free",
                        )
                    )
                    continue
                predicted = predict_us(op, family.n, size, links[family.tier])
                configs.append(
                    Config(
                        len(configs),
                        op.name,
                        dtype.name,
                        family.n,
                        family.tier,
                        family.layout,
                        groups,
                        size,
                        predicted,
                    )
                )
    return CommPlan(
        request.world, request.grid, links, tuple(configs), tuple(uncovered), tuple(dict.fromkeys(notes))
    )


def _families(request: CommRequest, uncovered: list[Uncovered]) -> Iterator[Family]:
    """Yield the families asked for, innermost tier first, and note what cannot be had."""
    found: list[Family] = []
    for n in dict.fromkeys(request.num_devices):
        if n < 2:
            raise UsageError(
                f"group size {n}, expected at least 2", hint="give sizes from 2 up to --num-devices"
            )
        if n > request.world:
            raise UsageError(
                f"group size {n} is larger than the world of {request.world} ranks",
                hint="lower --num-devices, or raise --nproc or --nnodes",
            )
        candidates = families(request.grid, request.world, n)
        reachable = {family.tier for family in candidates}
        if not candidates:
            uncovered.append(
                Uncovered(f"groups of {n}", f"none tiles a world of {request.world} from rank 0")
            )
        for tier in range(len(request.grid.shape)):
            if tier in request.tiers and tier not in reachable:
                uncovered.append(
                    Uncovered(
                        f"groups of {n} at tier {tier}",
                        f"no block or axis group of a world of {request.world} has that tier",
                    )
                )
        found.extend(family for family in candidates if not request.tiers or family.tier in request.tiers)
    yield from sorted(found, key=lambda family: (-family.tier, request.num_devices.index(family.n)))


def _size_notes(
    op: Collective, family: Family, dtype: CommDtype, sizes: Sequence[MessageSize], dropped: Sequence[int]
) -> Iterator[str]:
    where = f"{op.name} on {family.n} ranks in {dtype.name}"
    for size in sizes:
        if size.rounded:
            yield f"{where}: {size.asked} B rounded up to {size.message_bytes} B"
    for asked in dropped:
        yield f"{where}: {asked} B dropped, rounding makes it equal to another size"
