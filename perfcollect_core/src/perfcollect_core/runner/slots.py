"""One device of a run and the worker on it."""

from __future__ import annotations

from collections import deque
from typing import Literal

import attrs

from .case_queue import Job
from .protocol import Message

__all__ = ["PROBES", "Slot"]

#: Starts that may fail in a row before a device is left alone.
PROBES = 3

State = Literal["empty", "starting", "ready", "ending", "quarantined"]


@attrs.define(eq=False)
class Slot:
    """A device and its worker.

    Attributes:
        device: Index of the device.
        ranks: Processes a worker has.
        state: Life of the worker.
        worker: The executor's number for it.
        born: Age of the queue when it was started.
        served: Cases it has finished.
        inflight: Cases sent and not finished, the first one being run.
        begun: Number of the first case it said it began.
        deadline: Monotonic time at which what it is doing must be done.
        hellos, readies: Ranks heard of.
        results: What the ranks said of the first case in flight.
        previous: The case it served last.
        failed_starts: Starts that failed in a row.
        complaint: Why the last start failed.
        environment: Number of its environment in the journal.
        busy_seconds: Running mean of the time a case takes.
        first_failures: Cases in a row that failed as the first of their process.
    """

    device: int
    ranks: int = 1
    state: State = "empty"
    worker: int = -1
    born: int = 0
    served: int = 0
    inflight: deque[Job] = attrs.field(factory=deque)
    begun: int = -1
    began_at: float = 0.0
    deadline: float = float("inf")
    hellos: set[int] = attrs.field(factory=set)
    readies: set[int] = attrs.field(factory=set)
    results: dict[int, Message] = attrs.field(factory=dict)
    previous: Job | None = None
    failed_starts: int = 0
    complaint: str = ""
    environment: int = 0
    core: str = ""
    busy_seconds: float = 0.0
    first_failures: int = 0

    def started(self, worker: int, born: int, deadline: float) -> None:
        """A worker was started."""
        self.state, self.worker, self.born, self.deadline = "starting", worker, born, deadline
        self.served, self.begun, self.previous = 0, -1, None
        self.hellos.clear()
        self.readies.clear()
        self.results.clear()

    def take_inflight(self) -> list[Job]:
        """Empty the cases in flight and return them."""
        jobs = list(self.inflight)
        self.inflight.clear()
        self.results.clear()
        self.deadline = float("inf")
        return jobs

    def start_failed(self, complaint: str) -> None:
        """Count a start that failed; too many in a row quarantine the device."""
        self.failed_starts += 1
        self.complaint = complaint
        if self.failed_starts >= PROBES:
            self.state = "quarantined"

    def note_duration(self, seconds: float) -> None:
        """Keep a running mean of the time a case takes."""
        self.busy_seconds = seconds if not self.busy_seconds else 0.8 * self.busy_seconds + 0.2 * seconds
