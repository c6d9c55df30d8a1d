"""The exceptions perfcollect raises.

::

    PerfcollectError
    |-- UsageError                       exit 2
    |-- PluginError (provider)           exit 1
    |   |-- UnknownOperatorError  OperatorConflictError  PluginLoadError
    |   |-- IncompatiblePluginError  PluginContractError
    |-- DataError
    |   |-- TableError (path, line, column)   CaseError (case)
    |   |-- DatabaseMismatchError   DatabaseLockedError
    |-- DeviceError
    |   |-- DeviceUnavailableError   MissingEnvironmentError (variables)
    `-- WorkerError
        |-- WorkerCrashed   WorkerTimeout

A message says what is wrong, with which thing, what was expected and what was found: one sentence in lower case
without a full stop. ``hint`` says what to do about it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from .cases import Case

__all__ = [
    "CaseError",
    "DataError",
    "DatabaseLockedError",
    "DatabaseMismatchError",
    "DeviceError",
    "DeviceUnavailableError",
    "IncompatiblePluginError",
    "MissingEnvironmentError",
    "OperatorConflictError",
    "PerfcollectError",
    "PluginContractError",
    "PluginError",
    "PluginLoadError",
    "TableError",
    "UnknownOperatorError",
    "UsageError",
    "WorkerCrashed",
    "WorkerError",
    "WorkerTimeout",
]


class PerfcollectError(Exception):
    """Base of every expected error; the command line prints its message and hint, never a traceback."""

    exit_code = 1

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.hint = hint


class UsageError(PerfcollectError):
    """A command was called with options that do not go together or name nothing."""

    exit_code = 2


class PluginError(PerfcollectError):
    """A plugin cannot be found, loaded or trusted; ``provider`` is ``"distribution version"`` where known."""

    def __init__(self, message: str, *, hint: str | None = None, provider: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.provider = provider


class UnknownOperatorError(PluginError):
    """No installed distribution provides the operator asked for."""


class OperatorConflictError(PluginError):
    """Several distributions provide one name."""


class PluginLoadError(PluginError):
    """Importing a requested plugin raised."""


class IncompatiblePluginError(PluginError):
    """A plugin was written for another version of the hook API."""


class PluginContractError(PluginError):
    """A hook of a plugin returned something else than its specification says, or is misspelt."""


class DataError(PerfcollectError):
    """Input data cannot be used."""


class TableError(DataError):
    """A table cannot be read or written; ``line`` is the physical line in the file, from 1."""

    def __init__(
        self,
        message: str,
        *,
        hint: str | None = None,
        path: Path | None = None,
        line: int | None = None,
        column: str | None = None,
    ) -> None:
        super().__init__(message, hint=hint)
        self.path = path
        self.line = line
        self.column = column


class CaseError(DataError):
    """A row describes a call that cannot be made: it ends as ``invalid_case``, and the row stays."""

    def __init__(self, message: str, *, hint: str | None = None, case: Case | None = None) -> None:
        super().__init__(message, hint=hint)
        self.case = case


class DatabaseMismatchError(DataError):
    """A database holds another family's durations than the run would measure."""


class DatabaseLockedError(DataError):
    """Another process holds the database; the message names it (pid, host)."""


class DeviceError(PerfcollectError):
    """The device or its software stack cannot be used."""


class DeviceUnavailableError(DeviceError):
    """No device of the family asked for is there."""


class MissingEnvironmentError(DeviceError):
    """Something outside perfcollect is missing; ``variables`` names the environment variables involved."""

    def __init__(self, message: str, *, hint: str | None = None, variables: tuple[str, ...] = ()) -> None:
        super().__init__(message, hint=hint)
        self.variables = variables


class WorkerError(PerfcollectError):
    """A worker process ended or fell silent."""


class WorkerCrashed(WorkerError):
    """A worker process ended by itself while a case was in flight."""


class WorkerTimeout(WorkerError):
    """A worker passed the deadline of the case in flight and was ended."""
