"""The ``perfcollect comm`` command."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import attrs
import click

from perfcollect_core.cli.arguments import multi_option
from perfcollect_core.cli.output import emit, format_option, format_table
from perfcollect_core.errors import UsageError

from .checks import CheckSettings, check_directory
from .destination import Destination
from .options import backend_for, request_from, sweep_options
from .plan import make_plan
from .report import write_report
from .run_directory import RunDirectory
from .sweep_command import sweep
from .sweeping import run_sweep_command
from .texts import plan_lines, plan_object
from .topology import DEFAULT_SHAPE, Grid, links_of

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
    destination = attrs.evolve(destination, backend=str(header["library"]))
    destination.prepare()
    written = destination.export(directory, str(header["library"]), apply_correction)
    rows = [[str(path), str(len(table))] for path, table in written.items()]
    emit(
        {str(path): len(table) for path, table in written.items()},
        format_table(["table", "rows"], rows),
        output_format,
    )


@comm.command(epilog="Example: perfcollect comm check OUT --device ATLAS_800_A3_752T_128G_DIE")
@click.argument("directory", type=click.Path(path_type=Path))
@click.option(
    "--device", help="Device name, for its link rates.  [default: the directory's, else no estimate]"
)
@multi_option(
    "--grid-shape", type=int, default=DEFAULT_SHAPE, show_default=True, metavar="N...", help="Device grid."
)
@click.option(
    "--tolerance", type=float, default=2.0, show_default=True, help="Accepted ratio to the estimate."
)
@format_option
def check(
    directory: Path, device: str | None, grid_shape: tuple[int, ...], tolerance: float, output_format: str
) -> int:
    """Check hcom_*.csv tables: schema, duplicates, coverage, physics, self-consistency, the analytic estimate."""
    links = links_of(device, Grid(tuple(grid_shape)))
    found = check_directory(directory, CheckSettings(links, tolerance))
    errors = sum(finding.severity == "error" for finding in found)
    lines = [f"{finding.severity}: {finding.file}: {finding.what}" for finding in found]
    lines.append(f"{errors} errors, {len(found) - errors} warnings in {directory}")
    emit([attrs.asdict(finding) for finding in found], lines, output_format)
    return 1 if errors else 0


@comm.command(epilog="Example: perfcollect comm report --run-dir perfcollect-comm/RUN")
@click.option("--run-dir", type=click.Path(path_type=Path), required=True, help="Directory of the run.")
@click.option(
    "--output", type=click.Path(path_type=Path), help="Page to write.  [default: report.html in the run]"
)
@format_option
def report(run_dir: Path, output: Path | None, output_format: str) -> None:
    """Write one self-contained HTML page of a run."""
    path = write_report(RunDirectory(run_dir), output)
    emit({"report": str(path)}, f"wrote {path}", output_format)


comm.add_command(sweep)
