"""The control channel of a sweep: who is there, what to do next, who is stuck.

The coordinator is a plain process without torch that every rank connects to. It drives the plan step by step (prepare,
warm up, measure), so that a fault in the benchmarked library never blocks the agreement on what to do about it.
Messages are JSON lines over TCP.
"""

from __future__ import annotations

import json
import selectors
import socket
import time
from collections.abc import Callable, Iterator, Mapping

import attrs

from perfcollect_core.errors import PerfcollectError

__all__ = ["Channel", "Hub", "JoinTimeout", "Member", "RankLost", "RankStuck"]


#: A rank whose peer died raises too, and often first: who reports an error inside a collective is blamed only when
#: nobody's connection closes within this time.
_BLAME_DELAY_S = 1.5


class RankLost(PerfcollectError):
    """A rank's process ended or raised; ``rank`` names it."""

    def __init__(self, rank: int, message: str) -> None:
        super().__init__(message)
        self.rank = rank


class RankStuck(PerfcollectError):
    """No progress within the deadline; ``ranks`` names who holds the others up."""

    def __init__(self, ranks: tuple[int, ...], message: str) -> None:
        super().__init__(message)
        self.ranks = ranks


class JoinTimeout(PerfcollectError):
    """Not every rank came to the roll-call."""


class Channel:
    """One connection; sends and receives JSON lines."""

    def __init__(self, connection: socket.socket) -> None:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket = connection
        self._pending = b""

    def fileno(self) -> int:
        return self._socket.fileno()

    def send(self, message: Mapping[str, object]) -> None:
        self._socket.sendall(json.dumps(message).encode() + b"\n")

    def receive(self) -> dict[str, object] | None:
        """Return the next message, waiting for it; ``None`` when the other side closed."""
        while b"\n" not in self._pending:
            data = self._socket.recv(1 << 16)
            if not data:
                return None
            self._pending += data
        line, _, self._pending = self._pending.partition(b"\n")
        return dict(json.loads(line))

    def available(self) -> Iterator[dict[str, object] | None]:
        """Yield what has arrived after a readiness event; a final ``None`` means closed."""
        try:
            data = self._socket.recv(1 << 20)
        except OSError:
            data = b""
        if not data:
            yield None
            return
        self._pending += data
        while b"\n" in self._pending:
            line, _, self._pending = self._pending.partition(b"\n")
            yield dict(json.loads(line))

    def close(self) -> None:
        self._socket.close()


@attrs.define(eq=False)
class Member:
    """One rank as the coordinator sees it. ``entered`` counts collective calls begun; ``beat`` is the last sign of life."""

    rank: int
    host: str
    pid: int
    node: int
    channel: Channel
    digest: str
    phase: str = "joined"
    entered: int = 0
    where: str = ""
    in_library: bool = False
    beat: float = attrs.field(factory=time.monotonic)
    progress: float = attrs.field(factory=time.monotonic)


