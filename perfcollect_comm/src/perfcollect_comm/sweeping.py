"""Run one sweep from the values of its options: what ``comm run`` and every session of ``comm sweep`` do."""

from __future__ import annotations

import os
from typing import Any

from perfcollect_core.cli.output import emit, note, warn
from perfcollect_core.cli.platforms import require_linux
from perfcollect_core.errors import UsageError

from .collect import Sweep, collect
from .destination import Destination
from .launch import find_node
from .network import stale_variables
from .options import backend_for, request_from
from .plan import CommPlan, Config, make_plan
from .run_directory import RunDirectory, check_same_plan
from .sweep import SweepResult, SweepSettings
from .texts import result_lines, result_object

__all__ = ["run_sweep_command"]


def run_sweep_command(options: dict[str, Any], output_format: str) -> int:
    """Plan, launch, coordinate and export one sweep; returns the exit code of decision 9."""
    require_linux("comm")
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
    if timer == "kernel" and options["nnodes"] > 1 and backend.library == "hccl":
        raise UsageError(
            "timer 'kernel' of hccl on several nodes: their profiles are not brought together",
            hint="use --timer event, or measure one node",
        )
    request = request_from(options, backend.memory_bytes(nproc))
    made = make_plan(request)
    destination = Destination.from_options(
        options["database_path"],
        options["output_csv"],
        request,
        backend.library,
        named=options["backend"] is not None,
    )
    stale = () if options.get("standard") else stale_variables()
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
    return _conclude(made, result, directory, destination, backend.library, output_format)


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
    if output_format == "quiet":
        for line in lines:
            note(line)
    else:
        emit(result_object(made, result, directory, written), lines, output_format)
    if not destination:
        note(
            f"hint: perfcollect comm export --run-dir {directory.path} --database-path OUT writes its tables"
        )
    return result.exit_code
