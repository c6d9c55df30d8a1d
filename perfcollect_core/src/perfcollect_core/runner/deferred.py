"""Profiling sessions: cases whose durations come out of the profile of their worker once it has ended (decision 6)."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

import attrs

from perfcollect_core.measurements import Samples
from perfcollect_core.profiles.attribution import Attributed, Unfit, attribute, describe_seen
from perfcollect_core.profiles.op_summary import SessionRecords, read_session

from .case_queue import CaseQueue, Job
from .failures import describe_exit
from .journal import Journal
from .observed import devices_by_rank, expected_tasks, join, observed_samples
from .protocol import Message, decode_samples, encode_row, encode_samples
from .settings import SessionSettings
from .slots import PROBES, Slot
from .statistics import relative_half_width
from .verdicts import Verdicts

__all__ = ["MAX_DEVICE_SECONDS", "MAX_LAUNCHES", "DeferredSessions"]

#: A session ends after so many launches or so much device time: that much at most is ever measured twice.
MAX_LAUNCHES = 2_000
MAX_DEVICE_SECONDS = 60.0
#: Further visits of a case whose interval is still too wide.
_MAX_WIDENED = 2
#: Sessions that may end badly through another case before a case without tasks is not observed.
_MAX_DISTURBED = 3
#: Name of the directory in the run's profiles that keeps the records of cases that did not fit.
SUSPICIOUS = "suspicious"


@attrs.define(eq=False)
class _Worker:
    """A worker under a profiler and what its profile must explain."""

    directory: Path
    visits: list[tuple[Job, dict[int, Message]]] = attrs.field(factory=list)
    launches: int = 0
    device_seconds: float = 0.0
    disturbed: bool = False


@attrs.define(eq=False)
class DeferredSessions:
    """The profiling sessions of one pass over the cases.

    ``announce`` hears sentences for the person who waits; ``notes`` go into the report.
    """

    settings: SessionSettings
    journal: Journal
    queue: CaseQueue
    verdicts: Verdicts
    announce: Callable[[str], None] = lambda sentence: None
    notes: list[str] = attrs.field(factory=list)
    #: Cases one session may take; less after a session without data.
    case_limit: int = MAX_LAUNCHES
    _workers: dict[int, _Worker] = attrs.field(factory=dict)
    #: Sessions of a single case without data in a row, by device.
    _barren: dict[int, int] = attrs.field(factory=dict)

    def opened(self, worker: int, directory: Path) -> None:
        """A worker was started under a profiler that writes to *directory*."""
        self._workers[worker] = _Worker(directory)

    def disturbed(self, worker: int) -> None:
        """A case spoilt the worker: cases without tasks in its profile are not to blame."""
        if worker in self._workers:
            self._workers[worker].disturbed = True

    def holds(self, worker: int) -> bool:
        """Tell whether visits wait for the profile of *worker*."""
        return bool(worker in self._workers and self._workers[worker].visits)

    def is_full(self, worker: int) -> bool:
        """Tell whether the session of *worker* has reached a bound."""
        session = self._workers.get(worker)
        return session is not None and (
            session.launches >= MAX_LAUNCHES
            or session.device_seconds >= MAX_DEVICE_SECONDS
            or len(session.visits) >= self.case_limit
        )

    def take(self, slot: Slot, job: Job, results: Mapping[int, Message]) -> bool:
        """Keep a visit until the profile is there; ``False`` where the worker gave durations itself."""
        session = self._workers.get(slot.worker)
        samples = {rank: decode_samples(message["samples"]) for rank, message in results.items()}
        if session is None or not all(entry.is_deferred for entry in samples.values()):
            return False
        session.visits.append((job, dict(results)))
        first = samples[min(samples)]
        session.launches += first.launches + len(first.warmup_us)
        once_us = sum(first.warmup_us) / len(first.warmup_us) if first.warmup_us else 0.0
        session.device_seconds += once_us * (first.launches + len(first.warmup_us)) / 1e6
        self.journal.append(
            {
                "kind": "launched",
                "row": encode_row(job.planned.row.ref),
                "operator": job.operator,
                "device": slot.device,
                "session": session.directory.name,
                "launches": first.launches,
                "window_ns": list(first.window_ns or ()),
            },
            durable=False,
        )
        return True

    def closing(self, slot: Slot) -> None:
        """Say that the profiler of a slot begins to write what it has."""
        session = self._workers.get(slot.worker)
        if session is not None and session.visits:
            self.announce(
                f"device {slot.device}: the profiler exports {session.launches} launches of "
                f"{len(session.visits)} cases"
            )

    def close(self, slot: Slot, worker: int, code: int | None, *, discard: bool = False) -> None:
        """Settle the visits of a worker that has ended.

        Args:
            slot: Its slot.
            worker: Its number.
            code: Its exit status, the profiler's.
            discard: It was ended before the profiler could write: its cases were not measured.
        """
        session = self._workers.pop(worker, None)
        if session is None:
            return
        if discard:
            self.queue.give_back(job for job, _ in session.visits)
            return
        records = read_session(session.directory)
        if session.visits and not records.tasks:
            self._without_data(slot, session, records, code)
            return
        if records.tasks:
            self._barren.pop(slot.device, None)
        if code and session.visits and not session.disturbed:
            self.notes.append(
                f"{session.directory.name}: the profiler {describe_exit(code)}, its data were read all the same"
            )
        suspicious = self._settle(slot, session, records)
        self._clear_away(session, records, keep=bool(suspicious))

    def _settle(self, slot: Slot, session: _Worker, records: SessionRecords) -> int:
        devices = devices_by_rank(records.tasks, slot.ranks)
        samples = [
            {rank: decode_samples(message["samples"]) for rank, message in results.items()}
            for _, results in session.visits
        ]
        expected = [
            expected_tasks(
                job, entry, number=index * slot.ranks + rank, device=devices[rank], ranges=records.ranges
            )
            for index, (job, _) in enumerate(session.visits)
            for rank, entry in samples[index].items()
        ]
        answer = attribute(records.tasks, expected)
        unfit = 0
        for index, (job, results) in enumerate(session.visits):
            numbers = {rank: index * slot.ranks + rank for rank in results}
            wrong = next((answer.unfit[n] for n in numbers.values() if n in answer.unfit), None)
            if wrong is not None:
                unfit += 1
                self._unfit(slot, job, wrong, session)
                continue
            found = {rank: answer.found[number] for rank, number in numbers.items()}
            self._fit(slot, job, results, samples[index], found)
        return unfit

    def _fit(
        self,
        slot: Slot,
        job: Job,
        results: Mapping[int, Message],
        samples: Mapping[int, Samples],
        found: Mapping[int, Attributed],
    ) -> None:
        plan = self.settings.plan
        observed = {rank: observed_samples(samples[rank], found[rank], plan) for rank in found}
        if slot.ranks == 1:
            job.partial.append(observed[0])
            observed[0] = join(job.partial, plan) if len(job.partial) > 1 else observed[0]
            wide = plan.repeat is None and relative_half_width(observed[0].durations_us) > plan.precision
            if wide and len(job.partial) <= _MAX_WIDENED:
                self.journal.append(
                    {
                        "kind": "wide",
                        "row": encode_row(job.planned.row.ref),
                        "n": len(observed[0].durations_us),
                    },
                    durable=False,
                )
                self.queue.again(job, where="last")
                return
            job.partial = []
        answered = {
            rank: {**message, "samples": encode_samples(observed[rank])} for rank, message in results.items()
        }
        first = found[min(found)]
        self.verdicts.visited(slot, job, answered, observed=first.kernel, core=first.core)

    def _unfit(self, slot: Slot, job: Job, wrong: Unfit, session: _Worker) -> None:
        seen = describe_seen(wrong.seen)
        where = f"{self.settings.run_dir.name}/profiles/{SUSPICIOUS}/{session.directory.name}"
        complaint = f"{wrong.reason}; in its brackets: {seen} (op_summary kept in {where})"
        self._again(slot, job, complaint, blame=not session.disturbed)

    def _again(self, slot: Slot, job: Job, complaint: str, *, blame: bool) -> None:
        job.disturbed += not blame
        if blame or job.disturbed > _MAX_DISTURBED:
            self.verdicts.unobserved(slot, job, complaint)
        else:
            self.queue.again(job, where="last")

    def _without_data(self, slot: Slot, session: _Worker, records: SessionRecords, code: int | None) -> None:
        how = f"the profiler {describe_exit(code)} and left no task in {session.directory}"
        if records.faults:
            how += f" ({'; '.join(records.faults)})"
        jobs = [job for job, _ in session.visits]
        if len(jobs) > 1:
            self.case_limit = max(1, len(jobs) // 2)
            self.notes.append(f"{how}: its {len(jobs)} cases are measured again, {self.case_limit} at a time")
            self.queue.give_back(jobs)
            return
        self._barren[slot.device] = self._barren.get(slot.device, 0) + 1
        if self._barren[slot.device] >= PROBES:
            # Not the cases: three different ones, or one three times, came back without anything.
            slot.complaint, slot.state = how, "quarantined"
            self.notes.append(
                f"device {slot.device} was left alone after {PROBES} sessions without data: {how}"
            )
            self.queue.give_back(jobs)
            return
        self._again(slot, jobs[0], how, blame=not session.disturbed)

    def _clear_away(self, session: _Worker, records: SessionRecords, *, keep: bool) -> None:
        """Remove a profile that told everything; of one with cases that did not fit the ``op_summary`` stay."""
        if self.settings.keep_profiles:
            return
        with suppress(OSError):
            if keep:
                target = session.directory.parent / SUSPICIOUS / session.directory.name
                target.mkdir(parents=True, exist_ok=True)
                for path in records.files:
                    shutil.copy2(path, target / f"{path.parent.parent.name}_{path.name}")
            shutil.rmtree(session.directory)
