"""Sum a run up: what goes into the reports, what stands on the screen, and the exit code."""

from __future__ import annotations

import json
from collections import Counter
from contextlib import suppress
from datetime import datetime, timezone
from pathlib import Path

import attrs

from perfcollect_core.cases import Outcome, Row
from perfcollect_core.errors import PerfcollectError
from perfcollect_core.reports.files import write_reports
from perfcollect_core.reports.screen import summary_lines
from perfcollect_core.reports.status import status_document
from perfcollect_core.reports.summary import RowResult, RunSummary, TableSummary
from perfcollect_core.runner.context import RunContext
from perfcollect_core.runner.launch import RunOutcome, encode_denied
from perfcollect_core.runner.options import RunOptions
from perfcollect_core.runner.outcome import exit_code
from perfcollect_core.runner.plan import PlannedTable, RunPlan
from perfcollect_core.runner.settings import CaseResult
from perfcollect_core.tables.columns import AVERAGE, PROFILING_AVERAGE, duration_us
from perfcollect_core.tables.match import duplicate_keys
from perfcollect_core.tables.read import read_table

from .output import emit, print_error, warn

__all__ = ["finish", "summary_of"]


def row_words(row: Row) -> str:
    """Return what a person finds a row by: its input shapes and dtypes."""
    return f"{row.get('Input Shapes')} {row.get('Input Data Types')}".strip()


def summary_of(
    plan: RunPlan, options: RunOptions, context: RunContext, outcome: RunOutcome, started: datetime
) -> RunSummary:
    """Sum up a run that has ended."""
    campaign = outcome.campaign
    family = context.device_family
    results = [_result(result) for result in campaign.results] + [
        RowResult(
            table.operator,
            table.path.name,
            row_words(row),
            Outcome("failed", skip.reason, "invalid_case")
            if skip.kind == "invalid_case"
            else Outcome("skipped", skip.reason),
        )
        for table, row, skip in plan.skips
    ]
    left = plan.left + len(campaign.left)
    notes = [*campaign.notes]
    notes += [
        f"{operator} was stopped after ten {failure} in a row; --resume {context.run_dir.name} --retry-failed "
        "takes its cases up again"
        for operator, failure in campaign.stopped.items()
    ]
    unchecked = sum(result.checked is False for result in results)
    if options.check:
        checked = sum(result.checked is True for result in results)
        wrong = sum(result.outcome.failure == "wrong_result" for result in results)
        notes.append(
            f"{checked + wrong} outputs compared with their reference, {wrong} wrong, {unchecked} not compared "
            f"(over {options.check_max_flop / 1e9:g} GFLOP or no reference)"
        )
    if plan.done:
        notes.append(f"{plan.done} cases had been measured by an earlier part of this run")
    if plan.denied:
        notes.append(f"{plan.denied} cases failed in an earlier part of this run and were left alone")
    code = exit_code(
        [result.outcome for result in results],
        measured_before=plan.done,
        left=left,
        unreadable=len(plan.unreadable),
        interrupted=campaign.stop_reason == "interrupted",
        error=bool(outcome.write_error or outcome.run_error or campaign.stop_reason == "no_device"),
    )
    return RunSummary(
        run_id=context.run_dir.name,
        database=context.database,
        family=family.name,
        device=context.devices[0].name if context.devices else "",
        statistic=options.statistic,
        cache=options.cache,
        repeat_rule=options.repeat_rule(options.plan(family.default_plan())),
        started=started,
        finished=datetime.now(timezone.utc),
        tables=tuple(_table(table, outcome, context.write) for table in plan.tables if table.selected),
        results=tuple(results),
        unreadable=plan.unreadable,
        remaining=left,
        environment=campaign.environments[0] if campaign.environments else {},
        notes=tuple(notes),
        next_steps=_next_steps(left, campaign.stop_reason, context, plan, results),
        exit_code=code,
        run_dir=context.run_dir,
    )


def _result(result: CaseResult) -> RowResult:
    planned, measurement = result.job.planned, result.measurement
    return RowResult(
        operator=planned.table.operator,
        table=planned.table.path.name,
        row=row_words(planned.row),
        outcome=result.outcome,
        value_us=measurement.value_us if measurement else None,
        profiling_us=duration_us(planned.row.cells.get(PROFILING_AVERAGE)),
        cache=measurement.samples.cache if measurement else "",
        flags=measurement.samples.flags if measurement else (),
        checked=result.job.checked,
    )


