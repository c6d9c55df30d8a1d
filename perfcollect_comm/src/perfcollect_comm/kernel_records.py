"""Durations out of profiler records, matched by marker and never by position."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Protocol

from perfcollect_core.errors import DataError

__all__ = ["MARKER", "ProfiledEvent", "kernel_samples_us", "match_records"]

#: Name of the range around one call; the number after it is the iteration.
MARKER = "perfcollect_comm"
_MARKED = re.compile(rf"{MARKER}/(\d+)", re.ASCII)


class ProfiledKernel(Protocol):
    """A device task of an event; ``duration`` in microseconds."""

    name: str
    duration: float


class ProfiledEvent(Protocol):
    """What torch's profiler calls a FunctionEvent: its name, its device tasks, the events inside it."""

    name: str
    kernels: list[ProfiledKernel]
    cpu_children: list[ProfiledEvent]


def match_records(events: Iterable[ProfiledEvent], repeat: int, pattern: str) -> list[float]:
    """Return one duration per marked call, in microseconds: the kernels matching *pattern* inside its range.

    Raises:
        DataError: A call has no such kernel, or more than one, or a range is missing: the whole configuration is
            dropped, because a record given to the wrong call would be believed.
    """
    wanted = re.compile(pattern)
    found: dict[int, list[float]] = {}
    for event in events:
        marked = _MARKED.fullmatch(event.name)
        if marked is not None:
            durations = [kernel.duration for kernel in _kernels(event) if wanted.match(kernel.name)]
            found.setdefault(int(marked[1]), []).extend(durations)
    fitting = sum(len(found.get(index, ())) == 1 for index in range(repeat))
    if fitting != repeat or len(found) != repeat:
        kinds = sorted({len(durations) for durations in found.values()})
        raise DataError(
            f"{fitting} of {repeat} calls have exactly one kernel record named {pattern!r} "
            f"({len(found)} ranges seen, {kinds} records each)",
            hint="measure again; a profiler that loses records needs fewer calls a session",
        )
    return [found[index][0] for index in range(repeat)]


def _kernels(event: ProfiledEvent) -> Iterator[ProfiledKernel]:
    yield from event.kernels
    for child in event.cpu_children:
        yield from _kernels(child)


def kernel_samples_us(
    call: Callable[[], object],
    repeat: int,
    before: Callable[[int], None],
    synchronize: Callable[[], None],
    pattern: str,
) -> list[float]:
    """Profile *repeat* calls and return the duration of each one's kernel (rank side).

    *before* runs ahead of each call. Every member rank profiles, or none: a profiler on one rank alone makes it late.
    """
    import torch

    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities) as profile:
        synchronize()
        for index in range(repeat):
            before(index)
            with torch.profiler.record_function(f"{MARKER}/{index}"):
                call()
        synchronize()
    return match_records(profile.events(), repeat, pattern)
