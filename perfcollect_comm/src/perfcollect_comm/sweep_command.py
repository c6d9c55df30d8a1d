"""``perfcollect comm sweep``: the standard sweep as a batch, session after session."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from perfcollect_core.cli.arguments import multi_option
from perfcollect_core.cli.output import emit, format_option, note
from perfcollect_core.errors import PerfcollectError

from .collectives import collective, comm_dtype
from .options import backend_for, request_from
from .plan import make_plan
from .standard_sweep import Session, SweepEnvironment, sessions, sweep_environment
from .sweeping import run_sweep_command
from .tables import read_rows
from .topology import DEFAULT_SHAPE

__all__ = ["sweep"]


@click.command(epilog="Example: NPROC=4 perfcollect comm sweep bench --backend gloo --bytes-grid 1024 65536")
@click.argument("outdir", type=click.Path(path_type=Path), default=Path("hccl_bench_data"))
@click.option("--backend", default="hccl", show_default=True, help="Library to measure.")
@multi_option(
    "--grid-shape", type=int, default=DEFAULT_SHAPE, show_default=True, metavar="N...", help="Device grid."
)
@click.option("--dtype", default="bfloat16", show_default=True, help="Message dtype.")
@multi_option(
    "--bytes-grid",
    type=int,
    metavar="BYTES...",
    help="Message sizes.  [default: 128 B to 512 MiB by factor 2]",
)
@click.option(
    "--budget", type=float, default=0.3, show_default=True, help="Seconds of measuring a configuration."
)
@click.option("--op-timeout", type=float, default=60.0, show_default=True, help="Seconds without progress.")
@click.option(
    "--join-timeout", type=float, default=300.0, show_default=True, help="Seconds to wait for ranks."
)
@click.option("--resume", is_flag=True, help="Go on with the sweep in OUTDIR.")
@format_option
def sweep(outdir: Path, output_format: str, **options: Any) -> int:
    """Collect the standard set of tables into OUTDIR.

    Reads NNODES (1), NODE_RANK and MASTER_ADDR (required with several nodes), MASTER_PORT (29700), NPROC (16) and
    QUICK (0) from the environment; start it on every node.
    """
    environment = sweep_environment()
    planned = sessions(environment)
    codes: dict[str, int] = {}
    for session in planned:
        name = "+".join(session.ops)
        note(f"session {session.port_offset} of {len(planned)}: {name}, groups of {session.num_devices}")
        asked = _options(outdir, session, environment, options)
        try:
            codes[name] = run_sweep_command(asked, "quiet")
        except PerfcollectError as error:
            # One session that cannot start must not cost the others; what cannot work at all shows in each.
            if (
                error.exit_code == 2
                or len(planned) == 1
                or (not codes and _cannot_run(options["backend"], session))
            ):
                raise
            note(f"session {name} did not run: {error}")
            codes[name] = error.exit_code
    if environment.node_rank:
        return max(codes.values())
    missing = _missing_keys(outdir, planned, environment, options)
    for line in missing[:20]:
        note(f"missing: {line}")
    result = {"sessions": codes, "missing": missing, "tables": str(outdir)}
    emit(result, f"{len(planned)} sessions, {len(missing)} keys missing; tables in {outdir}", output_format)
    stopped = [code for code in (130, 5, 6, 1) if code in codes.values()]
    return stopped[0] if stopped else 3 if missing or any(codes.values()) else 0


def _cannot_run(backend: str, session: Session) -> bool:
    return backend_for(backend, session.nproc, planning=True).missing(session.nproc) is not None


def _options(
    outdir: Path, session: Session, environment: SweepEnvironment, options: dict[str, Any]
) -> dict[str, Any]:
    asked = session.options(environment)
    run_dir = outdir / "runs" / f"session{session.port_offset}"
    return {
        **asked,
        "bytes_grid": tuple(options["bytes_grid"]) or asked["bytes_grid"],
        "backend": options["backend"],
        "grid_shape": options["grid_shape"],
        "dtype": options["dtype"],
        "standard": True,
        "concurrent": False,
        "device": None,
        "database_path": outdir,
        "output_csv": None,
        "run_dir": run_dir,
        "resume": options["resume"] and (run_dir / "journal.jsonl").exists(),
        "check": "ends",
        "timer": None,
        "budget": options["budget"],
        "op_timeout": options["op_timeout"],
        "join_timeout": options["join_timeout"],
    }


def _missing_keys(
    outdir: Path, planned: tuple[Session, ...], environment: SweepEnvironment, options: dict[str, Any]
) -> list[str]:
    """Return what the sweep should have written and did not; planned skips are not missing."""
    backend = backend_for(options["backend"], planned[0].nproc, planning=True)
    missing: list[str] = []
    for session in planned:
        asked = _options(outdir, session, environment, options)
        plan = make_plan(request_from(asked, backend.memory_bytes(session.nproc)))
        for op_name in session.ops:
            op = collective(op_name)
            path = outdir / op.file_name
            held = {row.key for row in read_rows(path)} if path.exists() else set()
            missing.extend(
                f"{op.file_name}: {config.size.message_bytes} B, n={config.n}, tier {config.tier}, "
                f"{comm_dtype(config.dtype).table}"
                for config in plan.configs
                if config.op == op.name and (config.size.message_bytes, config.n, config.tier) not in held
            )
    return missing
