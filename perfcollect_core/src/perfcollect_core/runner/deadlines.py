"""How long a case may take, and how long it probably will."""

from __future__ import annotations

from perfcollect_core.measurements import Plan

from .case_queue import Job
from .slots import Slot

__all__ = ["Deadlines"]

#: Where nothing is asked for: building inputs, the first call's compilation, and slow launches on top.
_BASE_SECONDS = 60.0
_BUDGETS = 10.0
_FLOPS_PER_SECOND = 5e9
_BYTES_PER_SECOND = 5e8
_LAUNCHES = 6
_HIGHEST_RATIO = 5.0


class Deadlines:
    """Deadlines from the plan and the work of a case; expectations from what earlier cases took."""

    #: A worker imports torch and opens its device in this time.
    START_SECONDS = 180.0

    def __init__(self, plan: Plan, case_timeout: float | None) -> None:
        self._plan = plan
        self._fixed = case_timeout
        self._ratio = 0.0

    def of(self, job: Job) -> float:
        """Return the seconds *job* may take."""
        if self._fixed is not None:
            return self._fixed
        planned = job.planned
        launches = _LAUNCHES + (self._plan.repeat or 0) + self._plan.warmup
        work = planned.flops / _FLOPS_PER_SECOND + planned.needed_bytes / _BYTES_PER_SECOND
        return _BASE_SECONDS + _BUDGETS * self._plan.max_seconds + launches * work

    def complaint(self, slot: Slot) -> str:
        """Say what the worker of *slot* did not do in time, and which of its ranks."""
        if slot.state == "starting":
            silent = sorted(set(range(slot.ranks)) - slot.readies)
            ranks = f" (ranks {silent} were not)" if slot.ranks > 1 else ""
            return f"the worker was not ready in {self.START_SECONDS:g} s{ranks}"
        silent = sorted(set(range(slot.ranks)) - set(slot.results))
        ranks = f", rank {', '.join(map(str, silent))} did not answer" if slot.ranks > 1 else ""
        return f"not done within {self.of(slot.inflight[0]):g} s{ranks}"

    def learn(self, job: Job, seconds: float) -> None:
        """Note what *job* took."""
        # The first case of a worker pays for imports: one such must not end a budgeted run early.
        ratio = min(seconds / max(job.planned.predicted_seconds, 1e-6), _HIGHEST_RATIO)
        self._ratio = ratio if not self._ratio else 0.7 * self._ratio + 0.3 * ratio

    def expected(self, job: Job) -> float:
        """Return the seconds *job* will probably take, 0 before anything is known."""
        return self._ratio * job.planned.predicted_seconds
