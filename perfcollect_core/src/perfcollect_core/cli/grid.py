"""``perfcollect grid``: tables extended with the shapes that models will ask for."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from perfcollect_core.errors import UsageError

from .arguments import multi_option
from .database_options import database_options
from .output import emit, format_option, note, progress

if TYPE_CHECKING:
    from perfcollect_core.grid.models import ModelShapes
    from perfcollect_core.specs import GridRequest
    from perfcollect_core.tables.layout import DatabaseOptions

__all__ = ["grid"]

_PATH = click.Path(path_type=Path)


@click.command()
@click.option(
    "--target-models",
    metavar="ID,ID",
    help="Only the shapes of these models of the model table (default: the whole grid).",
)
@multi_option(
    "--model-config",
    "model_configs",
    type=_PATH,
    metavar="PATH...",
    help="The shapes of these config.json files too.",
)
@click.option(
    "--rows",
    type=int,
    default=1000,
    show_default=True,
    help="Most generated rows a table; 0 takes all of them.",
)
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of the choice under the cap.")
@click.option(
    "--max-hbm-gb",
    type=float,
    default=32.0,
    show_default=True,
    metavar="G",
    help="Leave out rows whose tensors need more GiB; 0 keeps them.",
)
@click.option("--out", type=_PATH, metavar="DIR", help="Extend a copy of the database in this new directory.")
@multi_option("--ops", help="Only these operators; a table that is absent is made from its rule.")
@multi_option("--tp", metavar="N...", help="Tensor-parallel degrees (default: those of each model).")
@multi_option("--ep", metavar="N...", help="Expert-parallel degrees (default: those of each model).")
@click.option(
    "--queries-for",
    metavar="MODEL",
    help="Write what serving this model asks for to --queries-out, and stop.",
)
@multi_option("--batch", metavar="N...", help="Sequences at once, for --queries-for.")
@multi_option("--seq", metavar="N...", help="Tokens of each sequence, for --queries-for.")
@click.option(
    "--queries-out", type=_PATH, metavar="FILE", help="Manifest that --queries-for writes, JSON lines."
)
@click.option(
    "--queries",
    type=_PATH,
    metavar="FILE",
    help="Take the critical queries of this manifest before all other rows.",
)
@click.option("--dry-run", is_flag=True, help="Say what would be added; write nothing.")
@click.option(
    "--report", type=_PATH, metavar="FILE", help="Write the report there: JSON if *.json, else Markdown."
)
@database_options
@format_option
def grid(
    target_models: str | None,
    model_configs: tuple[Path, ...],
    rows: int,
    seed: int,
    max_hbm_gb: float,
    out: Path | None,
    ops: tuple[str, ...],
    tp: tuple[str, ...],
    ep: tuple[str, ...],
    queries_for: str | None,
    batch: tuple[str, ...],
    seq: tuple[str, ...],
    queries_out: Path | None,
    queries: Path | None,
    dry_run: bool,
    report: Path | None,
    database: DatabaseOptions,
    output_format: str,
) -> None:
    """Extend the tables of a database with shapes that models produce, for a later run to measure.

    Example: perfcollect grid --target-models deepseek-ai/DeepSeek-V3,Qwen/Qwen3-32B --rows 2000 --database-path data/a2
    """
    request = _request(target_models, model_configs, tp, ep, max_hbm_gb)
    if queries_for is not None:
        _write_queries(
            queries_for,
            request,
            _degrees(batch, "--batch"),
            _degrees(seq, "--seq"),
            queries_out,
            output_format,
        )
        return
    if batch or seq or queries_out:
        raise UsageError("--batch, --seq and --queries-out go with --queries-for", hint="name the model")
    if rows < 0:
        raise UsageError(f"--rows is {rows}, expected a number of rows, or 0 for all of them")

    from perfcollect_core.grid.copying import copied_database
    from perfcollect_core.grid.extend import GridOptions, extend_database, validate_tables
    from perfcollect_core.grid.queries import queries_by_operator, read_queries
    from perfcollect_core.grid.report import write_report
    from perfcollect_core.tables.layout import DEFAULT_ASCEND_DEVICE, locate_database

    first = queries_by_operator(read_queries(queries)) if queries is not None else {}
    options = GridOptions(
        request=request, rows=rows, seed=seed, operators=ops, queries=first, dry_run=dry_run
    )
    directory = locate_database(database, family="ascend", device_name=DEFAULT_ASCEND_DEVICE, notify=note)
    with progress(_tables(directory, ops), "grid (tables)") as bar:
        if out is None or dry_run:
            made = extend_database(directory, options, bar.advance)
        else:
            # What cannot be extended must be found before a copy is made.
            validate_tables(directory, options)
            with copied_database(directory, out):
                made = extend_database(out, options, bar.advance)
    if report is not None:
        write_report(made, report)
    emit(made.as_dict(), lambda: "\n".join(made.lines()), output_format)


def _request(
    target_models: str | None,
    model_configs: Sequence[Path],
    tp: Sequence[str],
    ep: Sequence[str],
    max_hbm_gb: float,
) -> GridRequest:
    from perfcollect_core.grid.budget import parse_budget
    from perfcollect_core.grid.models import known_models, read_config
    from perfcollect_core.grid.models import target_models as parse_models
    from perfcollect_core.specs import GridRequest

    models: list[ModelShapes] = list(parse_models(target_models)) if target_models is not None else []
    models += [read_config(path) for path in model_configs]
    targeted = bool(models)
    return GridRequest(
        models=tuple(models or known_models().values()),
        tp=_degrees(tp, "--tp"),
        ep=_degrees(ep, "--ep"),
        max_bytes=parse_budget(max_hbm_gb),
        targeted=targeted,
    )


def _degrees(texts: Sequence[str], option: str) -> tuple[int, ...]:
    """Return the numbers of an option that takes several, in any of the ways ``1 2,4``."""
    words = [word for text in texts for word in text.split(",") if word]
    bad = [word for word in words if not (word.isascii() and word.isdecimal() and int(word) > 0)]
    if bad:
        raise UsageError(f"{option} has {bad[0]!r}, expected whole numbers above 0")
    return tuple(sorted({int(word) for word in words}))


def _write_queries(
    name: str,
    request: GridRequest,
    batches: Sequence[int],
    lengths: Sequence[int],
    out: Path | None,
    output_format: str,
) -> None:
    from collections import Counter

    from perfcollect_core.grid.models import read_config, target_models
    from perfcollect_core.grid.queries import model_queries, write_queries
    from perfcollect_core.specs import Workload

    if not (batches and lengths and out):
        raise UsageError(
            "--queries-for needs --batch, --seq and --queries-out",
            hint=f"perfcollect grid --queries-for {name} --batch 1 8 --seq 4096 --queries-out queries.jsonl",
        )
    path = Path(name)
    model = read_config(path) if path.exists() else target_models(name)[0]
    loads = [Workload(batch, seq) for batch in batches for seq in lengths]
    found = list(model_queries(model, loads, request))
    digest = write_queries(found, out)
    counts = Counter(query.operator for query in found)
    result = {
        "path": str(out),
        "sha256": digest,
        "queries": len(found),
        "operators": dict(sorted(counts.items())),
    }
    emit(
        result,
        f"{out}: {len(found)} queries of {len(counts)} operators for {len(loads)} workloads, sha256 {digest}",
        output_format,
    )


def _tables(directory: Path, ops: Sequence[str]) -> int:
    from perfcollect_core.tables.read import table_paths

    return len(ops) or max(1, len(table_paths(directory)))
