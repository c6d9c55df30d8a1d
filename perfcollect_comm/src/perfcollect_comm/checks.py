"""Check ``hcom_*`` tables: schema, duplicates, coverage, physics, self-consistency, the analytic estimate.

The estimate uses each collective's own size convention; a table without a usable row is a failure, not a pass.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal

import attrs

from perfcollect_core.errors import TableError, UsageError

from .collectives import COLLECTIVES, Collective, bandwidths_gbps, message_size
from .plan import DEFAULT_BYTES, predict_us
from .tables import CommRow, read_rows
from .topology import Link

__all__ = ["CheckSettings", "Finding", "check_directory"]

_Said = tuple[Literal["error", "warning"], str]

#: Largest size ratio of neighbours a consumer can interpolate across.
_LARGEST_RATIO = 2.0


@attrs.frozen
class Finding:
    """One thing found in one table; ``error`` findings fail the check."""

    severity: Literal["error", "warning"]
    file: str
    what: str


@attrs.frozen
class CheckSettings:
    """What to compare with: the links of the device, outermost tier first, and how far an estimate may be off."""

    links: tuple[Link, ...] = ()
    tolerance: float = 2.0

    def __attrs_post_init__(self) -> None:
        if not self.tolerance >= 1:
            raise UsageError(
                f"tolerance {self.tolerance:g}, expected at least 1",
                hint="2 accepts half to twice the estimate",
            )


def check_directory(directory: Path, settings: CheckSettings) -> tuple[Finding, ...]:
    """Check every ``hcom_*.csv`` of *directory*."""
    found: list[Finding] = []
    tables: dict[str, Sequence[CommRow]] = {}
    paths = [p for p in sorted(directory.glob("hcom_*.csv")) if p.is_file()]
    if not paths:
        return (Finding("error", str(directory), "no hcom_*.csv table here"),)
    by_file = {op.file_name: op for op in COLLECTIVES.values()}
    for path in paths:
        op = by_file.get(path.name)
        if op is None:
            found.append(Finding("warning", path.name, "no collective of this name is known"))
            continue
        try:
            rows = read_rows(path)
        except TableError as error:
            found.append(Finding("error", path.name, str(error)))
            continue
        usable = [row for row in rows if math.isfinite(row.duration_us) and row.duration_us > 0]
        if not usable:
            found.append(Finding("error", path.name, "no row has a duration"))
            continue
        tables[op.name] = usable
        for check in (_duplicates, _mixtures, _coverage, _size_applied, _monotone, _physics, _estimate):
            found.extend(Finding(severity, path.name, what) for severity, what in check(op, usable, settings))
    found.extend(_self_consistency(tables))
    return tuple(found)


def _series(rows: Sequence[CommRow]) -> dict[tuple[int, int], list[CommRow]]:
    """Return the rows of each (n, tier), by size."""
    series: dict[tuple[int, int], list[CommRow]] = {}
    for row in sorted(rows, key=lambda row: row.message_bytes):
        series.setdefault((row.num_devices, row.topology_tier), []).append(row)
    return series


def _duplicates(op: Collective, rows: Sequence[CommRow], settings: CheckSettings) -> Iterator[_Said]:
    seen: dict[tuple[int, int, int], int] = {}
    for row in rows:
        seen[row.key] = seen.get(row.key, 0) + 1
    for (size, n, tier), count in seen.items():
        if count > 1:
            yield (
                "error",
                f"{count} rows of {size} B, n={n}, tier {tier}: consumers use the first and ignore the rest",
            )


def _mixtures(op: Collective, rows: Sequence[CommRow], settings: CheckSettings) -> Iterator[_Said]:
    for name, values in (("dtypes", {r.dtype for r in rows}), ("backends", {r.backend for r in rows})):
        if len(values) > 1:
            yield (
                "error",
                f"mixed {name} {', '.join(sorted(v or 'hccl' for v in values))}: consumers cannot tell them apart",
            )


def _coverage(op: Collective, rows: Sequence[CommRow], settings: CheckSettings) -> Iterator[_Said]:
    for (n, tier), line in _series(rows).items():
        sizes = [row.message_bytes for row in line]
        if (
            sizes[0] > DEFAULT_BYTES[0] * max(1, n if op.splits_message else 1)
            or sizes[-1] < DEFAULT_BYTES[-1]
        ):
            yield (
                "warning",
                f"n={n}, tier {tier} covers {sizes[0]} to {sizes[-1]} B, the standard is "
                f"{DEFAULT_BYTES[0]} to {DEFAULT_BYTES[-1]} B",
            )
        for low, high in itertools.pairwise(sizes):
            if high > _LARGEST_RATIO * low:
                yield (
                    "warning",
                    f"n={n}, tier {tier} has a hole between {low} and {high} B (ratio {high / low:g})",
                )


def _size_applied(op: Collective, rows: Sequence[CommRow], settings: CheckSettings) -> Iterator[_Said]:
    for (n, tier), line in _series(rows).items():
        first, last = line[0], line[-1]
        growth = last.message_bytes / first.message_bytes
        # Against the quickest row, not the first: one disturbed small size must not accuse a sound table.
        quickest = min(row.duration_us for row in line)
        if growth >= 1024 and last.message_bytes >= 1 << 20 and last.duration_us < 1.5 * quickest:
            _, busbw = bandwidths_gbps(op, n, last.message_bytes, last.duration_us)
            yield (
                "error",
                f"n={n}, tier {tier}: the size grows {growth:g} times, the time {last.duration_us / first.duration_us:.2f} "
                f"times (busbw {busbw:.0f} GB/s): size probably not applied",
            )


def _monotone(op: Collective, rows: Sequence[CommRow], settings: CheckSettings) -> Iterator[_Said]:
    for (n, tier), line in _series(rows).items():
        for low, high in itertools.pairwise(line):
            if high.duration_us < 0.7 * low.duration_us:
                yield (
                    "warning",
                    f"n={n}, tier {tier}: {high.message_bytes} B takes {high.duration_us:g} us, "
                    f"{low.message_bytes} B takes {low.duration_us:g} us",
                )


def _physics(op: Collective, rows: Sequence[CommRow], settings: CheckSettings) -> Iterator[_Said]:
    for row in rows:
        link = _link(settings, row.topology_tier)
        if link is None:
            continue
        _, busbw = bandwidths_gbps(op, row.num_devices, row.message_bytes, row.duration_us)
        if busbw > 1.05 * link.bandwidth_gbps:
            yield (
                "warning",
                f"{row.message_bytes} B, n={row.num_devices}: busbw {busbw:.0f} GB/s is above the link's "
                f"{link.bandwidth_gbps:g} GB/s ({link.name}); only a reduction inside the network can do that",
            )
        if row.duration_us < link.latency_us:
            yield (
                "warning",
                f"{row.message_bytes} B, n={row.num_devices}: {row.duration_us:g} us is below the link's latency",
            )


def _estimate(op: Collective, rows: Sequence[CommRow], settings: CheckSettings) -> Iterator[_Said]:
    for row in rows:
        link = _link(settings, row.topology_tier)
        if link is None or row.num_devices < 2:
            continue
        size = message_size(op, row.num_devices, 1, row.message_bytes)
        ratio = row.duration_us / predict_us(op, row.num_devices, size, link)
        limit = settings.tolerance
        if not 1 / (2 * limit) <= ratio <= 2 * limit:
            yield "error", f"{row.message_bytes} B, n={row.num_devices}: {ratio:.2f} times the estimate"
        elif not 1 / limit <= ratio <= limit:
            yield "warning", f"{row.message_bytes} B, n={row.num_devices}: {ratio:.2f} times the estimate"


def _link(settings: CheckSettings, tier: int) -> Link | None:
    if not 0 <= tier < len(settings.links) or math.isnan(settings.links[tier].bandwidth_gbps):
        return None
    return settings.links[tier]


def _self_consistency(tables: dict[str, Sequence[CommRow]]) -> Iterator[Finding]:
    """An all_reduce can always be built from a reduce_scatter and an all_gather of the n-th part."""
    parts = {
        name: {row.key: row.duration_us for row in tables.get(name, ())}
        for name in ("reduce_scatter", "all_gather")
    }
    for row in tables.get("all_reduce", ()):
        key = (row.message_bytes // row.num_devices, row.num_devices, row.topology_tier)
        built = [parts[name].get(key) for name in ("reduce_scatter", "all_gather")]
        if None not in built and row.message_bytes % row.num_devices == 0:
            total = sum(part for part in built if part is not None)
            if row.duration_us > 1.2 * total:
                yield Finding(
                    "warning",
                    COLLECTIVES["all_reduce"].file_name,
                    f"{row.message_bytes} B, n={row.num_devices}, tier {row.topology_tier}: {row.duration_us:g} us is "
                    f"{row.duration_us / total:.2f} times a reduce_scatter plus an all_gather of its parts",
                )