class Hub:
    """The coordinator's side: accepts ranks, sends to them, waits for all of them with a deadline."""

    def __init__(self, server: socket.socket, world: int, token: str, say: Callable[[str], None]) -> None:
        self._server = server
        self._selector = selectors.DefaultSelector()
        self._selector.register(server, selectors.EVENT_READ)
        self._token = token
        self._say = say
        self.world = world
        self.members: dict[int, Member] = {}
        self._suspect: tuple[float, RankLost] | None = None

    def roll_call(self, seconds: float, expected: Callable[[int], str]) -> None:
        """Wait until every rank has joined; *expected* names a rank that has not (its node).

        Raises:
            JoinTimeout: Some did not come in time; each is named.
        """
        deadline = time.monotonic() + seconds
        announce = time.monotonic() + 10
        while len(self.members) < self.world:
            now = time.monotonic()
            absent = [rank for rank in range(self.world) if rank not in self.members]
            names = ", ".join(expected(rank) for rank in absent[:8]) + (", ..." if len(absent) > 8 else "")
            if now >= deadline:
                raise JoinTimeout(
                    f"{len(absent)} of {self.world} ranks did not join within {seconds:g} s: {names}",
                    hint="start every node with the same --nnodes, --master-addr and --master-port; see its log",
                )
            if now >= announce:
                self._say(f"waiting for {len(absent)} of {self.world} ranks: {names}")
                announce = now + 10
            for key, _ in self._selector.select(min(1.0, deadline - now)):
                if key.fileobj is self._server:
                    self._accept()

    def _accept(self) -> None:
        connection, _ = self._server.accept()
        connection.settimeout(10)
        channel = Channel(connection)
        try:
            hello = channel.receive()
        except (OSError, ValueError):
            hello = None
        if hello is None or hello.get("token") != self._token or int(str(hello["rank"])) in self.members:
            channel.close()
            return
        connection.settimeout(None)
        rank = int(str(hello["rank"]))
        self.members[rank] = Member(
            rank,
            str(hello["host"]),
            int(str(hello["pid"])),
            int(str(hello["node"])),
            channel,
            str(hello["digest"]),
        )
        self._selector.register(channel, selectors.EVENT_READ, rank)

    def send(self, ranks: frozenset[int], message: Mapping[str, object]) -> None:
        """Send *message* to each of *ranks*; a rank that is gone shows when its answer is awaited."""
        for rank in sorted(ranks):
            try:
                self.members[rank].channel.send(message)
            except OSError:
                continue

    def gather(
        self, ranks: frozenset[int], kind: str, seconds: float, describe: Callable[[], str]
    ) -> dict[int, dict[str, object]]:
        """Wait for one message of *kind* from each of *ranks*; *describe* says what they are doing.

        Raises:
            RankLost: One of the world's processes ended, or reported an error.
            RankStuck: Nobody made progress for *seconds*.
        """
        answers: dict[int, dict[str, object]] = {}
        started = time.monotonic()
        for rank in ranks:
            self.members[rank].phase = kind
            self.members[rank].progress = started
        while len(answers) < len(ranks):
            for key, _ in self._selector.select(0.25):
                if key.fileobj is self._server:
                    self._server.accept()[0].close()
                    continue
                member = self.members[key.data]
                for message in member.channel.available():
                    self._take(member, message, kind, answers, describe)
            if self._suspect and time.monotonic() - self._suspect[0] > _BLAME_DELAY_S:
                raise self._suspect[1]
            waiting = [self.members[rank] for rank in ranks if rank not in answers]
            newest = max([started, *(self.members[rank].progress for rank in ranks)])
            if waiting and time.monotonic() - newest > seconds:
                raise self._stuck(waiting, answers, seconds, describe())
        return answers

    def _take(
        self,
        member: Member,
        message: dict[str, object] | None,
        kind: str,
        answers: dict[int, dict[str, object]],
        describe: Callable[[], str],
    ) -> None:
        now = time.monotonic()
        if message is None:
            self._selector.unregister(member.channel)
            raise RankLost(
                member.rank,
                f"rank {member.rank} (pid {member.pid} on {member.host}) ended during {describe()}, phase {member.phase}",
            )
        member.beat = now
        if "where" in message:
            member.where, member.in_library = str(message["where"]), bool(message["in_library"])
        if "error" in message:
            lost = RankLost(
                member.rank,
                f"rank {member.rank} (pid {member.pid} on {member.host}) raised during {describe()}, "
                f"phase {member.phase}: {message['error']}",
            )
            if not message.get("in_collective"):
                raise lost
            self._suspect = self._suspect or (now, lost)
            return
        entered = int(str(message.get("entered", member.entered)))
        if entered != member.entered:
            member.entered, member.progress = entered, now
        if message.get("kind") == kind:
            answers[member.rank] = message
            member.progress = now

    def _stuck(
        self, waiting: list[Member], answers: Mapping[int, object], seconds: float, doing: str
    ) -> RankStuck:
        """Name the ranks that hold the others up: silent ones, else those outside the library, else all that wait."""
        now = time.monotonic()
        silent = [m for m in waiting if now - m.beat > min(5.0, seconds / 2)]
        outside = [m for m in waiting if not m.in_library]
        culprits = silent or outside or waiting
        why = "silent" if silent else "not in the collective" if outside else "all waiting in the library"
        table = [
            f"rank {m.rank} on {m.host}, pid {m.pid}, {m.phase} in {m.where or 'nothing known'}, {now - m.progress:.1f} s"
            for m in waiting
        ]
        who = ", ".join(f"rank {m.rank} on {m.host}" for m in culprits)
        return RankStuck(
            tuple(m.rank for m in culprits),
            f"no progress for {seconds:g} s in {doing}: {who} {why}; waiting: " + "; ".join(table),
        )

    def close(self) -> None:
        """Close every connection; ranks take that as the end."""
        for member in self.members.values():
            member.channel.close()
        self._selector.close()
        self._server.close()
