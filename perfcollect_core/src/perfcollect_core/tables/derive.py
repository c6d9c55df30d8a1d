"""Copy a database's rows for another device: everything but what was measured (decision 1)."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterable
from pathlib import Path

import attrs

from perfcollect_core.errors import DataError, TableError

from .atomic import PARTIAL
from .columns import is_measurement
from .identity import IDENTITY_FILE, Identity, write_identity
from .patch import blanked
from .read import Table, is_collective_table, read_table, table_paths

__all__ = ["DeriveResult", "derive_database"]


@attrs.frozen
class DeriveResult:
    """What was copied: rows by table name, foreign files, and the ``hcom_*`` tables that were left out."""

    identity: Identity
    tables: dict[str, int]
    files: tuple[str, ...]
    left_out: tuple[str, ...]


def derive_database(
    source: Path, target: Path, *, family: str, device: str, emulated: bool = False
) -> DeriveResult:
    """Copy the tables of *source* to *target* with duration, counter and core columns blank, and name its device.

    Other files directly in *source* travel as they are; ``hcom_*`` tables do not: their rows are what one backend
    measured. *source* is only read.

    Raises:
        DataError: *target* exists and is not empty, or cannot be written.
        TableError: A table of *source* cannot be read; nothing is written.
    """
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise DataError(
            f"{target} exists and is not empty, expected a new directory",
            hint="choose another name; derive never writes over a database",
        )
    tables = _read_all(table_paths(source))
    if not tables:
        raise DataError(f"{source} holds no table, expected *.csv directly in it", hint="name a database")
    every = sorted(path for path in source.iterdir() if path.is_file())
    foreign = tuple(path for path in every if path.suffix != ".csv" and _travels(path))
    left_out = tuple(path.name for path in table_paths(source, collectives=True) if is_collective_table(path))
    made: list[Path] = []
    existed = target.exists()
    try:
        target.mkdir(parents=True, exist_ok=True)
        for table in tables:
            made.append(target / table.path.name)
            columns = [column for column in table.header if is_measurement(column)]
            made[-1].write_bytes(blanked(table, columns))
        for path in foreign:
            made.append(target / path.name)
            shutil.copyfile(path, made[-1])
        made.append(target / IDENTITY_FILE)
        identity = write_identity(target, Identity(family, device, emulated=emulated))
    except (OSError, TableError) as error:
        _remove(made, None if existed else target)
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise DataError(
            f"{target} cannot be written: {reason}", hint="name a directory you may write"
        ) from error
    except BaseException:
        _remove(made, None if existed else target)
        raise
    return DeriveResult(
        identity,
        {table.path.name: len(table.rows) for table in tables},
        tuple(path.name for path in foreign),
        left_out,
    )


def _read_all(paths: Iterable[Path]) -> list[Table]:
    tables, broken = [], []
    for path in paths:
        try:
            tables.append(read_table(path))
        except TableError as error:
            broken.append(error)
    if broken:
        first = broken[0]
        raise TableError(
            "; ".join(map(str, broken)),
            hint=first.hint,
            path=first.path,
            line=first.line,
            column=first.column,
        )
    return tables


def _travels(path: Path) -> bool:
    return path.name != IDENTITY_FILE and not path.name.startswith(".") and not path.name.endswith(PARTIAL)


def _remove(files: Iterable[Path], directory: Path | None) -> None:
    for path in files:
        with contextlib.suppress(OSError):
            path.unlink()
    if directory is not None:
        with contextlib.suppress(OSError):
            directory.rmdir()
