"""``perfcollect run``: replay the rows of a database, measure them, write the durations back."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar, cast

import click

from perfcollect_core.cases import Param
from perfcollect_core.errors import UsageError
from perfcollect_core.runner.options import RunOptions
from perfcollect_core.tables.layout import DatabaseOptions

from .arguments import complete_family, complete_operator, multi_option
from .database_options import database_options
from .output import format_option, note
from .platforms import require_linux

__all__ = ["dispatch_options", "run", "run_options"]

_F = TypeVar("_F", bound=Callable[..., Any])

#: Resuming without a name means the latest run.
_LATEST = ""
_NO_EFFECT = "MSMODELING_OP_REPLAY_REPEAT_COUNT"


def _repeat_count(ctx: click.Context, param: click.Parameter, value: str) -> int | None:
    if value == "auto":
        return None
    if not (value.isascii() and value.isdigit() and int(value)):
        raise click.BadParameter(f"{value!r}: expected auto or a number from 1", ctx=ctx, param=param)
    return int(value)


def _devices(ctx: click.Context, param: click.Parameter, value: str) -> tuple[int, ...] | None:
    if value == "all":
        return None
    words = value.split(",")
    if not all(word.strip().isascii() and word.strip().isdigit() for word in words):
        raise click.BadParameter(f"{value!r}: expected all or numbers such as 0,1", ctx=ctx, param=param)
    return tuple(int(word) for word in words)


def _table_operators(ctx: click.Context, param: click.Parameter, values: Sequence[str]) -> Mapping[str, str]:
    pairs = {}
    for value in values:
        file, equals, operator = value.partition("=")
        if not (file and equals and operator):
            raise click.BadParameter(f"{value!r}: expected FILE=OPERATOR", ctx=ctx, param=param)
        pairs[file] = operator
    return pairs


_SECONDS = click.FloatRange(min=0, min_open=True)
_OPTIONS = (
    multi_option("--ops", shell_complete=complete_operator, help="Operators to replay (default: all that have a table); dist:NAME picks a provider."),
    click.option("--family", shell_complete=complete_family, default="auto", show_default=True, metavar="NAME", help="Device family: ascend, cuda, cpu or a plugin's; never falls back."),
    click.option("--repeat-count", "repeat", metavar="N|auto", callback=_repeat_count, default="auto", show_default=True, help="Measured launches per case; auto repeats until the median is known well enough."),
    click.option("--warmup", type=click.IntRange(min=0), metavar="N", help="Unrecorded launches before (default: by family)."),
    click.option("--passes", type=click.IntRange(min=1), metavar="N", help="Visits per case, other cases in between (default: by family)."),
    click.option("--precision", type=click.FloatRange(min=0, max=1, min_open=True), metavar="P", help="Relative half-width asked of the median's 95 % interval (default: by family)."),
    click.option("--max-case-seconds", type=_SECONDS, metavar="S", help="Measuring budget of one case (default: by family)."),
    click.option("--case-timeout", type=_SECONDS, metavar="S", help="A case that takes longer is ended (default: by its work)."),
    click.option("--statistic", type=click.Choice(["median", "min", "mean", "p10"]), default="median", show_default=True, help="What goes into the duration column; all are journalled."),
    click.option("--cache", type=click.Choice(["warm", "cold"]), default="warm", show_default=True, help="Measure with warm operands, or flush them before each launch."),
    click.option("--update-mode", type=click.Choice(["all", "missing-only"]), default="all", show_default=True, help="Refresh every row, or only those without a duration."),
    click.option("--rows", metavar="SELECTOR", help="Data rows of each table, from 1: 1-50,60."),
    click.option("--limit", type=click.IntRange(min=1), metavar="N", help="At most N cases, the cheapest."),
    click.option("--max-seconds", type=_SECONDS, metavar="S", help="Time budget of the run; the cheapest cases come first."),
    multi_option("--table", "tables", metavar="FILE=OPERATOR...", callback=_table_operators, help="Replay a table under another operator's name."),
    click.option("--devices", metavar="0,1,...|all", callback=_devices, default="all", show_default=True, help="Devices used in parallel."),
    click.option("--resume", is_flag=False, flag_value=_LATEST, default=None, metavar="[RUN]", help="Go on with a run: a directory, an id, or the latest one."),
    click.option("--retry-failed", is_flag=True, help="Take up cases that failed or were given up."),
    multi_option("--with", "wrappers", help="Opt-in wrappers around the measuring."),
    click.option("--run-dir", type=click.Path(path_type=Path, file_okay=False), metavar="DIR", help="Where journal and logs go (default: <database>/reports/runs/<id>)."),
    click.option("--keep-profiles", is_flag=True, help="Keep the profiler's files."),
    click.option("--check", is_flag=True, help="Compare each output with the operator's reference."),
    click.option("--check-max-flop", type=click.FloatRange(min=0), default=20e9, show_default=True, metavar="F", help="Larger cases are measured without the check."),
    click.option("--dry-run", is_flag=True, help="Print the plan and measure nothing."),
    click.option("--fail-fast", is_flag=True, help="Stop at the first failed case."),
    click.option("--prune-empty-duration-rows", "prune", is_flag=True, help="Afterwards, delete rows that were tried and still have no valid duration."),
)  # fmt: skip

_DISPATCH_OPTIONS = (
    click.option("--dispatch-ffn-combine-ep-size", type=click.IntRange(min=1), default=16, show_default=True, metavar="N", help="Expert-parallel size of DispatchFFNCombine."),
    click.option("--dispatch-ffn-combine-nproc-per-node", type=click.IntRange(min=1), metavar="N", help="torchrun processes per node (default: the EP size on one node)."),
    click.option("--dispatch-ffn-combine-nnodes", type=click.IntRange(min=1), default=1, show_default=True, metavar="N", help="torchrun nodes."),
    click.option("--dispatch-ffn-combine-node-rank", type=click.IntRange(min=0), default=0, show_default=True, metavar="N", help="Rank of this node."),
    click.option("--dispatch-ffn-combine-master-addr", default="127.0.0.1", show_default=True, metavar="HOST", help="torchrun rendezvous address."),
    click.option("--dispatch-ffn-combine-master-port", type=click.IntRange(1, 65535), metavar="PORT", help="torchrun rendezvous port (default: a free one on one node)."),
)  # fmt: skip


def dispatch_options(command: _F) -> _F:
    """Add the options of DispatchFFNCombine's expert-parallel world."""
    for option in reversed(_DISPATCH_OPTIONS):
        command = option(command)
    return command


