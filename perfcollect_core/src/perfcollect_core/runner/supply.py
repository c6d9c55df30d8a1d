"""Give the devices of a session something to do: start workers, hand out cases, mind the budget."""

from __future__ import annotations

import time
from collections.abc import Sequence

import attrs

from .case_queue import CaseQueue, Job
from .deadlines import Deadlines
from .deferred import DeferredSessions
from .execution import Executor
from .orders import case_message, worker_order
from .settings import SessionSettings
from .slots import Slot

__all__ = ["Supplier"]

#: Cases this short leave a worker idle while the next one travels, so it is sent ahead.
_PREFETCH_BELOW_SECONDS = 0.05


@attrs.define(eq=False)
class Supplier:
    """Hands out the cases of a queue.

    ``by_worker`` finds the slot of an executor's worker; ``started`` is when the first worker was ready: budgets count
    from there. ``next_worker`` numbers logs.
    """

    settings: SessionSettings
    executor: Executor
    queue: CaseQueue
    deadlines: Deadlines
    slots: Sequence[Slot]
    by_worker: dict[int, Slot] = attrs.field(factory=dict)
    next_worker: int = 0
    started: float | None = None
    deferred: DeferredSessions | None = None

    def supply(self, slot: Slot) -> bool:
        """Start the worker of *slot* or hand it cases; ``False`` where the time budget allows no more."""
        if self._is_due(slot):
            self.end_session(slot)
            return True
        if not len(self.queue):
            return True
        if slot.state == "empty":
            self._start(slot)
        elif slot.state == "ready":
            return self._feed(slot)
        return True

    def _is_due(self, slot: Slot) -> bool:
        """Tell whether the profile of a worker must be had now: its session is full, or nothing else is left."""
        if self.deferred is None or slot.state != "ready" or slot.inflight:
            return False
        return self.deferred.holds(slot.worker) and (
            not len(self.queue) or self.deferred.is_full(slot.worker)
        )

    def end_session(self, slot: Slot) -> None:
        """Let an idle worker go, so that its profiler writes what it has."""
        if self.deferred is not None:
            self.deferred.closing(slot)
        self.executor.stop(slot.worker)
        slot.state = "ending"

    def begin_next(self, slot: Slot, now: float) -> None:
        """The first case in flight is the one being run from *now* on."""
        slot.began_at = now
        slot.deadline = now + self.deadlines.of(slot.inflight[0]) if slot.inflight else float("inf")

    def _start(self, slot: Slot) -> None:
        slot.complaint = ""
        order = worker_order(self.settings, slot, self.next_worker)
        self.next_worker += 1
        worker = self.executor.start(order)
        slot.started(worker, self.queue.age, time.monotonic() + Deadlines.START_SECONDS)
        if self.deferred is not None and order.profile_dir is not None:
            self.deferred.opened(worker, order.profile_dir)
        self.by_worker[worker] = slot

    def _feed(self, slot: Slot) -> bool:
        others = [s.device for s in self.slots if s is not slot and s.state != "quarantined"]
        while len(slot.inflight) < self._depth(slot):
            if self.deferred is not None and slot.inflight and self.deferred.is_full(slot.worker):
                return True
            job = self.queue.take(device=slot.device, served=slot.served, born=slot.born, others=others)
            if job is None:
                idle = slot.served and not slot.inflight
                if idle and self.queue.wants_fresh(device=slot.device, others=others):
                    self.end_session(slot)
                return True
            if self._over_budget(job):
                self.queue.give_back([job])
                return False
            slot.inflight.append(job)
            if len(slot.inflight) == 1:
                self.begin_next(slot, time.monotonic())
            self.executor.send(slot.worker, case_message(self.settings, job))
        return True

    def _depth(self, slot: Slot) -> int:
        short = 0 < slot.busy_seconds < _PREFETCH_BELOW_SECONDS
        return 2 if short and slot.ranks == 1 and len(self.queue) > 4 * len(self.slots) else 1

    def _over_budget(self, job: Job) -> bool:
        limit = self.settings.max_seconds
        if limit is None or self.started is None:
            return False
        spent = time.monotonic() - self.started
        return spent >= limit or spent + self.deadlines.expected(job) > limit
