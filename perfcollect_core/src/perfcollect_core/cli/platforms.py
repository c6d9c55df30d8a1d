"""Say in one line that a command measures on Linux only."""

from __future__ import annotations

import platform
import sys

from perfcollect_core.errors import DeviceUnavailableError

__all__ = ["require_linux"]


def require_linux(command: str) -> None:
    """Refuse *command* on any other system: workers need its process control, sockets and locks.

    Raises:
        DeviceUnavailableError: This is not Linux.
    """
    if sys.platform.startswith("linux"):
        return
    raise DeviceUnavailableError(
        f"perfcollect {command} measures on Linux only, this is {platform.system() or sys.platform}",
        hint="parse, grid, db and ops work here",
    )
