"""Run workers as processes of this machine."""

from __future__ import annotations

import os
import selectors
import socket
import subprocess
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

import attrs

from perfcollect_core.errors import WorkerError
from perfcollect_core.runner.channel import Channel, ChannelClosed, listen
from perfcollect_core.runner.execution import Ended, Said, WorkerEvent, WorkerOrder
from perfcollect_core.runner.processes import become_subreaper, end_orphans, end_processes, end_tree
from perfcollect_core.runner.protocol import ENV_PARENT, ENV_SOCKET, ENV_TOKEN, Message

from .worker_log import WorkerLog

__all__ = ["LocalExecutor", "open_executor"]

#: A process that closed its connection has this long to leave its exit status.
_EXIT_STATUS_SECONDS = 1.0


def open_executor(run_dir: Path) -> LocalExecutor:
    """Return an executor whose socket is in *run_dir*."""
    return LocalExecutor(run_dir)


@attrs.define(eq=False)
class _Worker:
    """A started worker and what is known of its ranks."""

    number: int
    order: WorkerOrder
    token: str
    process: subprocess.Popen[bytes]
    log: WorkerLog
    channels: dict[int, Channel] = attrs.field(factory=dict)
    lost: list[int] = attrs.field(factory=list)
    pids: set[int] = attrs.field(factory=set)
    seen: set[int] = attrs.field(factory=set)
    stopping: bool = False
    ending: bool = False


