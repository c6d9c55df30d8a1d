"""The queue of a run: who is next, what is tried again and where, and when an operator is given up."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable
from typing import Literal

import attrs

from perfcollect_core.cases import Failure
from perfcollect_core.measurements import Samples

from .plan import PlannedCase

__all__ = ["DEFER_AFTER", "STOP_AFTER", "CaseQueue", "Job"]

#: Failures of one class in a row after which an operator's cases wait for the others, and after which it is stopped.
DEFER_AFTER = 3
STOP_AFTER = 10


@attrs.define(eq=False)
class Job:
    """A case on its way through the run.

    Attributes:
        number: Its number in the run; workers know it by this.
        planned: The case.
        passes: Samples of the visits so far.
        attempts: Failures that were not conclusive.
        lost_records: Visits that came back without a duration.
        failed_devices: Devices on which a process of its own failed with it.
        fresh: The next try needs a process that served no other case.
        urgent: It failed on a device that fails again and again: any other one may try it, to tell which is at fault.
        suspect: The case that was served before this one in a process where it failed.
        checked: Whether its output was compared, ``None`` where that was not asked.
    """

    number: int
    planned: PlannedCase
    passes: list[Samples] = attrs.field(factory=list)
    attempts: int = 0
    lost_records: int = 0
    failed_devices: set[int] = attrs.field(factory=set)
    fresh: bool = False
    urgent: bool = False
    suspect: Job | None = None
    checked: bool | None = None
    environment: int = 0
    #: Profiled visits whose interval is still too wide, and sessions that another case spoilt.
    partial: list[Samples] = attrs.field(factory=list)
    disturbed: int = 0

    @property
    def operator(self) -> str:
        return self.planned.table.operator


@attrs.define(eq=False)
class _Streak:
    failure: Failure
    count: int = 1


class CaseQueue:
    """Jobs in order; an operator that fails again and again goes behind the others, then is stopped (decision 10)."""

    def __init__(self, jobs: Iterable[Job]) -> None:
        self._waiting: deque[Job] = deque(jobs)
        self._fresh: deque[Job] = deque()
        self._deferred: deque[Job] = deque()
        self._streaks: dict[str, _Streak] = {}
        #: Operators whose cases wait, with the age a worker must not have reached to serve them.
        self._behind: dict[str, int] = {}
        self._age = 0
        #: Operators that were given up, with the class that stopped them, and their cases.
        self.stopped: dict[str, Failure] = {}
        self.quarantined: list[Job] = []

    def __len__(self) -> int:
        return len(self._waiting) + len(self._fresh) + len(self._deferred)

    @property
    def age(self) -> int:
        """A worker started now was born at this age."""
        return self._age

    def take(self, *, device: int, served: int, born: int, others: Collection[int]) -> Job | None:
        """Return the next case for a worker that served *served* cases on *device*.

        *others* are the further devices in use: a case that failed here goes to one of them where it can.
        """
        for job in self._fresh:
            elsewhere = job.urgent and device not in job.failed_devices
            if (served == 0 or elsewhere) and self._may_run(job, device, others):
                self._fresh.remove(job)
                return job
        if self._waiting:
            return self._waiting.popleft()
        if self._deferred and (served == 0 or born >= self._behind.get(self._deferred[0].operator, 0)):
            return self._deferred.popleft()
        return None

    def wants_fresh(self, *, device: int, others: Collection[int]) -> bool:
        """Tell whether a worker with nothing to do should be replaced by a fresh one."""
        return bool(self._deferred) or any(self._may_run(job, device, others) for job in self._fresh)

    def _may_run(self, job: Job, device: int, others: Collection[int]) -> bool:
        return device not in job.failed_devices or not set(others) - job.failed_devices

    def give_back(self, jobs: Iterable[Job]) -> None:
        """Put back jobs that were handed out and never begun, in front."""
        for job in reversed(list(jobs)):
            if job.operator in self.stopped:
                self.quarantined.append(job)
            elif job.fresh:
                self._fresh.appendleft(job)
            elif job.operator in self._behind:
                self._deferred.appendleft(job)
            else:
                self._waiting.appendleft(job)

    def again(self, job: Job, *, where: Literal["soon", "next", "last"]) -> None:
        """Queue *job* once more: ``soon`` in a fresh process, ``next`` after one other, ``last`` behind all that wait.

        Not all tries of bad cases may come at the end: ten in a row there would stop the operator.
        """
        if job.operator in self.stopped:
            self.quarantined.append(job)
        elif where == "soon":
            job.fresh = True
            self._fresh.append(job)
        elif job.operator in self._behind:
            self._deferred.append(job)
        elif where == "next":
            self._waiting.insert(1, job)
        else:
            self._waiting.append(job)

    def succeeded(self, job: Job) -> None:
        """Note that a case of this operator was measured."""
        self._streaks.pop(job.operator, None)

    def failed(self, job: Job, failure: Failure) -> None:
        """Note a conclusive failure; defers or stops the operator where it is one of many in a row."""
        operator = job.operator
        streak = self._streaks.get(operator)
        if streak is None or streak.failure != failure:
            self._streaks[operator] = streak = _Streak(failure)
        else:
            streak.count += 1
        if streak.count >= STOP_AFTER:
            self._stop(operator, failure)
        elif streak.count >= DEFER_AFTER and operator not in self._behind:
            self._defer(operator)

    def _defer(self, operator: str) -> None:
        self._age += 1
        self._behind[operator] = self._age
        moved = [job for job in self._waiting if job.operator == operator]
        self._waiting = deque(job for job in self._waiting if job.operator != operator)
        # Neighbours in cost fail alike: the next tries are spread over what is left, so that one bad region of
        # shapes does not stop an operator whose other rows are fine.
        step = max(1, len(moved) // (STOP_AFTER - DEFER_AFTER))
        self._deferred.extend(job for first in range(step) for job in moved[first::step])

    def _stop(self, operator: str, failure: Failure) -> None:
        self.stopped[operator] = failure
        for queue in (self._waiting, self._fresh, self._deferred):
            self.quarantined += (job for job in queue if job.operator == operator)
            kept = [job for job in queue if job.operator != operator]
            queue.clear()
            queue.extend(kept)

    def drain(self) -> list[Job]:
        """Take out everything that is left."""
        left = [*self._fresh, *self._waiting, *self._deferred]
        for queue in (self._waiting, self._fresh, self._deferred):
            queue.clear()
        return left
