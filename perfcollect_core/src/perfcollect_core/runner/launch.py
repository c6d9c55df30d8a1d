"""Start a run or take one up again: everything between the command line and the first case, and after the last."""

from __future__ import annotations

import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import cast

import attrs

from perfcollect_core import __version__
from perfcollect_core.cases import RowRef
from perfcollect_core.discovery import plugin_index
from perfcollect_core.environment import DeviceFamily, DeviceInfo, Probe
from perfcollect_core.errors import DataError, UsageError
from perfcollect_core.loading import LoadedPlugin
from perfcollect_core.tables.identity import adopt_identity, check_identity
from perfcollect_core.tables.lock import database_lock

from .campaign import CampaignResult, run_campaign
from .execution import ExecutorPlugin
from .journal import JOURNAL_NAME, Journal, JournalError, JournalState
from .options import RunOptions, encode_options
from .plan import PlannedCase, RunPlan
from .processes import machine_memory_bytes
from .protocol import PluginRef, Setup, encode_row
from .run_dir import writable
from .settings import CaseResult, SessionSettings
from .write_back import LOCK_WAIT_SECONDS, TableWriter

__all__ = ["RunContext", "RunOutcome", "check_writable", "encode_denied", "execute", "select_devices"]

_MEMORY_SHARE = 0.9


@attrs.frozen(eq=False)
class RunContext:
    """Where a run measures and writes."""

    database: Path
    run_dir: Path
    family: LoadedPlugin
    devices: tuple[DeviceInfo, ...]
    versions: Mapping[str, str]
    executor: ExecutorPlugin
    write: bool = True

    @property
    def device_family(self) -> DeviceFamily:
        return cast("DeviceFamily", self.family.plugin)

    @property
    def emulated(self) -> bool:
        return Probe(self.devices).emulated


@attrs.define
class RunOutcome:
    """What a run did: the cases, the tables, and what kept it from writing."""

    campaign: CampaignResult
    writer: TableWriter
    write_error: Exception | None = None
    run_error: Exception | None = None


def select_devices(found: Sequence[DeviceInfo], asked: Sequence[int] | None) -> tuple[DeviceInfo, ...]:
    """Return the devices to use.

    Raises:
        UsageError: One that was asked for is not there.
    """
    if asked is None:
        return tuple(found)
    by_index = {device.index: device for device in found}
    absent = [index for index in asked if index not in by_index]
    if absent:
        there = ", ".join(map(str, sorted(by_index)))
        raise UsageError(f"--devices {absent[0]}: there is no such device, expected some of {there}")
    return tuple(by_index[index] for index in dict.fromkeys(asked))


def check_writable(database: Path, run_dir: Path | None) -> bool:
    """Tell whether the tables can be written; a place that cannot is refused unless a run directory was named.

    Raises:
        DataError: The database cannot be written, and nothing says where else to keep the measurements.
    """
    why = writable(database)
    if why is None:
        return True
    if run_dir is None:
        raise DataError(
            f"database {database} cannot be written: {why}",
            hint="give yourself write access, or keep the measurements elsewhere with --run-dir DIR "
            "and write them back later with perfcollect db apply DIR",
        )
    return False


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
        _adopt(context)
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
    settings = _settings(plan, options, context, wrappers)
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


def _workers_before(run_dir: Path) -> int:
    """Return a number no log of an earlier part of the run has."""
    numbers = [int(path.name.split("_")[1]) for path in run_dir.glob("logs/worker_*_device_*.log")]
    return max(numbers, default=-1) + 1


def _settings(
    plan: RunPlan, options: RunOptions, context: RunContext, wrappers: Sequence[LoadedPlugin]
) -> SessionSettings:
    family = context.device_family
    case_plan = options.plan(family.default_plan())
    provider = plugin_index().require("families", context.family.name)
    refs = []
    for wrapper in wrappers:
        found = plugin_index().require("wrappers", wrapper.name)
        refs.append(PluginRef(wrapper.name, found.value, wrapper.provider))
    setup = Setup(
        family=PluginRef(context.family.name, provider.value, context.family.provider),
        device=0,
        operators={table.operator: table.ref for table in plan.tables},
        wrappers=tuple(refs),
        path=tuple(os.path.abspath(entry) for entry in sys.path),  # noqa: PTH100  # "" means the working directory
        memory_bytes=int(_MEMORY_SHARE * machine_memory_bytes() / max(1, len(context.devices))),
        run_dir=str(context.run_dir),
    )
    return SessionSettings(
        family=family,
        setup=setup,
        plan=case_plan,
        statistic=options.statistic,
        provenance=f"{family.name}, perfcollect {__version__}, {options.statistic}",
        run_dir=context.run_dir,
        check=options.check,
        check_max_flop=options.check_max_flop,
        case_timeout=options.case_timeout,
        max_seconds=options.max_seconds,
        fail_fast=options.fail_fast,
        exit_seconds=getattr(family, "exit_seconds", 5.0),
        keep_profiles=options.keep_profiles,
    )


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
    except JournalError as error:
        outcome.run_error = outcome.run_error or error


def _adopt(context: RunContext) -> None:
    """Say in the database what it holds from now on, before another family's run can begin on it."""
    with database_lock(context.database, wait_seconds=LOCK_WAIT_SECONDS):
        family, device = context.device_family.name, context.devices[0].name
        check_identity(context.database, family=family, device=device, emulated=context.emulated)
        adopt_identity(
            context.database,
            family=family,
            device=device,
            versions=context.versions,
            emulated=context.emulated,
        )


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
