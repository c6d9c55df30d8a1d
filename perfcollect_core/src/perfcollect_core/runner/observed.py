"""Turn a visit whose durations a profile holds into what attribution asks for, and its answer into samples."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import attrs

from perfcollect_core.cases import Row, RowRef
from perfcollect_core.environment import TaskRecord
from perfcollect_core.measurements import Plan, Samples
from perfcollect_core.profiles.attribution import Attributed, Bracket, Expected
from perfcollect_core.tensors import INPUT_COLUMNS, OUTPUT_COLUMNS

from .case_queue import Job
from .statistics import relative_half_width

__all__ = ["devices_by_rank", "expected_tasks", "join", "observed_samples"]

_COLUMNS = (*INPUT_COLUMNS, *OUTPUT_COLUMNS)


def expected_tasks(
    job: Job,
    samples: Samples,
    *,
    number: int,
    device: int | None,
    ranges: Mapping[int, tuple[int, int]] | None = None,
) -> Expected:
    """Return what the tasks of one rank's visit must look like.

    *ranges* are the brackets as the profiler saw them, by the host time they were opened at.
    """
    table, row = job.planned.table, job.planned.row
    spec = table.spec
    assert samples.window_ns is not None
    brackets = (
        tuple(Bracket(start, end, 1) for start, end in samples.brackets_ns)
        if samples.brackets_ns
        else (Bracket(*samples.window_ns, samples.launches),)
    )
    seen = ranges or {}
    brackets = tuple(Bracket(*seen.get(b.start_ns, (b.start_ns, b.end_ns)), b.launches) for b in brackets)
    return Expected(
        number=number,
        brackets=brackets,
        kernels=tuple(dict.fromkeys((table.operator, spec.name, *spec.aliases))),
        signature=job.planned.case.signature,
        canonical=_key_of(job),
        key=table.host.canonical_key(spec, row),
        per_call=max(1, spec.kernels.count(spec.name)),
        companions=frozenset(spec.kernels) - {spec.name},
        device=device,
    )


def _key_of(job: Job) -> Callable[[Mapping[str, str]], tuple[str, ...] | None]:
    table, row = job.planned.table, job.planned.row

    def key(cells: Mapping[str, str]) -> tuple[str, ...] | None:
        # The profiler records tensors alone; what else tells rows apart is as it was asked for.
        merged = {**row.cells, **{name: cells.get(name, "") for name in _COLUMNS}}
        return table.host.canonical_key(table.spec, Row(RowRef(row.ref.table, ()), merged))

    return key


def devices_by_rank(tasks: Sequence[TaskRecord], ranks: int) -> dict[int, int | None]:
    """Return which device each rank's tasks are of: ranks take the devices of a launch in ascending order.

    One rank has one device, whatever its number in the profile.
    """
    if ranks == 1:
        return {0: None}
    devices = sorted({task.device for task in tasks})
    return {rank: devices[rank] if len(devices) == ranks else rank for rank in range(ranks)}


def observed_samples(samples: Samples, found: Attributed, plan: Plan) -> Samples:
    """Return *samples* with the durations and counters of its tasks."""
    flags = list(samples.flags)
    if found.resemblance == "unrecorded":
        flags.append("the profiler recorded no shapes, recognised by time and kernel type")
    stop = samples.stop
    if plan.repeat is None:
        stop = "precision" if relative_half_width(found.durations_us) <= plan.precision else "budget"
    return attrs.evolve(
        samples,
        durations_us=found.durations_us,
        stop=stop,
        counters={**samples.counters, **{f"MicroBench {name}": v for name, v in found.counters.items()}},
        flags=tuple(flags),
    )


def join(visits: Sequence[Samples], plan: Plan) -> Samples:
    """Join the visits that were needed until the interval of one case was narrow enough."""
    durations = tuple(value for visit in visits for value in visit.durations_us)
    counters: dict[str, float | tuple[float, ...]] = {}
    for visit in visits:
        for name, values in visit.counters.items():
            before = counters.get(name, ())
            counters[name] = (
                *(before if isinstance(before, tuple) else (before,)),
                *(values if isinstance(values, tuple) else (values,)),
            )
    narrow = relative_half_width(durations) <= plan.precision
    return attrs.evolve(
        visits[-1],
        durations_us=durations,
        counters=counters,
        stop="precision" if narrow else "budget",
        flags=tuple(dict.fromkeys(flag for visit in visits for flag in visit.flags)),
        launches=sum(visit.launches for visit in visits),
    )
