"""Start a run or take one up again: everything between the command line and the first case, and after the last."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import attrs

from perfcollect_core import __version__
from perfcollect_core.cases import RowRef
from perfcollect_core.loading import LoadedPlugin

from .campaign import CampaignResult, run_campaign
from .context import RunContext, adopt, session_settings
from .journal import JOURNAL_NAME, Journal, JournalError, JournalState
from .options import RunOptions, encode_options
from .plan import PlannedCase, RunPlan
from .protocol import Message, encode_row
from .settings import CaseResult
from .spool import clear_spool, read_spool
from .write_back import TableWriter

__all__ = ["RunOutcome", "encode_denied", "execute"]


@attrs.define
class RunOutcome:
    """What a run did: the cases, the tables, and what kept it from writing."""

    campaign: CampaignResult
    writer: TableWriter
    write_error: Exception | None = None
    run_error: Exception | None = None


def execute(
    plan: RunPlan,
    options: RunOptions,
    context: RunContext,
    wrappers: Sequence[LoadedPlugin],
    *,
    earlier: JournalState | None = None,
    on_result: Callable[[CaseResult], None] = lambda result: None,
    announce: Callable[[str], None] = lambda sentence: None,
) -> RunOutcome:
    """Measure the cases of *plan* and write the tables; what stops it is in the outcome, never lost.

    Raises:
        JournalError: The journal cannot be opened: nothing was measured.
    """
    if context.write:
        adopt(context)
    journal = Journal(context.run_dir / JOURNAL_NAME)
    try:
        journal.append(
            {
                "kind": "run",
                "id": context.run_dir.name,
                "tool": f"perfcollect {__version__}",
                "database": str(context.database.resolve()),
                "family": context.device_family.name,
                "devices": [[device.index, device.name] for device in context.devices],
                "versions": dict(context.versions),
                "emulated": context.emulated,
                "started_at": time.time(),
                "options": encode_options(options),
                "cases": len(plan.cases),
                "done_before": len(earlier.measured) if earlier else 0,
            }
        )
        writer = TableWriter(
            context.database,
            journal,
            write=context.write,
            earlier=context.run_dir / JOURNAL_NAME if earlier else None,
        )
        outcome = _measure(plan, options, context, wrappers, journal, writer, on_result, announce, earlier)
        _write(outcome, plan, options, context)
        _end(outcome, journal)
        return outcome
    finally:
        journal.close()


def _measure(
    plan: RunPlan,
    options: RunOptions,
    context: RunContext,
    wrappers: Sequence[LoadedPlugin],
    journal: Journal,
    writer: TableWriter,
    on_result: Callable[[CaseResult], None],
    announce: Callable[[str], None],
    earlier: JournalState | None,
) -> RunOutcome:
    settings = session_settings(plan, options, context, wrappers)
    outcome = RunOutcome(CampaignResult(), writer)
    if not plan.cases:
        return outcome

    def collect(result: CaseResult) -> None:
        outcome.campaign.results.append(result)
        if result.measurement is not None:
            writer.add(result.job.planned, result.measurement, result.cells)
        on_result(result)

    executor = context.executor.open_executor(context.run_dir)
    try:
        finished = run_campaign(
            _in_order(plan, options, context),
            settings,
            executor,
            journal,
            [device.index for device in context.devices],
            finished=_finished(context, earlier),
            earlier_passes=earlier.passes if earlier else {},
            on_result=collect,
            on_idle=writer.flush_now_and_then,
            announce=announce,
            first_worker=_workers_before(context.run_dir),
        )
        outcome.campaign = finished
    except Exception as error:
        # What was measured before is written all the same; the caller reports and exits accordingly.
        outcome.run_error = error
        done = {result.job.planned.row.ref for result in outcome.campaign.results}
        outcome.campaign.left += [planned for planned in plan.cases if planned.row.ref not in done]
    finally:
        executor.close()
    return outcome


def _in_order(plan: RunPlan, options: RunOptions, context: RunContext) -> Sequence[PlannedCase]:
    """Return the cases as they are handed out: the cheapest first, so that a budget measures the most of them.

    Several devices without a budget get the most expensive first: the short ones at the end leave nobody idle.
    """
    if len(context.devices) > 1 and options.max_seconds is None:
        return plan.cases[::-1]
    return plan.cases


def _finished(context: RunContext, earlier: JournalState | None) -> Mapping[RowRef, Message]:
    """Return results of the run's workers that the part before was killed too early to journal."""
    if earlier is None:
        return {}
    spooled = read_spool(context.run_dir)
    return {ref: result for ref, result in spooled.items() if ref not in earlier.failed}


def _workers_before(run_dir: Path) -> int:
    """Return a number no log of an earlier part of the run has."""
    numbers = [int(path.name.split("_")[1]) for path in run_dir.glob("logs/worker_*_device_*.log")]
    return max(numbers, default=-1) + 1


def _write(outcome: RunOutcome, plan: RunPlan, options: RunOptions, context: RunContext) -> None:
    prune: dict[Path, list[RowRef]] = {}
    if options.prune:
        for result in outcome.campaign.results:
            if result.outcome.state == "failed":
                prune.setdefault(result.job.planned.table.path, []).append(result.job.planned.row.ref)
        for table, row, skip in plan.skips:
            if skip.kind == "invalid_case":
                prune.setdefault(table.path, []).append(row.ref)
    try:
        outcome.writer.finish(prune=prune)
    except Exception as error:
        outcome.write_error = error


def _end(outcome: RunOutcome, journal: Journal) -> None:
    counts = Counter(result.outcome.failure or result.outcome.state for result in outcome.campaign.results)
    try:
        journal.append(
            {
                "kind": "end",
                "stop": outcome.campaign.stop_reason,
                "counts": dict(counts),
                "left": len(outcome.campaign.left),
                "written": outcome.write_error is None,
            }
        )
        journal.sync()
        clear_spool(journal.path.parent)
    except JournalError as error:
        outcome.run_error = outcome.run_error or error


def encode_denied(results: Sequence[CaseResult]) -> list[object]:
    """Return the failed cases as the quarantine list of the run directory holds them."""
    return [
        {
            "row": encode_row(result.job.planned.row.ref),
            "operator": result.job.operator,
            "failure": result.outcome.failure,
            "reason": result.outcome.reason,
        }
        for result in results
        if result.outcome.state == "failed"
    ]
