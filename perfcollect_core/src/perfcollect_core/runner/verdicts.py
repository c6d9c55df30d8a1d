"""Decide how a case ended: measured, to be tried again, or failed and why; and journal it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Mapping

import attrs

from perfcollect_core.cases import Failure, Outcome
from perfcollect_core.measurements import Measurement

from .case_queue import CaseQueue, Job
from .journal import Journal
from .protocol import Message, encode_row
from .quarantine import Quarantine
from .results import judge, measured_line, measurement_of
from .settings import CaseResult, SessionSettings
from .slots import Slot

__all__ = ["Verdicts"]

#: Visits without a record after which a case is not observed: the first and two repetitions.
_LOST_RECORD_TRIES = 3
#: Failures a second try elsewhere cannot change.
_OF_THE_ROW = frozenset({"invalid_case", "environment", "wrong_result", "not_observed"})


@attrs.define(eq=False)
class Verdicts:
    """The judge of one session.

    A failure counts against a case only where no other case can have caused it: in a process of its own and, where
    there are several devices, on two of them. ``usable`` returns the devices in use.
    """

    settings: SessionSettings
    journal: Journal
    queue: CaseQueue
    on_result: Callable[[CaseResult], None]
    usable: Callable[[], Collection[int]]
    quarantine: Quarantine
    failures: int = 0
    #: Results with the size of the journal that must be on disk before anybody hears of them.
    _undelivered: deque[tuple[int, CaseResult]] = attrs.field(factory=deque)

    def deliver(self, *, wait: bool = False) -> None:
        """Hand on the results that are on disk; with *wait* all of them are.

        Raises:
            JournalError: The disk does not take them.
        """
        if wait:
            self.journal.sync()
        while self._undelivered and self._undelivered[0][0] <= self.journal.flushed:
            self.on_result(self._undelivered.popleft()[1])

    def _announce(self, result: CaseResult) -> None:
        self._undelivered.append((self.journal.size, result))

    def visited(
        self, slot: Slot, job: Job, results: Mapping[int, Message], *, observed: str = "", core: str = ""
    ) -> None:
        """Every rank came back with samples; *observed* and *core* are what a profiler saw run, and where."""
        job.checked = results[0].get("checked", False) or bool(job.checked) if self.settings.check else None
        job.environment = slot.environment
        samples, per_rank, complaint = judge(results)
        if samples is None:
            self._lost(slot, job, complaint)
            return
        job.passes.append(samples)
        row = encode_row(job.planned.row.ref)
        if len(job.passes) < self.settings.plan.passes:
            self.journal.append(measured_line("pass", job, samples, None, row, slot.device))
            self.queue.again(job, where="last")
            return
        measurement = measurement_of(
            job,
            per_rank,
            core or slot.core,
            self.settings.statistic,
            self.settings.provenance,
            observed=observed,
        )
        self._measured(slot, job, measurement, row)

    def _measured(self, slot: Slot, job: Job, measurement: Measurement, row: list[object]) -> None:
        line = measured_line("measured", job, measurement.samples, measurement, row, slot.device)
        planned = job.planned
        try:
            cells = planned.table.host.write_back(planned.case, measurement, [planned.row])[0]
            # With the cells in the journal, writing it back later needs no plugin.
            line["cells"] = dict(cells)
        finally:
            self.journal.append(line)
        self.queue.succeeded(job)
        self.quarantine.measured(slot.device, job.failed_devices)
        slot.first_failures = 0
        if job.suspect is not None:
            suspect = encode_row(job.suspect.planned.row.ref)
            self.journal.append({"kind": "suspect", "row": suspect, "failed_after_it": row}, durable=False)
        # The journal has the samples; a run of many cases must not hold them all.
        job.passes.clear()
        light = attrs.evolve(measurement.samples, durations_us=(), warmup_us=(), brackets_ns=())
        measurement = attrs.evolve(measurement, samples=light)
        self._announce(CaseResult(job, Outcome("measured"), measurement, cells))

    def unobserved(self, slot: Slot, job: Job, complaint: str) -> None:
        """The profile of a visit does not hold what was launched."""
        self._lost(slot, job, complaint)

    def _lost(self, slot: Slot, job: Job, complaint: str) -> None:
        job.lost_records += 1
        if job.lost_records >= _LOST_RECORD_TRIES:
            self.conclude(slot, job, "not_observed", f"{complaint}, in {job.lost_records} tries")
            return
        self._attempt(slot, job, "not_observed", complaint)
        self.queue.again(job, where="next")

    def failed(
        self, slot: Slot, job: Job, failure: Failure, reason: str, *, shared: bool, poisoned: bool
    ) -> None:
        """A case failed: conclude, or try it where nothing else can be to blame.

        Args:
            slot: Where.
            job: The case in flight.
            failure: The class.
            reason: One sentence.
            shared: The process had served another case before.
            poisoned: The process is not fit to serve another one.
        """
        if failure in _OF_THE_ROW and not (poisoned and failure == "invalid_case"):
            self.conclude(slot, job, failure, reason)
            return
        if not shared:
            job.failed_devices.add(slot.device)
            slot.first_failures += 1
            job.urgent = slot.first_failures > 1
            others = set(self.usable()) - job.failed_devices
            if len(job.failed_devices) >= 2 or not others:
                self.conclude(slot, job, failure, reason)
                return
        job.attempts += 1
        job.suspect = slot.previous if shared else job.suspect
        self._attempt(slot, job, failure, reason)
        self.queue.again(job, where="soon")

    def conclude(self, slot: Slot, job: Job, failure: Failure, reason: str) -> None:
        """The case failed for good."""
        self.journal.append(
            {
                "kind": "failed",
                "row": encode_row(job.planned.row.ref),
                "operator": job.operator,
                "failure": failure,
                "reason": reason,
                "device": slot.device,
                "attempts": job.attempts + 1,
            }
        )
        self.failures += 1
        self.queue.failed(job, failure)
        self._announce(CaseResult(job, Outcome("failed", reason, failure)))

    def _attempt(self, slot: Slot, job: Job, failure: Failure, reason: str) -> None:
        self.journal.append(
            {
                "kind": "attempt",
                "row": encode_row(job.planned.row.ref),
                "failure": failure,
                "reason": reason,
                "device": slot.device,
                "served_before": slot.served,
            },
            durable=False,
        )
