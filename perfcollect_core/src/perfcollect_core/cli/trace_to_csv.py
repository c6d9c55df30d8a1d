"""``perfcollect trace-to-csv``: TensorCast's trace as a table."""

from __future__ import annotations

import sys
from pathlib import Path

import click

__all__ = ["trace_to_csv"]


@click.command("trace-to-csv")
@click.option(
    "--trace",
    type=click.Path(path_type=Path),
    required=True,
    metavar="FILE",
    help="Chrome trace that TensorCast wrote.",
)
@click.option(
    "--output",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Where the table goes (default: standard output).",
)
def trace_to_csv(trace: Path, output: Path | None) -> None:
    """Turn the Chrome trace of a TensorCast simulation into CSV, one row for each event.

    Example: perfcollect trace-to-csv --trace trace.json --output trace.csv
    """
    from perfcollect_core.profiles.trace import trace_table

    table = trace_table(trace).encode("utf-8")
    if output is not None:
        from perfcollect_core.tables.atomic import replace_file

        replace_file(output, table)
        return
    # Bytes, because the text layer would turn CRLF into CR CR LF on some systems.
    sys.stdout.flush()
    sys.stdout.buffer.write(table)
