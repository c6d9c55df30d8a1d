"""What a check finds, and what it is asked about."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Literal

import attrs

__all__ = ["Check", "Finding", "Level", "Scope"]

Level = Literal["ok", "info", "warning", "error"]


@attrs.frozen
class Finding:
    """One thing found: which *check* found it about which *subject*; ``fix`` says what to do about it.

    ``error`` makes ``doctor`` exit 1; ``info`` is true of this machine and nothing to mend.
    """

    check: str
    level: Level
    subject: str
    message: str
    fix: str = ""


@attrs.frozen
class Scope:
    """What is asked: ``family`` makes what that family lacks an error; ``timeout_s`` ends a child process."""

    family: str | None = None
    timeout_s: float = 60.0


Check = Callable[[Scope], Iterable[Finding]]
