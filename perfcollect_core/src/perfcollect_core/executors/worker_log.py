"""Keep what a worker prints: the beginning, the end, and how much lay between."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import IO

__all__ = ["HEAD_BYTES", "TAIL_BYTES", "WorkerLog"]

HEAD_BYTES = 512 << 10
TAIL_BYTES = 64 << 10


class WorkerLog:
    """A bounded log of one worker; the file appears with the first byte."""

    def __init__(self, path: Path, pipe: IO[bytes]) -> None:
        self._path = path
        self._pipe = pipe
        os.set_blocking(pipe.fileno(), False)
        self._written = 0
        self._received = 0
        self._tail = bytearray()

    def drain(self) -> bool:
        """Take what is there, at most a MiB; ``False`` at the end of the stream."""
        for _ in range(16):
            try:
                chunk = os.read(self._pipe.fileno(), 1 << 16)
            except BlockingIOError:
                return True
            except OSError:
                return False
            if not chunk:
                return False
            self._keep(chunk)
        return True

    def close(self) -> None:
        """Write the end of what was printed and close the pipe."""
        # Bounded: a survivor that goes on printing must not hold this up.
        for _ in range(64):
            before = self._received
            if not self.drain() or self._received == before:
                break
        self._pipe.close()
        left_out = self._received - self._written - len(self._tail)
        if self._tail:
            if left_out > 0:
                self._write(f"\n... {left_out} bytes left out ...\n".encode())
            self._write(bytes(self._tail))

    def _keep(self, chunk: bytes) -> None:
        self._received += len(chunk)
        room = HEAD_BYTES - self._written
        if room > 0:
            self._write(chunk[:room])
            self._written += len(chunk[:room])
            chunk = chunk[room:]
        self._tail += chunk
        if len(self._tail) > 2 * TAIL_BYTES:
            del self._tail[:-TAIL_BYTES]

    def _write(self, text: bytes) -> None:
        # A full disk costs the log, never the run.
        with suppress(OSError), self._path.open("ab") as file:
            file.write(text)
