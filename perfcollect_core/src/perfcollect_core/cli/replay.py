"""``perfcollect replay``: launch the rows of a database without measuring them, to debug an operator."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click

from perfcollect_core.environment import DeviceFamily
from perfcollect_core.tables.layout import DatabaseOptions

from .arguments import complete_family, complete_operator, multi_option
from .database_options import database_options
from .output import emit, format_option, note
from .platforms import require_linux
from .run import dispatch_options, run_options

if TYPE_CHECKING:
    from perfcollect_core.loading import LoadedPlugin
    from perfcollect_core.runner.plan import PlannedCase, RunPlan
    from perfcollect_core.runner.protocol import PluginRef
    from perfcollect_core.runner.replay import FailedReplay, OperatorReplay

__all__ = ["replay"]


@click.command(
    epilog="Example: perfcollect replay --ops MatMulV2 --repeat-count 10 --update-mode missing-only"
)
@multi_option(
    "--ops",
    shell_complete=complete_operator,
    help="Operators to replay (default: all that have a table); dist:NAME picks a provider.",
)
@click.option(
    "--family",
    shell_complete=complete_family,
    default="auto",
    show_default=True,
    metavar="NAME",
    help="Device family: ascend, cuda, cpu or a plugin's; never falls back.",
)
@click.option(
    "--repeat-count",
    "repeat",
    type=click.IntRange(min=1),
    default=30,
    show_default=True,
    metavar="N",
    help="Launches of each row.",
)
@click.option(
    "--update-mode",
    type=click.Choice(["all", "missing-only"]),
    default="all",
    show_default=True,
    help="Which rows: all, or only those without a duration.",
)
@click.option("--rows", metavar="SELECTOR", help="Data rows of each table, from 1: 1-50,60.")
@click.option(
    "--execution-mode",
    type=click.Choice(["subprocess", "inprocess"]),
    default="subprocess",
    show_default=True,
    help="A process an operator, or this one (to debug it, or under a profiler of your own).",
)
@click.option("--continue-on-error", is_flag=True, help="Go on with the next operator after a failure.")
@click.option(
    "--case-timeout",
    type=click.FloatRange(min=0, min_open=True),
    default=300.0,
    show_default=True,
    metavar="S",
    help="Seconds a row may take (subprocess).",
)
@click.option(
    "--run-dir",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Where replay_status.json and logs go (default: <database>/reports/runs/<id>).",
)
@dispatch_options
@database_options
@format_option
def replay(
    database: DatabaseOptions,
    family: str,
    execution_mode: str,
    continue_on_error: bool,
    case_timeout: float,
    run_dir: Path | None,
    output_format: str,
    **given: Any,
) -> int:
    """Launch the rows of a database without measuring them, to debug.

    No profiler, no write-back: tables keep their bytes.
    """
    require_linux("replay")
    from perfcollect_core.runner.replay import ReplayStatus, replay_operators, write_status
    from perfcollect_core.runner.run_dir import new_run_dir

    from .run_command import RunCommand

    options = run_options(given)
    command = RunCommand(
        database=database,
        family=family,
        options=options,
        named=frozenset(),
        resume=None,
        run_dir=run_dir,
        output_format=output_format,
    )
    prepared = command.prepare()
    plan = prepared.plan
    directory = new_run_dir(prepared.database, run_dir)
    status = ReplayStatus()
    if plan.cases:
        status = replay_operators(
            _replays(plan),
            (_family_ref(prepared.family), cast(DeviceFamily, prepared.family.plugin)),
            (),
            mode="inprocess" if execution_mode == "inprocess" else "subprocess",
            repeat=options.repeat or 30,
            device=prepared.probe.devices[0].index,
            run_dir=directory,
            continue_on_error=continue_on_error,
            timeout_seconds=case_timeout,
            announce=note,
            path=[os.path.abspath(entry) for entry in sys.path],  # noqa: PTH100  # "" means the working directory
        )
    status.skipped += _skips(plan)
    path = write_status(status, directory)
    lines = [f"failed {entry.op}: {entry.row}: {entry.reason}" for entry in status.failed]
    lines += [f"skipped {entry.op}: {entry.reason}" for entry in status.skipped]
    sentence = None if plan.cases or plan.skips else plan.nothing_to_do()
    lines += [sentence] if sentence else []
    lines.append(
        f"{len(status.success)} operators replayed, {len({entry.op for entry in status.failed})} failed, "
        f"{len(status.skipped)} reasons to skip; {path}"
    )
    emit({**status.to_json(), "status": str(path)}, lines, output_format)
    return 3 if status.failed else 0


def _replays(plan: RunPlan) -> list[OperatorReplay]:
    from perfcollect_core.runner.replay import OperatorReplay

    groups: dict[tuple[Path, int], list[PlannedCase]] = {}
    for planned in plan.cases:
        groups.setdefault((planned.table.path, planned.case.ranks), []).append(planned)
    return [OperatorReplay(cases[0].table, tuple(cases), ranks) for (_, ranks), cases in groups.items()]


def _skips(plan: RunPlan) -> list[FailedReplay]:
    """Return one entry a reason; an impossible row is skipped here as well, since it cannot be launched."""
    from perfcollect_core.runner.replay import FailedReplay

    counts: dict[tuple[str, str], int] = {}
    for table, _, skip in plan.skips:
        key = (table.operator, skip.reason)
        counts[key] = counts.get(key, 0) + 1
    return [FailedReplay(op, f"{count} rows: {reason}") for (op, reason), count in counts.items()]


def _family_ref(family: LoadedPlugin) -> PluginRef:
    from perfcollect_core.discovery import plugin_index
    from perfcollect_core.runner.protocol import PluginRef

    return PluginRef(family.name, plugin_index().require("families", family.name).value, family.provider)
