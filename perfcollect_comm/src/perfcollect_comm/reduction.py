"""Reduce the samples of all ranks of one collective to numbers that can be compared.

Each rank times its own call, so the first rank to arrive also times its waiting. Per iteration the largest value is
what the job sees and the smallest is closest to the transfer; their difference is skew. Clocks of different hosts are
never subtracted from one another.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence

import attrs

from perfcollect_core.errors import DataError

__all__ = ["Reduced", "Spread", "arrival_skew_us", "reduce_samples"]

#: A leading iteration is start-up skew where its largest value passes this many times the median of the rest.
_STARTUP_FACTOR = 20.0


@attrs.frozen
class Spread:
    """Summary of one series, microseconds; ``std`` is the population's."""

    n: int
    mean: float
    median: float
    min: float
    max: float
    std: float
    p05: float
    p95: float
    p99: float


@attrs.frozen
class Reduced:
    """What one configuration comes to.

    ``late_rank`` is the rank that waited least, named only where the skew is more than a tenth of the time.
    ``rejected`` are the leading iterations left out as start-up skew.
    """

    largest: Spread
    smallest: Spread
    skew_median_us: float
    late_rank: int | None
    rejected: tuple[int, ...]

    @property
    def duration_us(self) -> float:
        """The stored value: the median over iterations of the slowest rank."""
        return self.largest.median


def reduce_samples(samples_us: Mapping[int, Sequence[float]]) -> Reduced:
    """Reduce samples[rank][iteration]; every rank has the same number of iterations.

    Raises:
        DataError: No samples, ranks of different length, or a value that is not finite and positive.
    """
    lengths = {rank: len(values) for rank, values in samples_us.items()}
    if not lengths or min(lengths.values()) == 0:
        raise DataError("no samples of a collective, expected at least one iteration of each rank")
    if len(set(lengths.values())) > 1:
        raise DataError(f"ranks hold different numbers of samples: {lengths}")
    for rank, values in samples_us.items():
        bad = next((v for v in values if not (math.isfinite(v) and v > 0)), None)
        if bad is not None:
            raise DataError(
                f"rank {rank} holds the duration {bad}, expected a finite positive number of microseconds"
            )
    columns = list(zip(*samples_us.values(), strict=True))
    rejected = _startup_iterations([max(column) for column in columns])
    used = [column for index, column in enumerate(columns) if index not in rejected]
    largest, smallest = [max(c) for c in used], [min(c) for c in used]
    skew = statistics.median(high - low for high, low in zip(largest, smallest, strict=True))
    medians = {
        rank: statistics.median(v for i, v in enumerate(values) if i not in rejected)
        for rank, values in samples_us.items()
    }
    late = (
        min(medians, key=lambda rank: (medians[rank], rank))
        if skew > 0.1 * statistics.median(largest)
        else None
    )
    return Reduced(_spread(largest), _spread(smallest), skew, late, tuple(rejected))


def _startup_iterations(largest: Sequence[float]) -> list[int]:
    """Return the leading iterations that profilers or processes spent starting up, never more than a third."""
    rejected: list[int] = []
    while len(rejected) < len(largest) // 3:
        rest = largest[len(rejected) + 1 :]
        if not rest or largest[len(rejected)] <= _STARTUP_FACTOR * statistics.median(rest):
            break
        rejected.append(len(rejected))
    return rejected


def _spread(values: Sequence[float]) -> Spread:
    ordered = sorted(values)

    def quantile(share: float) -> float:
        return ordered[min(len(ordered) - 1, math.ceil(share * len(ordered)) - 1 if share > 0 else 0)]

    return Spread(
        n=len(ordered),
        mean=statistics.fmean(ordered),
        median=statistics.median(ordered),
        min=ordered[0],
        max=ordered[-1],
        std=statistics.pstdev(ordered),
        p05=quantile(0.05),
        p95=quantile(0.95),
        p99=quantile(0.99),
    )


def arrival_skew_us(
    ends_us: Mapping[int, tuple[str, float]], offsets_us: Mapping[str, float] | None = None
) -> float | None:
    """Return how far apart the ranks ended, or ``None`` (unknown) where that would mix clocks of several hosts.

    *ends_us* maps rank to (host, end time); *offsets_us* gives each host's measured clock offset.
    """
    hosts = {host for host, _ in ends_us.values()}
    if len(hosts) > 1 and (offsets_us is None or not hosts <= offsets_us.keys()):
        return None
    shift = offsets_us or {}
    ends = [end - shift.get(host, 0.0) for host, end in ends_us.values()]
    return max(ends) - min(ends)
