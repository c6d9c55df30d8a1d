"""What workers finished and nobody may have heard of: the last results of each worker, beside the journal.

A worker goes on to its next case while the parent journals the one before. Were the parent killed in between, that one
would be measured again; a line in the worker's spool keeps it, and a run that is taken up journals it.
"""

from __future__ import annotations

import json
import os
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any

from perfcollect_core.cases import RowRef

from .protocol import Message, decode_row

__all__ = ["SPOOL_NAME", "Spool", "clear_spool", "read_spool"]

SPOOL_NAME = "spool"
#: The parent lags by a case or two; two files of this many results hold more than enough.
_RESULTS_PER_FILE = 200
_ENCODER = json.JSONEncoder(separators=(",", ":"))


class Spool:
    """The spool of one worker; a disk that takes nothing costs the safety net, never the case."""

    def __init__(self, run_dir: Path, name: str) -> None:
        self._directory = run_dir / SPOOL_NAME
        self._name = name
        self._written = 0
        self._descriptor = -1

    def keep(self, row: object, result: Message, core: str) -> None:
        """Keep a result before it is sent; survives the death of this process and of the parent."""
        with suppress(OSError):
            if self._written % _RESULTS_PER_FILE == 0:
                self._next_file()
            line = {"row": row, "core": core, "samples": result["samples"]}
            if "checked" in result:
                line["checked"] = result["checked"]
            os.write(self._descriptor, _ENCODER.encode(line).encode() + b"\n")
            self._written += 1

    def _next_file(self) -> None:
        self._directory.mkdir(exist_ok=True)
        number = self._written // _RESULTS_PER_FILE
        if self._descriptor >= 0:
            os.close(self._descriptor)
        self._descriptor = os.open(self._path(number), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self._path(number - 2).unlink(missing_ok=True)

    def _path(self, number: int) -> Path:
        return self._directory / f"{self._name}.{number}.jsonl"


def read_spool(run_dir: Path) -> dict[RowRef, Message]:
    """Return what workers of a killed run finished, by row; torn lines are not results."""
    found: dict[RowRef, Message] = {}
    for path in sorted((run_dir / SPOOL_NAME).glob("*.jsonl")):
        for raw in path.read_bytes().splitlines(keepends=True):
            with suppress(ValueError, KeyError, TypeError, IndexError):
                if raw.endswith(b"\n"):
                    line: Any = json.loads(raw)
                    found[decode_row(line["row"])] = line
    return found


def clear_spool(run_dir: Path) -> None:
    """Remove the spool: everything in it is journalled by now."""
    shutil.rmtree(run_dir / SPOOL_NAME, ignore_errors=True)
