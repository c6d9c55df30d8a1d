"""Durations of collectives out of a profile that is read after the ranks ended: by window, kernel type and count.

HCCL's calls return before the device is done, and its kernels are timed by msprof around the processes. Each rank says in
which window of host time it launched how many calls; a configuration whose records do not fit is dropped, never guessed.
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from perfcollect_core import TaskRecord
from perfcollect_core.errors import DataError

from .collectives import COLLECTIVES
from .reduction import reduce_samples
from .sweep import ConfigOutcome, Window

__all__ = ["durations_in", "fill_outcomes"]

#: A record may start a little before the window: host and device clocks are matched to some microseconds.
_SLACK_NS = 50_000


def durations_in(records: Sequence[TaskRecord], kernel_type: str, window: Window) -> tuple[float, ...]:
    """Return one duration per call of *window*, in microseconds.

    A collective appears twice, once without a stream: of records that start together the longest counts. The vector-core
    part of it (``AivKernel``) is not the collective.

    Raises:
        DataError: Another number of records lies in the window than calls were made.
    """
    by_start: dict[int, float] = {}
    for record in records:
        inside = window.begin_ns - _SLACK_NS <= record.start_ns <= window.end_ns + _SLACK_NS
        named = record.kernel.startswith(kernel_type) and "AivKernel" not in record.cells.get("Op Name", "")
        if inside and named and record.device == window.device and record.duration_us:
            by_start[record.start_ns] = max(record.duration_us, by_start.get(record.start_ns, 0.0))
    if len(by_start) != window.calls:
        raise DataError(
            f"the profile holds {len(by_start)} records of {kernel_type} on device {window.device} "
            f"where {window.calls} calls were made"
        )
    return tuple(by_start[start] for start in sorted(by_start))


def fill_outcomes(launched: Sequence[ConfigOutcome], records: Sequence[TaskRecord]) -> list[ConfigOutcome]:
    """Turn what was launched into what was measured, or into a failure with the reason."""
    filled = []
    for outcome in launched:
        kernel_type = COLLECTIVES[outcome.config.op].kernel_type
        try:
            samples = {
                rank: durations_in(records, kernel_type, window) for rank, window in outcome.windows.items()
            }
            groups = [reduce_samples({r: samples[r] for r in group}) for group in outcome.config.groups]
        except DataError as error:
            filled.append(attrs.evolve(outcome, state="failed", failure="not_observed", reason=str(error)))
            continue
        slowest = max(groups, key=lambda reduced: reduced.duration_us)
        filled.append(attrs.evolve(outcome, state="measured", reduced=slowest, samples_us=samples))
    return filled