def _table(table: PlannedTable, outcome: RunOutcome, written: bool) -> TableSummary:
    tally = outcome.writer.tallies.get(table.path)
    provenance: Counter[str] = Counter()
    duplicates: dict[str, int] = {}
    deleted: dict[object, str] = {row.ref: row_words(row) for row in table.selected}
    with suppress(PerfcollectError):
        rows = read_table(table.path).rows
        provenance.update(row.get("Measured With") for row in rows if _is_measured(row))
        duplicates = {row_words(group[0]): len(group) for group in duplicate_keys(rows).values()}
    if tally is None:
        return TableSummary(
            table.path.name, table.operator, duplicates=duplicates, measured_with=dict(provenance)
        )
    return TableSummary(
        table=table.path.name,
        operator=table.operator,
        updated=tally.updated,
        added=tally.added,
        deleted=tally.deleted,
        unchanged=tally.unchanged,
        deleted_rows=tuple(deleted.get(ref, ref.key[-1]) for ref in tally.deleted_rows),
        duplicates=duplicates,
        measured_with=dict(provenance),
        gone=tuple(" ".join(ref.key[1:3]) for ref in tally.gone),
    )


def _is_measured(row: Row) -> bool:
    # A profile's average has no statistic of ours and mixes nothing.
    return any(
        duration_us(row.cells.get(column)) is not None for column in (AVERAGE, "Cold Average Duration(us)")
    )


def _next_steps(
    left: int, reason: str, context: RunContext, plan: RunPlan, results: list[RowResult]
) -> tuple[str, ...]:
    steps = []
    where = str(context.run_dir)
    default = context.run_dir.parent == (context.database / "reports" / "runs").resolve()
    resume = f"perfcollect run --database-path {context.database} --resume"
    resume += f" {context.run_dir.name}" if default else f" {where}"
    if left and reason:
        steps.append(f"{resume} (goes on with the {left} cases left)")
    elif left:
        steps.append("perfcollect run --update-mode missing-only (measures the rows left)")
    if plan.denied or any(r.outcome.state == "failed" and r.value_us is None for r in results):
        steps.append(f"{resume} --retry-failed (tries the failed cases again)")
    if not context.write:
        steps.append(f"perfcollect db apply {where} (writes the measurements into the tables)")
    return tuple(steps)


def finish(summary: RunSummary, context: RunContext, outcome: RunOutcome, output_format: str) -> int:
    """Write the reports, print the summary and return the exit code."""
    _write_quarantine(context.run_dir, outcome.campaign.results)
    directory = context.database / "reports" if context.write else context.run_dir
    code, report, failure = summary.exit_code, None, None
    try:
        report = write_reports(summary, directory).report
    except (PerfcollectError, OSError) as error:
        failure = error
        code = code if code not in (0, 3, 4) else 1
        summary = attrs.evolve(summary, exit_code=code)
    emit(
        {**status_document(summary), "report": str(report) if report else None},
        lambda: "\n".join(summary_lines(summary, str(report) if report else None)),
        output_format,
    )
    if failure is not None:
        print_error(f"the reports could not be written: {failure}", getattr(failure, "hint", None))
    if outcome.write_error is not None:
        if not isinstance(outcome.write_error, (PerfcollectError, OSError)):
            raise outcome.write_error
        print_error(
            f"the tables could not be written: {outcome.write_error}",
            f"nothing is lost: perfcollect db apply {context.run_dir}",
        )
    if outcome.run_error is not None:
        if not isinstance(outcome.run_error, PerfcollectError):
            raise outcome.run_error
        print_error(str(outcome.run_error), outcome.run_error.hint)
    if outcome.campaign.stop_reason == "no_device":
        warn("no device was left to run on; the notes above say why")
    return code


def _write_quarantine(run_dir: Path, results: list[CaseResult]) -> None:
    denied = encode_denied(results)
    if denied:
        # The journal says it too; this list is for people.
        with suppress(OSError):
            (run_dir / "quarantine.json").write_text(
                json.dumps(denied, indent=1, ensure_ascii=False), encoding="utf-8", errors="replace"
            )
