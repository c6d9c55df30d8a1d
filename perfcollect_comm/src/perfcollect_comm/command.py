"""The ``perfcollect comm`` command."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import attrs
import click

from perfcollect_core.cli.output import emit, format_option, format_table, note, warn
from perfcollect_core.errors import UsageError

from .collect import Sweep, collect
from .destination import Destination
from .launch import find_node
from .network import stale_variables
from .options import backend_for, request_from, sweep_options
from .plan import CommPlan, Config, make_plan
from .run_directory import RunDirectory, check_same_plan
from .sweep import SweepResult, SweepSettings
from .texts import plan_lines, plan_object, result_lines, result_object

__all__ = ["comm"]


@click.group(
    epilog="Example: perfcollect comm run --backend gloo --nproc 2 --num-devices 2 --bytes-grid 1024 65536"
)
def comm() -> None:
    """Micro-benchmark collectives: HCCL, NCCL and Gloo."""


@comm.command(
    epilog="Example: perfcollect comm plan --backend fake --nproc 768 --num-devices 16 32 --device NAME"
)
@sweep_options
@format_option
def plan(output_format: str, **options: Any) -> None:
    """Show groups, tiers, sizes, memory and predicted time, and what will not be covered and why."""
    backend = backend_for(options["backend"], options["nproc"] or 1, planning=True)
    request = request_from(options, backend.memory_bytes(options["nproc"] or max(options["num_devices"])))
    made = make_plan(request)
    emit(plan_object(made), plan_lines(made), output_format)


@comm.command(
    epilog="Example: perfcollect comm run --backend gloo --nproc 4 --num-devices 4 2 --bytes-grid 1024 65536"
)
@sweep_options
@click.option("--database-path", type=click.Path(path_type=Path), help="Directory for hcom_*.csv tables.")
@click.option(
    "--output-csv", type=click.Path(path_type=Path), help="One table file, for a single collective."
)
@click.option("--node-rank", type=int, help="This node's number, from 0.  [default: 0 on one node]")
@click.option("--master-addr", help="Address of node 0.  [default: loopback on one node]")
@click.option(
    "--master-port", type=int, help="Port of the coordinator on node 0.  [default: a free one on one node]"
)
@click.option(
    "--run-dir",
    type=click.Path(path_type=Path),
    help="Where the journal goes.  [default: ./perfcollect-comm/<id>]",
)
@click.option("--resume", is_flag=True, help="Go on with the run in --run-dir.")
@click.option(
    "--check",
    type=click.Choice(["all", "ends", "off"]),
    default="ends",
    show_default=True,
    help="Sizes whose result is verified.",
)
@click.option("--timer", help="host, event or kernel.  [default: the backend's first]")
@click.option(
    "--budget", type=float, default=0.3, show_default=True, help="Seconds of measuring a configuration."
)
@click.option(
    "--op-timeout",
    type=float,
    default=60.0,
    show_default=True,
    help="Seconds without progress before a rank is called stuck.",
)
@click.option(
    "--join-timeout",
    type=float,
    default=300.0,
    show_default=True,
    help="Seconds to wait for all ranks to join.",
)
@format_option
def run(output_format: str, **options: Any) -> int:
    """Measure collectives on this node or several, and write what consumers read."""
    return run_sweep_command(options, output_format)


def run_sweep_command(options: dict[str, Any], output_format: str) -> int:
    """Plan, launch, coordinate and export one sweep; returns the exit code of decision 9."""
    under_torchrun = "TORCHELASTIC_RUN_ID" in os.environ
    if under_torchrun:
        options = {**options, "nproc": int(os.environ["WORLD_SIZE"]), "nnodes": 1}
    nproc = options["nproc"] or -(-max(options["num_devices"]) // options["nnodes"])
    backend = backend_for(options["backend"], 1 if under_torchrun else nproc)
    timer = options["timer"] or backend.timers[0]
    if timer not in backend.timers:
        raise UsageError(
            f"timer {timer!r} with backend {backend.name}", hint=f"it offers {', '.join(backend.timers)}"
        )
    request = request_from(options, backend.memory_bytes(nproc))
    made = make_plan(request)
    destination = Destination.from_options(
        options["database_path"],
        options["output_csv"],
        request,
        backend.name,
        named=options["backend"] is not None,
    )
    stale = stale_variables()
    if stale:
        warn(f"not obeyed outside torchrun: {', '.join(stale)}")
    if options["resume"] and options["run_dir"] is None:
        raise UsageError("--resume without --run-dir", hint="name the directory of the run to go on with")
    node = find_node(
        nproc=nproc,
        nnodes=options["nnodes"],
        node_rank=options["node_rank"],
        master_addr=options["master_addr"],
        master_port=options["master_port"],
    )
    directory = RunDirectory.create(options["run_dir"])
    done: frozenset[str] = frozenset()
    if node.coordinates and directory.journal.exists():
        if not options["resume"]:
            raise UsageError(
                f"{directory.path} already holds a run",
                hint="add --resume to go on with it, or give another --run-dir",
            )
        check_same_plan(directory, made, backend.name)
        done = frozenset(directory.measured())
    if node.coordinates:
        destination.prepare()
        _introduce(made, directory, destination, done)
    settings = SweepSettings(
        op_timeout=options["op_timeout"], budget=options["budget"], check=options["check"], timer=timer
    )
    sweep = Sweep(request, made, backend, settings, options["join_timeout"], directory)
    result = collect(node, sweep, done, note, _progress)
    if result is None:
        note(f"node {node.node} is done; the results are on node 0")
        return 0
    return _conclude(made, result, directory, destination, backend.name, output_format)


def _introduce(
    made: CommPlan, directory: RunDirectory, destination: Destination, done: frozenset[str]
) -> None:
    note(
        f"{len(made.configs)} configurations, {len(done)} done before; journal in {directory.path}; {destination}"
    )
    for line in made.notes:
        note(line)
    for left_out in made.uncovered:
        note(f"not covered: {left_out.what}: {left_out.why}")


def _progress(position: int, total: int, config: Config) -> None:
    if position % max(1, total // 20) == 0:
        note(
            f"{position + 1}/{total} {config.op} {config.size.message_bytes} B, {config.n} ranks, tier {config.tier}"
        )


def _conclude(
    made: CommPlan,
    result: SweepResult,
    directory: RunDirectory,
    destination: Destination,
    backend: str,
    output_format: str,
) -> int:
    written = destination.export(directory, backend)
    lines = result_lines(made, result, directory, destination, written)
    emit(result_object(made, result, directory, written), lines, output_format)
    return result.exit_code


@comm.command(epilog="Example: perfcollect comm export --run-dir perfcollect-comm/RUN --database-path OUT")
@click.option("--run-dir", type=click.Path(path_type=Path), required=True, help="Directory of the run.")
@click.option("--database-path", type=click.Path(path_type=Path), help="Directory for hcom_*.csv tables.")
@click.option(
    "--output-csv", type=click.Path(path_type=Path), help="One table file, for a single collective."
)
@click.option("--dtype", default=None, help="Dtype to export.  [default: the run's]")
@click.option(
    "--apply-correction",
    type=click.Path(path_type=Path, exists=True),
    help="JSON file of overheads to add, by op and group size.",
)
@format_option
def export(
    run_dir: Path,
    database_path: Path | None,
    output_csv: Path | None,
    dtype: str | None,
    apply_correction: Path | None,
    output_format: str,
) -> None:
    """Write the tables of a run again, raw or with a recorded correction."""
    directory = RunDirectory(run_dir)
    header = directory.header()
    if database_path is None and output_csv is None:
        raise UsageError("export without a destination", hint="give --database-path or --output-csv")
    destination = Destination(
        database_path, output_csv, dtype or header["request"]["dtype"], tuple(header["request"]["ops"])
    )
    destination = attrs.evolve(destination, backend=str(header["backend"]))
    destination.prepare()
    written = destination.export(directory, str(header["backend"]), apply_correction)
    rows = [[str(path), str(len(table))] for path, table in written.items()]
    emit(
        {str(path): len(table) for path, table in written.items()},
        format_table(["table", "rows"], rows),
        output_format,
    )
