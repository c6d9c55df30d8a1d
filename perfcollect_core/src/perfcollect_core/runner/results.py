"""Turn what workers answered into measurements and journal lines."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import attrs

from perfcollect_core.measurements import Measurement, Plan, Samples, Statistics

from .case_queue import Job
from .protocol import Message, decode_samples, encode_samples
from .statistics import merge_passes, summarise

__all__ = ["judge", "measured_line", "measurement_of", "visit_plan"]


def visit_plan(plan: Plan) -> Plan:
    """Return the plan of one visit: budget and launches of a case are shared by its passes."""
    if plan.passes <= 1:
        return plan
    repeat = None if plan.repeat is None else math.ceil(plan.repeat / plan.passes)
    return attrs.evolve(plan, repeat=repeat, max_seconds=plan.max_seconds / plan.passes)


def judge(results: Mapping[int, Message]) -> tuple[Samples | None, Mapping[int, Samples], str]:
    """Return the samples that count (the slowest rank's), all ranks', and what is wrong where there are none."""
    per_rank = {rank: decode_samples(message["samples"]) for rank, message in sorted(results.items())}
    if len(per_rank) == 1 and (only := per_rank.get(0)) is not None and _is_valid(only.durations_us):
        return only, per_rank, ""
    slowest: tuple[float, int] | None = None
    for rank, samples in per_rank.items():
        try:
            median = summarise(samples.durations_us).median
        except ValueError as error:
            where = f"rank {rank}: " if len(per_rank) > 1 else ""
            return None, per_rank, f"{where}{error}"
        if slowest is None or median > slowest[0]:
            slowest = (median, rank)
    if slowest is None:
        return None, per_rank, "no sample"
    return per_rank[slowest[1]], per_rank, ""


def _is_valid(durations_us: Sequence[float]) -> bool:
    return bool(durations_us) and all(0 < value < math.inf for value in durations_us)


def measurement_of(
    job: Job,
    per_rank: Mapping[int, Samples],
    core: str,
    statistic: str,
    provenance: str,
    *,
    observed: str = "",
) -> Measurement:
    """Reduce the visits of a job to its measurement; *observed* is the kernel a profiler saw."""
    samples = merge_passes(job.passes)
    statistics = summarise(samples.durations_us)
    return Measurement(
        samples=samples,
        statistics=statistics,
        statistic=statistic,
        observed_kernel=observed or job.operator,
        core=core,
        measured_with=f"{provenance}, n={statistics.n}",
        per_rank={rank: summarise(s.durations_us) for rank, s in per_rank.items()}
        if len(per_rank) > 1
        else {},
    )


def measured_line(
    kind: str,
    job: Job,
    samples: Samples,
    measurement: Measurement | None,
    row: list[object],
    device: int,
) -> Message:
    """Write the journal line of a visit or of a measured case."""
    case = job.planned.case
    line: Message = {
        "kind": kind,
        "row": row,
        "operator": job.operator,
        "device": device,
        "environment": job.environment,
        "seed": case.seed,
        "samples": encode_samples(samples),
    }
    if case.assumptions:
        line["assumptions"] = list(case.assumptions)
    if job.checked is not None:
        line["checked"] = job.checked
    if job.attempts:
        line["attempts"] = job.attempts + 1
    if measurement is not None:
        line["statistics"] = _encode(measurement.statistics)
        line["statistic"] = measurement.statistic
        line["observed"] = measurement.observed_kernel
        line["core"] = measurement.core
        line["with"] = measurement.measured_with
        if measurement.per_rank:
            line["ranks"] = {str(rank): _encode(s) for rank, s in measurement.per_rank.items()}
    return line


def _encode(statistics: Statistics) -> dict[str, float]:
    return {name: round(value, 4) for name, value in attrs.asdict(statistics).items()}
