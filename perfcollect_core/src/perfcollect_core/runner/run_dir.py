"""The directory of a run: where journal, logs, profiles and the quarantine list are."""

from __future__ import annotations

import itertools
import os
import time
from pathlib import Path

from perfcollect_core.errors import DataError, UsageError

from .journal import JOURNAL_NAME

__all__ = ["database_of", "find_run", "new_run_dir", "runs_of", "writable"]


def runs_of(database: Path) -> Path:
    """Return where the runs of a database are kept by default."""
    return database / "reports" / "runs"


def new_run_dir(database: Path, asked: Path | None) -> Path:
    """Make the directory of a new run.

    Raises:
        DataError: It cannot be made, or holds another run.
    """
    if asked is not None:
        if (asked / JOURNAL_NAME).exists():
            raise DataError(
                f"run directory {asked} holds a run already",
                hint=f"go on with it: --resume {asked}; or name another directory",
            )
        return _make(asked)
    # Sorts by time; the process tells apart two runs of one second, the count two of one process.
    name = f"{time.strftime('%Y%m%dT%H%M%S')}_{os.getpid()}"
    candidates = (
        runs_of(database) / (name if count == 1 else f"{name}_{count}") for count in itertools.count(1)
    )
    return _make(next(path for path in candidates if not path.exists()))


def _make(directory: Path) -> Path:
    try:
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "logs").mkdir(exist_ok=True)
    except OSError as error:
        raise DataError(
            f"run directory {directory} cannot be made: {(error.strerror or str(error)).lower()}",
            hint="name a directory you may write with --run-dir",
        ) from error
    return directory.resolve()


def writable(directory: Path) -> str | None:
    """Return why *directory* cannot be written, ``None`` where it can; a file is made and removed to know."""
    probe = directory / f".perfcollect-{os.getpid()}.partial"
    try:
        descriptor = os.open(probe, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            os.write(descriptor, b"x")
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
            # Another run may have tidied it up already, as what a killed writer left.
            probe.unlink(missing_ok=True)
    except OSError as error:
        return (error.strerror or str(error)).lower()
    return None


def find_run(database: Path | None, named: str, run_dir: Path | None) -> Path:
    """Return the run directory ``--resume`` means: a path, an id below the database, or the latest run.

    Raises:
        UsageError: There is no such run.
    """
    if run_dir is not None and not named:
        named = str(run_dir)
    if named:
        below = [runs_of(database) / named] if database is not None else []
        for candidate in (*below, Path(named)):
            if (candidate / JOURNAL_NAME).exists():
                return candidate.resolve()
        raise UsageError(
            f"--resume {named}: no run there, expected a directory with {JOURNAL_NAME}", hint=_known(database)
        )
    runs = _runs(database)
    if not runs:
        raise UsageError(
            f"--resume: no run below {runs_of(database) if database else 'the database'}",
            hint="start one without --resume, or name its directory: --resume DIR",
        )
    return runs[-1].resolve()


def _runs(database: Path | None) -> list[Path]:
    if database is None or not runs_of(database).is_dir():
        return []
    return sorted(p.parent for p in runs_of(database).glob(f"*/{JOURNAL_NAME}"))


def _known(database: Path | None) -> str:
    names = [run.name for run in _runs(database)][-5:]
    return (
        f"the latest runs are {', '.join(names)}" if names else "perfcollect run without --resume starts one"
    )


def database_of(run: dict[str, object], directory: Path) -> Path:
    """Return the database a journal's ``run`` line names.

    Raises:
        DataError: The journal has no such line.
    """
    database = run.get("database")
    if not isinstance(database, str):
        raise DataError(
            f"journal {directory / JOURNAL_NAME} does not say which database it is for",
            hint="it has lost its first line; restore it from a copy",
        )
    return Path(database)
