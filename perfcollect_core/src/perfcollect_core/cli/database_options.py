"""The options that say which database a command works on (run, replay, parse, grid)."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import click

from perfcollect_core.tables.layout import DEFAULT_ASCEND_DEVICE, DatabaseOptions

from .arguments import complete_device

__all__ = ["database_options"]

_Result = TypeVar("_Result")

_OPTIONS = (
    click.option(
        "--database-path",
        type=click.Path(path_type=Path),
        metavar="DIR",
        help="The database's directory itself; wins over everything below.",
    ),
    click.option(
        "--data-root",
        type=click.Path(path_type=Path),
        metavar="DIR",
        help="Root that derived paths hang under (default: $PERFCOLLECT_DATA_ROOT, the upstream data directory, ./data).",
    ),
    click.option(
        "--device",
        metavar="NAME",
        shell_complete=complete_device,
        help=f"Device directory name (Ascend default: {DEFAULT_ASCEND_DEVICE}; else this machine's).",
    ),
    click.option(
        "--vllm-version",
        metavar="V",
        help="vLLM-Ascend version, a whole directory name, or 'latest' (default: detected).",
    ),
    click.option("--torch-version", metavar="V", help="PyTorch version (default: detected)."),
    click.option("--cann-version", metavar="V", help="CANN version (default: detected)."),
)


def database_options(command: Callable[..., _Result]) -> Callable[..., _Result]:
    """Give *command* the database options, gathered in one ``DatabaseOptions`` argument named ``database``."""

    @functools.wraps(command)
    def gathered(
        *arguments: object,
        database_path: Path | None,
        data_root: Path | None,
        device: str | None,
        vllm_version: str | None,
        torch_version: str | None,
        cann_version: str | None,
        **options: object,
    ) -> _Result:
        database = DatabaseOptions(
            database_path, data_root, device, vllm_version, torch_version, cann_version
        )
        return command(*arguments, database=database, **options)

    decorated: Callable[..., _Result] = gathered
    for option in reversed(_OPTIONS):
        decorated = option(decorated)
    return decorated