class LocalExecutor:
    """Workers as child processes, found again by a token in their environment."""

    def __init__(self, run_dir: Path) -> None:
        become_subreaper()
        end_orphans(ENV_PARENT)
        self._server, self._address = listen(run_dir)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._server, selectors.EVENT_READ, self._accept)
        self._wake_read, self._wake_write = socket.socketpair()
        self._selector.register(self._wake_read, selectors.EVENT_READ, self._woken)
        self._workers: dict[int, _Worker] = {}
        self._by_token: dict[str, _Worker] = {}
        self._events: deque[WorkerEvent] = deque()
        #: What threads have to say; only the thread that calls ``events`` touches anything else.
        self._ended: deque[tuple[_Worker, int | None, set[int]]] = deque()
        self._count = 0
        self._last_look = 0.0

    def start(self, order: WorkerOrder) -> int:
        number = self._count
        self._count += 1
        token = uuid4().hex
        try:
            process = subprocess.Popen(
                order.argv,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                cwd=order.directory,
                env=_environment(order.env, self._names(token)),
                # The terminal's Ctrl-C is for the parent alone.
                start_new_session=True,
            )
        except OSError as error:
            raise WorkerError(
                f"worker {order.argv[0]} cannot be started: {(error.strerror or str(error)).lower()}",
                hint="perfcollect doctor checks the tools a device family starts its workers with",
            ) from error
        assert process.stdout is not None
        log = WorkerLog(order.log, process.stdout)
        worker = _Worker(number, order, token, process, log)
        self._workers[number] = self._by_token[token] = worker
        self._selector.register(process.stdout, selectors.EVENT_READ, lambda: self._drain_log(worker))
        return number

    def _names(self, token: str) -> dict[str, str]:
        return {ENV_SOCKET: str(self._address), ENV_TOKEN: token, ENV_PARENT: str(os.getpid())}

    def send(self, worker: int, message: Message) -> None:
        found = self._workers.get(worker)
        if found is None:
            return
        for rank, channel in list(found.channels.items()):
            try:
                channel.send(message)
            except ChannelClosed:
                self._rank_lost(found, rank)

    def stop(self, worker: int, *, force: bool = False, export: bool = False) -> None:
        found = self._workers.get(worker)
        if found is None:
            return
        found.stopping = True
        if not force:
            self.send(worker, {"kind": "exit"})
        wait_seconds = found.order.exit_seconds if export or not force else 0.0
        self._end(found, wait_seconds=wait_seconds, end_ranks=export)

    def events(self, timeout_seconds: float) -> Sequence[WorkerEvent]:
        if not self._events:
            for key, _ in self._selector.select(min(timeout_seconds, 0.2)):
                key.data()
        now = time.monotonic()
        if now - self._last_look > 0.2:
            # A launcher can die before any rank said hello: nothing but its status tells.
            self._last_look = now
            for worker in list(self._workers.values()):
                if not worker.ending and worker.process.poll() is not None:
                    self._end(worker, wait_seconds=0.0)
        found = list(self._events)
        self._events.clear()
        return found

    def close(self) -> None:
        for worker in list(self._workers.values()):
            self.stop(worker.number, force=True)
        deadline = time.monotonic() + 10.0
        while self._workers and time.monotonic() < deadline:
            self._events.clear()
            self.events(0.1)
        self._selector.close()
        for end in (self._server, self._wake_read, self._wake_write):
            end.close()
        with suppress(OSError):
            self._address.unlink()

    def _accept(self) -> None:
        connection, _ = self._server.accept()
        channel = Channel(connection)
        self._selector.register(channel, selectors.EVENT_READ, lambda: self._hello(channel))

    def _hello(self, channel: Channel) -> None:
        try:
            messages = channel.drain()
        except ChannelClosed:
            self._forget(channel)
            return
        if not messages:
            return
        hello, *others = messages
        worker = self._by_token.get(str(hello.get("token")))
        if hello.get("kind") != "hello" or worker is None or worker.ending:
            self._forget(channel)
            return
        rank = int(hello["rank"])
        worker.channels[rank] = channel
        worker.seen.add(rank)
        worker.pids.add(int(hello.get("pid", 0)))
        self._selector.modify(channel, selectors.EVENT_READ, lambda: self._heard(worker, rank))
        self._events.extend(Said(worker.number, rank, message) for message in (hello, *others))

    def _heard(self, worker: _Worker, rank: int) -> None:
        channel = worker.channels.get(rank)
        if channel is None:
            # Its end was dealt with earlier in the same round of events.
            return
        try:
            messages = channel.drain()
        except ChannelClosed:
            self._rank_lost(worker, rank)
            return
        self._events.extend(Said(worker.number, rank, message) for message in messages)

    def _rank_lost(self, worker: _Worker, rank: int) -> None:
        channel = worker.channels.pop(rank, None)
        if channel is None:
            return
        # A result may lie there of a worker that left while the next case was on its way.
        self._events.extend(Said(worker.number, rank, message) for message in channel.drain_rest())
        self._forget(channel)
        if not worker.stopping:
            worker.lost.append(rank)
        launched = worker.order.ranks > 1 or worker.order.exit_seconds > 5.0
        self._end(worker, wait_seconds=worker.order.exit_seconds if launched else _EXIT_STATUS_SECONDS)

    def _forget(self, channel: Channel) -> None:
        with suppress(KeyError, ValueError):
            self._selector.unregister(channel)
        channel.close()

    def _end(self, worker: _Worker, wait_seconds: float, *, end_ranks: bool = False) -> None:
        if worker.ending:
            return
        worker.ending = True

        def finish() -> None:
            if end_ranks:
                end_processes(worker.pids, worker.token, worker.process.pid, _EXIT_STATUS_SECONDS)
            with suppress(subprocess.TimeoutExpired):
                if wait_seconds:
                    worker.process.wait(wait_seconds)
            # Helpers may outlive the first process even where it left by itself.
            survivors = end_tree(worker.token, worker.process.pid)
            code: int | None = None
            with suppress(subprocess.TimeoutExpired):
                code = worker.process.wait(1.0)
            self._ended.append((worker, code, survivors))
            with suppress(OSError):
                self._wake_write.send(b"x")

        threading.Thread(target=finish, daemon=True, name=f"end-worker-{worker.number}").start()

    def _woken(self) -> None:
        self._wake_read.recv(4096)
        while self._ended:
            worker, code, survivors = self._ended.popleft()
            for rank in list(worker.channels):
                channel = worker.channels.pop(rank)
                self._events.extend(Said(worker.number, rank, m) for m in channel.drain_rest())
                self._forget(channel)
            with suppress(KeyError, ValueError):
                self._selector.unregister(worker.process.stdout)  # type: ignore[arg-type]  # a pipe by construction
            worker.log.close()
            del self._workers[worker.number], self._by_token[worker.token]
            silent = set(range(worker.order.ranks)) - worker.seen
            self._events.append(
                Ended(worker.number, code, tuple(sorted(silent)), tuple(worker.lost), tuple(survivors))
            )

    def _drain_log(self, worker: _Worker) -> None:
        if worker.number in self._workers and not worker.log.drain():
            with suppress(KeyError, ValueError):
                self._selector.unregister(worker.process.stdout)  # type: ignore[arg-type]  # a pipe by construction


def _environment(additions: Mapping[str, str | None], ours: Mapping[str, str]) -> dict[str, str]:
    environment = dict(os.environ)
    for name, value in {**additions, **ours}.items():
        if value is None:
            environment.pop(name, None)
        else:
            environment[name] = value
    return environment
