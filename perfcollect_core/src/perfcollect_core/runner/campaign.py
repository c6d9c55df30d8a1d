"""Run a plan from its first worker to its last table: sessions by rank count, interrupts, results."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import FrameType

import attrs

from perfcollect_core.cases import Outcome, RowRef
from perfcollect_core.measurements import Samples

from .case_queue import Job
from .execution import Executor
from .journal import Journal
from .plan import PlannedCase
from .protocol import Message, decode_samples
from .session import Session, StopReason
from .settings import CaseResult, SessionSettings

__all__ = ["CampaignResult", "run_campaign"]


@attrs.define
class CampaignResult:
    """What a run of sessions gave; ``left`` are cases nobody began or finished."""

    results: list[CaseResult] = attrs.field(factory=list)
    left: list[PlannedCase] = attrs.field(factory=list)
    stop_reason: StopReason = ""
    stopped: dict[str, str] = attrs.field(factory=dict)
    environments: list[Mapping[str, str]] = attrs.field(factory=list)
    notes: list[str] = attrs.field(factory=list)


def run_campaign(
    cases: Sequence[PlannedCase],
    settings: SessionSettings,
    executor: Executor,
    journal: Journal,
    devices: Sequence[int],
    *,
    finished: Mapping[RowRef, Message] | None = None,
    earlier_passes: Mapping[RowRef, Sequence[Message]] | None = None,
    on_result: Callable[[CaseResult], None] = lambda result: None,
    on_idle: Callable[[], None] = lambda: None,
    announce: Callable[[str], None] = lambda sentence: None,
    first_worker: int = 0,
) -> CampaignResult:
    """Measure *cases*: those of one rank on all devices at once, then those of several ranks one after the other.

    The first Ctrl-C lets the cases in flight finish, the second ends them; either way the caller goes on to write
    what was measured.
    """
    campaign = CampaignResult()

    def collect(result: CaseResult) -> None:
        campaign.results.append(result)
        on_result(result)

    by_ranks: dict[int, list[PlannedCase]] = {}
    for planned in cases:
        by_ranks.setdefault(planned.case.ranks, []).append(planned)
    number = 0
    started: float | None = None
    for ranks, group in sorted(by_ranks.items()):
        if campaign.stop_reason:
            campaign.left += group
            continue
        jobs = [
            Job(number + index, planned, passes=_passes(planned, earlier_passes or {}, settings))
            for index, planned in enumerate(group)
        ]
        number += len(jobs)
        known = (finished or {}) if ranks == 1 and settings.plan.passes == 1 else {}
        session = Session(
            [job for job in jobs if job.planned.row.ref not in known],
            settings,
            executor,
            journal,
            # Ranks of one case share all devices: two such cases at once would disturb each other.
            devices if ranks == 1 else devices[:1],
            ranks=ranks,
            first_worker=first_worker,
            started=started,
            on_result=collect,
            on_idle=on_idle,
            announce=announce,
        )
        for job in jobs:
            if job.planned.row.ref in known:
                session.adopt(job, known[job.planned.row.ref])
        with _interrupts(session, announce):
            session.run()
        started, first_worker = session.started, session.next_worker
        _gather(campaign, session, settings)
    return campaign


def _passes(
    planned: PlannedCase, earlier: Mapping[RowRef, Sequence[Message]], settings: SessionSettings
) -> list[Samples]:
    """Return the visits an earlier part of the run made of a case it did not finish."""
    lines = earlier.get(planned.row.ref, ())
    return [decode_samples(line["samples"]) for line in lines[: settings.plan.passes - 1]]


def _gather(campaign: CampaignResult, session: Session, settings: SessionSettings) -> None:
    campaign.left += [job.planned for job in session.left]
    campaign.stop_reason = session.stop_reason
    campaign.environments += session.environments
    campaign.notes += session.notes
    for operator, failure in session.queue.stopped.items():
        campaign.stopped[operator] = failure
    for job in session.queue.quarantined:
        reason = (
            f"not tried: {job.operator} was stopped after ten {session.queue.stopped[job.operator]} in a row"
        )
        campaign.results.append(CaseResult(job, Outcome("skipped", reason)))


@contextmanager
def _interrupts(session: Session, announce: Callable[[str], None]) -> Iterator[None]:
    """Turn Ctrl-C and the signals of a service manager into an orderly end."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    count = 0

    def interrupted(number: int, frame: FrameType | None) -> None:
        nonlocal count
        count += 1
        session.stop("interrupted")
        if count == 1 and number == signal.SIGINT:
            announce("interrupted: the cases in flight are finished; Ctrl-C once more ends them")
            return
        session.kill()
        if count > 2:
            raise KeyboardInterrupt

    handled = [signal.SIGINT, signal.SIGTERM]
    if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        handled.append(signal.SIGHUP)
    before = {number: signal.signal(number, interrupted) for number in handled}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
