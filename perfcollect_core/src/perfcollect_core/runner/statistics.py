"""Reduce the samples of a case to the numbers that are stored."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence

import attrs

from perfcollect_core.measurements import Samples, Statistics

__all__ = [
    "achieved_cache",
    "median_interval",
    "merge_passes",
    "relative_half_width",
    "split_warmup",
    "summarise",
]

#: A first call this many times the steady median (plus as many MADs) was compiling, tuning or paging in.
_WARMUP_RATIO = 1.5
_WARMUP_MADS = 10.0
#: At most this share of the samples is ever taken for warm-up.
_WARMUP_SHARE = 0.25


def summarise(durations_us: Sequence[float]) -> Statistics:
    """Return the statistics of finite, positive *durations_us*.

    Raises:
        ValueError: There is no sample, or one is not a finite positive number: it must not reach a table.
    """
    if not durations_us:
        raise ValueError("no sample, expected at least one duration")
    for value in durations_us:
        if not (math.isfinite(value) and value > 0):
            raise ValueError(f"sample {value!r} us, expected a finite positive duration")
    ordered = sorted(durations_us)
    median = statistics.median(ordered)
    return Statistics(
        n=len(ordered),
        min=ordered[0],
        p10=_quantile(ordered, 0.10),
        median=median,
        mean=math.fsum(ordered) / len(ordered),
        mad=statistics.median(abs(value - median) for value in ordered),
    )


def _quantile(ordered: Sequence[float], q: float) -> float:
    """Interpolate linearly between order statistics (numpy's default)."""
    position = q * (len(ordered) - 1)
    low = math.floor(position)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (position - low)


def median_interval(durations_us: Sequence[float], confidence: float = 0.95) -> tuple[float, float] | None:
    """Return the distribution-free interval of the median; ``None`` where there are too few samples for it.

    The interval is between two order statistics, so it assumes nothing about the shape of the noise: with n samples
    the one between the k-th lowest and k-th highest covers the median with probability 1 - 2 P(Binomial(n, 1/2) < k).
    Fewer than six samples can not give 95 %.
    """
    rank = _interval_rank(len(durations_us), confidence)
    if rank is None:
        return None
    ordered = sorted(durations_us)
    return ordered[rank], ordered[-1 - rank]


def _interval_rank(count: int, confidence: float) -> int | None:
    tail = (1.0 - confidence) / 2.0
    if count < 1 or 0.5**count > tail:
        return None
    if count > 200:
        # Normal approximation with continuity correction; the exact sum needs big binomials for no gain here.
        z = statistics.NormalDist().inv_cdf(1.0 - tail)
        return max(0, math.floor((count - 1) / 2 - z * math.sqrt(count) / 2))
    cumulative = probability = 0.5**count
    rank = 0
    while True:
        probability *= (count - rank) / (rank + 1)
        if cumulative + probability > tail:
            return rank
        cumulative += probability
        rank += 1


def relative_half_width(durations_us: Sequence[float], confidence: float = 0.95) -> float:
    """Return half the width of the median's interval over the median, infinite where it is not known yet."""
    interval = median_interval(durations_us, confidence)
    if interval is None:
        return math.inf
    median = statistics.median(durations_us)
    return (interval[1] - interval[0]) / 2.0 / median if median > 0 else math.inf


def split_warmup(durations_us: Sequence[float]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Split samples in time order into (first calls that were still warming up, steady samples).

    The steady level is the median and MAD of the later three quarters. Leading samples far above it (compilation,
    autotuning, page faults) are warm-up up to the first one that is not; slow samples later on are noise and stay.
    """
    count = len(durations_us)
    limit = math.floor(count * _WARMUP_SHARE)
    if limit == 0:
        return (), tuple(durations_us)
    later = sorted(durations_us[limit:])
    level = statistics.median(later)
    spread = statistics.median(abs(value - level) for value in later)
    bound = max(_WARMUP_RATIO * level, level + _WARMUP_MADS * spread)
    cut = 0
    while cut < limit and durations_us[cut] > bound:
        cut += 1
    return tuple(durations_us[:cut]), tuple(durations_us[cut:])


def achieved_cache(
    requested: str, *, evicted_bytes: float, cache_bytes: float | None, batched: bool = False
) -> tuple[str, str | None]:
    """Return (what ``Cache Policy`` may say, a warning or ``None``).

    Args:
        requested: ``warm`` or ``cold``.
        evicted_bytes: Bytes touched between two launches on the same operands: the flush buffer, or all copies a
            rotation goes through.
        cache_bytes: Size of the last-level cache, ``None`` where it is not known.
        batched: Whether launches were timed in batches with nothing in between.
    """
    if requested != "cold":
        return "warm", None
    failed = "cold requested, not achieved"
    if batched:
        return failed, "launches were timed in batches on the same operands, so all but the first ran warm"
    if cache_bytes is None:
        return failed, "the size of the last-level cache is not known"
    if evicted_bytes <= cache_bytes:
        return failed, (
            f"{evicted_bytes / 2**20:.0f} MiB touched between launches fit in a last-level cache of "
            f"{cache_bytes / 2**20:.0f} MiB"
        )
    return "cold", None


def merge_passes(passes: Sequence[Samples]) -> Samples:
    """Join the samples of one case over interleaved passes.

    Spread lies mostly between visits, so every pass must weigh the same: longer passes are thinned evenly to the
    shortest one, and the median of the union is then taken over equal shares. All durations count as warm only where
    every pass was; flags are the union.

    Raises:
        ValueError: There is no pass.
    """
    if not passes:
        raise ValueError("no pass to merge, expected at least one")
    if len(passes) == 1:
        return passes[0]
    shortest = min(len(p.durations_us) for p in passes)
    durations = tuple(value for p in passes for value in _thin(p.durations_us, shortest))
    stops = [p.stop for p in passes]
    caches = {p.cache for p in passes}
    return attrs.evolve(
        passes[-1],
        durations_us=durations,
        stop=stops[0] if len(set(stops)) == 1 else "budget" if "budget" in stops else "passes",
        inner=max(p.inner for p in passes),
        warmup_us=tuple(value for p in passes for value in p.warmup_us),
        counters=_merge_counters([p.counters for p in passes]),
        cache=caches.pop() if len(caches) == 1 else "cold requested, not achieved",
        flags=tuple(dict.fromkeys(flag for p in passes for flag in p.flags)),
        launches=sum(p.launches for p in passes),
    )


def _thin(values: Sequence[float], count: int) -> Sequence[float]:
    if len(values) == count or count == 0:
        return values[:count]
    return [values[i * len(values) // count] for i in range(count)]


def _merge_counters(
    counters: Sequence[Mapping[str, float | tuple[float, ...]]],
) -> dict[str, float | tuple[float, ...]]:
    merged: dict[str, float | tuple[float, ...]] = {}
    for name in dict.fromkeys(name for entry in counters for name in entry):
        values: list[float] = []
        for entry in counters:
            value = entry.get(name, ())
            values.extend(value if isinstance(value, tuple) else (value,))
        merged[name] = tuple(values)
    return merged