def _run_options(command: _F) -> _F:
    command = dispatch_options(command)
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


@click.command(epilog="Example: perfcollect run --ops MatMulV2 --update-mode missing-only --max-seconds 120")
@_run_options
@database_options
@format_option
@click.pass_context
def run(
    ctx: click.Context,
    /,
    database: DatabaseOptions,
    family: str,
    resume: str | None,
    run_dir: Path | None,
    dry_run: bool,
    output_format: str,
    **given: Any,
) -> int:
    """Replay the rows of a database, measure them and write the durations back."""
    require_linux("run")
    from .run_command import RunCommand

    if os.environ.get(_NO_EFFECT):
        note(f"{_NO_EFFECT} is set and has no effect here; --repeat-count does what it did")
    options = run_options(given)
    if resume is None and options.retry_failed:
        raise UsageError(
            "--retry-failed: there is no run to take failed cases from",
            hint="add --resume, or --resume RUN for another run than the latest",
        )
    named = {
        name for name in given if ctx.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE
    }
    command = RunCommand(
        database=database,
        family=family,
        options=options,
        named=frozenset("operators" if name == "ops" else name for name in named),
        resume=resume,
        run_dir=run_dir,
        output_format=output_format,
    )
    return command.show_plan() if dry_run else command.measure()


def run_options(given: Mapping[str, Any]) -> RunOptions:
    """Return the options of a run from what click parsed."""
    fields = dict(given)
    prefix = "dispatch_ffn_combine_"
    plugin = {name: cast(Param, fields.pop(name)) for name in given if name.startswith(prefix)}
    if plugin[f"{prefix}nproc_per_node"] is None and plugin[f"{prefix}nnodes"] == 1:
        plugin[f"{prefix}nproc_per_node"] = plugin[f"{prefix}ep_size"]
    _check_one_node(
        *(plugin[f"{prefix}{name}"] for name in ("nnodes", "node_rank", "nproc_per_node", "ep_size"))
    )
    return RunOptions(
        operators=tuple(fields.pop("ops")),
        wrappers=tuple(fields.pop("wrappers", ())),
        plugin_options=plugin,
        **fields,
    )


def _check_one_node(nodes: Param, rank: Param, ranks: Param, size: Param) -> None:
    """Refuse a world that would not be started as it was asked for."""
    if nodes != 1 or rank != 0:
        raise UsageError(
            f"--dispatch-ffn-combine-nnodes {nodes} and -node-rank {rank}: a run starts the ranks of one node only",
            hint="leave both out and give an EP size that the NPUs of this node carry",
        )
    if ranks != size:
        raise UsageError(
            f"--dispatch-ffn-combine-nproc-per-node {ranks} with an EP size of {size} on one node",
            hint="leave it out: one node has as many processes as --dispatch-ffn-combine-ep-size",
        )
