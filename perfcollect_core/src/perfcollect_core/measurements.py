"""What a worker builds, how it is asked to measure, and what it found."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Literal

import attrs

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["Inputs", "Kernel", "Measurement", "Plan", "Reference", "Samples", "Statistics", "Tolerance"]

CachePolicy = Literal["warm", "cold"]


@attrs.frozen(eq=False)
class Inputs:
    """Tensors of one case by argument name, built once, outside every timed region.

    ``reset`` restores what the kernel mutates; it runs before each measured call and is never timed. ``None`` means
    that a repeated call sees equal work without it.
    """

    tensors: Mapping[str, Tensor]
    reset: Callable[[], None] | None = None

    def __getitem__(self, name: str) -> Tensor:
        return self.tensors[name]


@attrs.frozen(eq=False)
class Kernel:
    """A bound call.

    ``call`` takes no arguments and may be asynchronous. ``outputs`` turns what it returned into the output tensors in
    slot order (``None`` for one the kernel does not give). ``reset`` as in :class:`Inputs`.
    """

    call: Callable[[], object]
    outputs: Callable[[object], tuple[Tensor | None, ...]] = attrs.field(
        default=lambda result: result if isinstance(result, tuple) else (result,)
    )
    reset: Callable[[], None] | None = None


@attrs.frozen
class Tolerance:
    """``|actual - expected| <= atol + rtol * |expected|``, for all but ``outliers`` of the elements."""

    rtol: float
    atol: float
    outliers: float = 0.0

    @classmethod
    def of_dtype(cls, dtype: str, ulps: float = 2.0, atol: float = 0.0) -> Tolerance:
        """Return *ulps* roundings of the dtype word *dtype*; types that do not round must be equal up to *atol*."""
        bits = {"BF16": 8, "FLOAT16": 11, "FLOAT": 24, "DOUBLE": 53, "COMPLEX64": 24}
        return cls(ulps * 2.0 ** -bits[dtype] if dtype in bits else 0.0, atol)


@attrs.frozen(eq=False)
class Reference:
    """An independent answer: outputs in slot order (``None`` where one is not compared) and a tolerance for each.

    ``compare`` replaces the element-wise comparison where order or ties are free (top-k sets); it returns what
    differs, or ``None``.
    """

    outputs: tuple[Tensor | None, ...]
    tolerances: tuple[Tolerance, ...]
    compare: Callable[[tuple[Tensor | None, ...]], str | None] | None = None


@attrs.frozen
class Plan:
    """How to measure one case.

    Attributes:
        repeat: Measured launches; ``None`` repeats until the 95 % interval of the median is within ``precision`` of it
            or ``max_seconds`` are spent.
        warmup: Launches before, not recorded.
        precision: Relative half-width asked of that interval.
        max_seconds: Budget of one case's measuring, seconds.
        cache: ``warm`` repeats on the same inputs; ``cold`` flushes or rotates outside the number.
        passes: How often the case is visited, other cases in between.
    """

    repeat: int | None = None
    warmup: int = 3
    precision: float = 0.01
    max_seconds: float = 2.0
    cache: CachePolicy = "warm"
    passes: int = 1


@attrs.frozen
class Samples:
    """One duration per measured launch, in microseconds.

    Attributes:
        durations_us: Empty where the device's profiler supplies them later (then ``window_ns`` is set).
        stop: Why measuring ended (``precision``, ``repeat``, ``budget``).
        inner: Launches timed together and divided by, 1 where each was timed alone.
        warmup_us: Durations of the unrecorded first launches, where they were timed.
        counters: Numeric entries become columns of that name: mean over present values.
        cache: What was achieved: ``warm``, ``cold``, or ``cold requested, not achieved``.
        flags: Why samples are suspicious (``clock below 95 % of nominal``), empty where none are.
        window_ns: Host epoch window of the measured launches, nanoseconds (deferred durations only).
        launches: Measured launches in that window.
        brackets_ns: One window a launch where the case itself runs other work in between (a reset, a flush); empty
            where ``window_ns`` holds nothing else.
    """

    durations_us: tuple[float, ...] = ()
    stop: str = "repeat"
    inner: int = 1
    warmup_us: tuple[float, ...] = ()
    counters: Mapping[str, float | tuple[float, ...]] = attrs.field(factory=dict)
    cache: str = "warm"
    flags: tuple[str, ...] = ()
    window_ns: tuple[int, int] | None = None
    launches: int = 0
    brackets_ns: tuple[tuple[int, int], ...] = ()

    @property
    def is_deferred(self) -> bool:
        """Whether the profiler's data will bring the durations."""
        return self.window_ns is not None and not self.durations_us


@attrs.frozen
class Statistics:
    """Summary of the samples of one case, microseconds; ``mad`` is the median absolute deviation."""

    n: int
    min: float
    p10: float
    median: float
    mean: float
    mad: float

    def value(self, statistic: str) -> float:
        """Return the statistic named ``median``, ``min``, ``mean`` or ``p10``."""
        if statistic not in ("median", "min", "mean", "p10"):
            raise ValueError(f"no statistic {statistic!r}")
        return float(getattr(self, statistic))


@attrs.frozen
class Measurement:
    """What is written back for one case: the samples, their summary and which kernel really ran."""

    samples: Samples
    statistics: Statistics
    statistic: str = "median"
    observed_kernel: str = ""
    core: str = ""
    measured_with: str = ""
    per_rank: Mapping[int, Statistics] = attrs.field(factory=dict)

    @property
    def value_us(self) -> float:
        return self.statistics.value(self.statistic)
