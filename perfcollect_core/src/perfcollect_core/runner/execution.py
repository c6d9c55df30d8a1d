"""What a run asks of an executor, which decides where workers live, and what it hears from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol, runtime_checkable

import attrs

from .failures import describe_exit
from .protocol import Message

__all__ = ["Ended", "Executor", "Said", "WorkerEvent", "WorkerOrder", "describe_end"]


@attrs.frozen
class WorkerOrder:
    """A worker to start.

    Attributes:
        argv: Command, the launcher of the device family included.
        env: Environment additions; ``None`` unsets.
        device: Device it opens.
        ranks: Processes that will say hello.
        directory: Its working directory.
        log: Where stdout and stderr go, bounded.
        exit_seconds: How long it may take to end by itself after its last case (a profiler exports its data then).
        profile_dir: Where a profiler around it leaves its data.
    """

    argv: tuple[str, ...]
    env: Mapping[str, str | None]
    device: int
    ranks: int
    directory: Path
    log: Path
    exit_seconds: float = 5.0
    profile_dir: Path | None = None


@attrs.frozen
class Said:
    """A rank of a worker sent a message."""

    worker: int
    rank: int
    message: Message


@attrs.frozen
class Ended:
    """A worker's whole tree is gone.

    ``code`` is the exit status of the first process (negative: a signal), ``silent_ranks`` those that never said hello,
    ``lost_ranks`` those whose connection closed before the worker was told to stop, in order.
    """

    worker: int
    code: int | None
    silent_ranks: tuple[int, ...] = ()
    lost_ranks: tuple[int, ...] = ()
    survivors: tuple[int, ...] = ()


WorkerEvent = Said | Ended


def describe_end(event: Ended, ranks: int = 1) -> str:
    """Say how a worker ended, and which of several ranks was lost first."""
    first = f"rank {event.lost_ranks[0]} was lost first, " if ranks > 1 and event.lost_ranks else ""
    return f"{first}the worker {describe_exit(event.code)}"


@runtime_checkable
class Executor(Protocol):
    """Starts workers and carries messages; everything returns at once but ``events`` and ``close``."""

    def start(self, order: WorkerOrder) -> int:
        """Start a worker and return its number."""

    def send(self, worker: int, message: Message) -> None:
        """Send *message* to every rank; to a worker that is gone it is dropped, its ``Ended`` is on the way."""

    def events(self, timeout_seconds: float) -> Sequence[WorkerEvent]:
        """Wait for something to happen, at most *timeout_seconds*; messages come before the ``Ended`` they precede."""

    def stop(self, worker: int, *, force: bool = False, export: bool = False) -> None:
        """Ask a worker to exit, or end its tree at once with *force*; ``Ended`` follows.

        With *force* and *export* its ranks are ended at once and the profiler around them may finish.
        """

    def close(self) -> None:
        """End every worker that is left and give up the socket."""


class ExecutorPlugin(Protocol):
    """What an entry point of group ``perfcollect.executors`` names: a module with this function."""

    def open_executor(self, run_dir: Path) -> Executor:
        """Return an executor for one run."""
