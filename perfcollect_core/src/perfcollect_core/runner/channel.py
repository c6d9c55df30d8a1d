"""A socket that carries one JSON object a line, and the address it listens on."""

from __future__ import annotations

import json
import os
import socket
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from .protocol import Message

__all__ = ["Channel", "ChannelClosed", "connect", "listen"]

#: Made once: ``json.dumps`` makes one for each call with arguments of its own.
_ENCODER = json.JSONEncoder(separators=(",", ":"))
#: A message longer than this is no message of ours.
_MAX_LINE_BYTES = 64 << 20
#: ``sun_path`` holds 108 bytes on Linux and 104 elsewhere, the final NUL included.
_MAX_ADDRESS_BYTES = 100


class ChannelClosed(Exception):
    """The other end is gone."""


class Channel:
    """One connection: ``send`` writes a message, ``receive`` blocks for the next, ``drain`` takes what is there."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._buffer = bytearray()

    def fileno(self) -> int:
        return self._socket.fileno()

    def send(self, message: Message) -> None:
        """Send *message* whole.

        Raises:
            ChannelClosed: The other end is gone.
        """
        line = _ENCODER.encode(message).encode() + b"\n"
        try:
            self._socket.sendall(line)
        except OSError as error:
            raise ChannelClosed(str(error)) from error

    def receive(self) -> Message:
        """Wait for the next message.

        Raises:
            ChannelClosed: The other end is gone.
        """
        while True:
            message = self._pop()
            if message is not None:
                return message
            self._fill()

    def drain(self) -> list[Message]:
        """Read once and return the messages that are complete; call it when the socket is readable.

        Raises:
            ChannelClosed: The other end is gone and every whole message before was returned.
        """
        self._fill()
        messages = []
        while (message := self._pop()) is not None:
            messages.append(message)
        return messages

    def drain_rest(self) -> list[Message]:
        """Return what the other end sent before it was gone, without waiting."""
        self._socket.setblocking(False)
        messages = []
        try:
            while True:
                messages += self.drain()
        except ChannelClosed:
            return messages

    def close(self) -> None:
        with suppress(OSError):
            self._socket.close()

    def _fill(self) -> None:
        try:
            received = self._socket.recv(1 << 18)
        except OSError as error:
            raise ChannelClosed(str(error)) from error
        if not received:
            raise ChannelClosed("closed by the other end")
        self._buffer += received
        if len(self._buffer) > _MAX_LINE_BYTES:
            raise ChannelClosed(f"a message of more than {_MAX_LINE_BYTES} bytes")

    def _pop(self) -> Message | None:
        end = self._buffer.find(b"\n")
        if end < 0:
            return None
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 1]
        try:
            message = json.loads(line)
        except ValueError:
            raise ChannelClosed("a line that is no JSON") from None
        if not isinstance(message, dict):
            raise ChannelClosed("a line that is no JSON object")
        return message


def listen(directory: Path) -> tuple[socket.socket, Path]:
    """Listen on a new Unix-domain socket in *directory*, or in a private temporary one where that cannot hold any."""
    path = directory / f"workers-{os.getpid()}.sock"
    server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        path.unlink(missing_ok=True)
        with _address(path) as address:
            server.bind(address)
    except OSError:
        # Network and overlay file systems may have no sockets.
        path = Path(tempfile.mkdtemp(prefix="perfcollect-")) / "workers.sock"
        with _address(path) as address:
            server.bind(address)
    server.listen(64)
    return server, path


def connect(path: Path) -> Channel:
    """Connect to the socket at *path*."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    with _address(path) as address:
        connection.connect(address)
    return Channel(connection)


@contextmanager
def _address(path: Path) -> Iterator[str]:
    """Give an address of *path* that fits ``sun_path``, however deep the directory lies."""
    if len(os.fsencode(path)) <= _MAX_ADDRESS_BYTES:
        yield str(path)
        return
    descriptor = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{descriptor}/{path.name}"
    finally:
        os.close(descriptor)
