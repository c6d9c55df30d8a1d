"""Run the cases of a plan on the devices there are: hand out, watch, retry, journal."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Literal

from .case_queue import CaseQueue, Job
from .deadlines import Deadlines
from .deferred import DeferredSessions
from .execution import Ended, Executor, Said, describe_end
from .journal import Journal
from .orders import setup_message
from .protocol import Message
from .quarantine import Quarantine
from .settings import CaseResult, SessionSettings
from .slots import Slot
from .supply import Supplier
from .verdicts import Verdicts

__all__ = ["Session", "StopReason"]

StopReason = Literal["", "budget", "interrupted", "fail_fast", "no_device"]


class Session:
    """One pass over jobs that need equal ranks; owns the workers while it runs.

    Call ``run`` once. ``stop`` and ``kill`` may be called from a signal handler.
    """

    def __init__(
        self,
        jobs: Sequence[Job],
        settings: SessionSettings,
        executor: Executor,
        journal: Journal,
        devices: Sequence[int],
        *,
        ranks: int = 1,
        first_worker: int = 0,
        started: float | None = None,
        on_result: Callable[[CaseResult], None] = lambda result: None,
        on_idle: Callable[[], None] = lambda: None,
        announce: Callable[[str], None] = lambda sentence: None,
    ) -> None:
        self._settings = settings
        self._executor = executor
        self._journal = journal
        self._on_idle = on_idle
        self._slots = [Slot(device, ranks) for device in devices]
        self._deadlines = Deadlines(settings.plan, settings.case_timeout)
        self._killed = False
        self.queue = CaseQueue(jobs)
        self._supplier = Supplier(
            settings,
            executor,
            self.queue,
            self._deadlines,
            self._slots,
            next_worker=first_worker,
            started=started,
        )
        self._by_worker = self._supplier.by_worker
        self._quarantine = Quarantine()
        self._verdicts = Verdicts(
            settings,
            journal,
            self.queue,
            on_result,
            lambda: [slot.device for slot in self._slots if slot.state != "quarantined"],
            self._quarantine,
        )
        self._deferred: DeferredSessions | None = None
        if getattr(settings.family, "deferred", False):
            self._deferred = DeferredSessions(settings, journal, self.queue, self._verdicts, announce)
            self._supplier.deferred = self._deferred
        self.stop_reason: StopReason = ""
        self.environments: list[Mapping[str, str]] = []
        self.notes = self._quarantine.notes
        #: Jobs that were not run: the budget, an interrupt, no device.
        self.left: list[Job] = []

    @property
    def started(self) -> float | None:
        """When the first worker was ready."""
        return self._supplier.started

    @property
    def next_worker(self) -> int:
        """The number the next worker would have."""
        return self._supplier.next_worker

    def adopt(self, job: Job, result: Message) -> None:
        """Take in what a worker of a killed part of the run finished and nobody journalled."""
        self._verdicts.visited(Slot(-1, core=result["core"]), job, {0: result})

    def stop(self, reason: StopReason) -> None:
        """Hand out no more cases; those in flight go on."""
        self.stop_reason = self.stop_reason or reason

    def kill(self) -> None:
        """End the workers now, their cases unfinished."""
        self._killed = True

    def run(self) -> None:
        """Run until every job ended or the session was stopped.

        Raises:
            JournalError: A result could not be made durable.
        """
        try:
            while not self._finished():
                for event in self._executor.events(self._patience()):
                    self._handle(event)
                self._watch()
                self._verdicts.deliver()
                self._quarantine_sick()
                if self._settings.fail_fast and self._verdicts.failures:
                    self.stop("fail_fast")
                for slot in self._slots:
                    if not self.stop_reason and not self._supplier.supply(slot):
                        self.stop("budget")
                self._on_idle()
            self._verdicts.deliver(wait=True)
        finally:
            self._release()
        # Profiles of workers that were let go just now.
        self._verdicts.deliver(wait=True)
        if self._deferred is not None:
            self.notes += self._deferred.notes
        self.left = [job for slot in self._slots for job in slot.take_inflight()] + self.queue.drain()

    def _finished(self) -> bool:
        if self._killed:
            self.stop("interrupted")
            return True
        busy = any(slot.inflight for slot in self._slots)
        if self.stop_reason:
            return not busy
        # A profile still to be read may send its cases round again.
        if self._deferred is not None:
            busy = busy or any(self._deferred.holds(slot.worker) for slot in self._slots)
        if all(slot.state == "quarantined" for slot in self._slots):
            if len(self.queue):
                self.stop("no_device")
            return True
        return not busy and not len(self.queue)

    def _patience(self) -> float:
        nearest = min((slot.deadline for slot in self._slots), default=float("inf"))
        return max(0.0, min(0.2, nearest - time.monotonic()))

    def _release(self) -> None:
        """Let the workers go and wait until they are gone."""
        for slot in self._slots:
            if slot.state in ("starting", "ready"):
                idle = slot.state == "ready" and not slot.inflight
                self._executor.stop(slot.worker, force=self._killed or not idle)
                slot.state = "ending"
        limit = time.monotonic() + self._settings.exit_seconds + 5.0
        while any(slot.state == "ending" for slot in self._slots) and time.monotonic() < limit:
            for event in self._executor.events(0.2):
                if isinstance(event, Ended) and event.worker in self._by_worker:
                    slot = self._by_worker.pop(event.worker)
                    slot.state = "empty"
                    self._read_profile(slot, event)

    def _read_profile(self, slot: Slot, event: Ended) -> None:
        if self._deferred is not None:
            self._deferred.close(slot, event.worker, event.code, discard=self._killed)

    # What workers say.

    def _handle(self, event: Said | Ended) -> None:
        slot = self._by_worker.get(event.worker)
        if slot is None:
            return
        if isinstance(event, Ended):
            self._worker_ended(slot, event)
            return
        if slot.state == "ending":
            return
        message = event.message
        match message["kind"]:
            case "hello":
                slot.hellos.add(event.rank)
                if len(slot.hellos) == slot.ranks:
                    self._executor.send(slot.worker, setup_message(self._settings, slot))
            case "ready":
                slot.readies.add(event.rank)
                if len(slot.readies) == slot.ranks:
                    self._ready(slot, message)
            case "refused":
                slot.complaint = message["reason"]
                self._end(slot)
            case "begin":
                slot.begun = message["id"]
            case "result":
                self._heard_result(slot, event.rank, message)

    def _ready(self, slot: Slot, message: Message) -> None:
        slot.state, slot.deadline = "ready", float("inf")
        slot.core = message["core"]
        if self._supplier.started is None:
            self._supplier.started = time.monotonic()
        facts = message["environment"]
        if facts not in self.environments:
            self.environments.append(facts)
        slot.environment = self.environments.index(facts)
        self._journal.append(
            {"kind": "worker", "device": slot.device, "environment": slot.environment, "facts": facts},
            durable=False,
        )

    def _heard_result(self, slot: Slot, rank: int, message: Message) -> None:
        if not slot.inflight or slot.inflight[0].number != message["id"]:
            return
        slot.results[rank] = message
        failed = "failure" in message
        if len(slot.results) < slot.ranks and not failed:
            return
        job = slot.inflight.popleft()
        slot.failed_starts = 0
        results, slot.results = slot.results, {}
        shared, slot.served = slot.served > 0, slot.served + 1
        now = time.monotonic()
        self._deadlines.learn(job, now - slot.began_at)
        slot.note_duration(now - slot.began_at)
        self._supplier.begin_next(slot, now)
        if failed:
            reason = (f"rank {rank}: " if slot.ranks > 1 else "") + message["reason"]
            final = message.get("final", False)
            self._verdicts.failed(slot, job, message["failure"], reason, shared=shared, poisoned=final)
            if final or slot.ranks > 1:
                self._end(slot)
        elif self._deferred is None or not self._deferred.take(slot, job, results):
            self._verdicts.visited(slot, job, results)
        slot.previous = job

    def _worker_ended(self, slot: Slot, event: Ended) -> None:
        del self._by_worker[event.worker]
        was = slot.state
        jobs = slot.take_inflight()
        slot.state = "quarantined" if was == "quarantined" else "empty"
        if event.survivors:
            self.notes.append(f"device {slot.device}: processes {event.survivors} could not be ended")
        if was == "starting" or (was == "ready" and not slot.served and slot.begun < 0):
            early = f"{describe_end(event)} before its first case"
            self._quarantine.start_failed(slot, slot.complaint or early)
        if self._deferred is not None and was == "ready":
            self._deferred.disturbed(event.worker)
        if was == "ready" and jobs and (slot.served or slot.begun == jobs[0].number):
            reason, shared = describe_end(event, slot.ranks), slot.served > 0
            self._verdicts.failed(slot, jobs.pop(0), "worker_crashed", reason, shared=shared, poisoned=True)
        self.queue.give_back(jobs)
        self._read_profile(slot, event)

    def _quarantine_sick(self) -> None:
        for slot in filter(self._quarantine.is_sick, self._slots):
            if slot.state == "ready":
                self._end(slot)
            self._quarantine.close(slot)

    def _watch(self) -> None:
        now = time.monotonic()
        for slot in self._slots:
            if now < slot.deadline or slot.state not in ("starting", "ready"):
                continue
            reason = self._deadlines.complaint(slot)
            if slot.state == "starting":
                slot.complaint = reason
                self._end(slot)
                continue
            job, *others = slot.take_inflight()
            self._end(slot)
            self._verdicts.failed(slot, job, "timeout", reason, shared=slot.served > 0, poisoned=True)
            self.queue.give_back(others)

    def _end(self, slot: Slot) -> None:
        """End a slot's worker at once; a start that was under way has failed."""
        if slot.state == "starting":
            self._quarantine.start_failed(slot, slot.complaint)
        if self._deferred is not None and self._deferred.holds(slot.worker):
            # What it measured before is in the profile, which its profiler can still write.
            self._deferred.disturbed(slot.worker)
            self._executor.stop(slot.worker, force=True, export=True)
        else:
            self._executor.stop(slot.worker, force=True)
        self.queue.give_back(slot.take_inflight())
        if slot.state != "quarantined":
            slot.state = "ending"
        else:
            self._by_worker.pop(slot.worker, None)
