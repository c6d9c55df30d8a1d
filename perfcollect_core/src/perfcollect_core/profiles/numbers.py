"""The numbers a profiler may write, and why a cell is none of them."""

from __future__ import annotations

import math
import re

__all__ = ["COUNTER_LIMIT", "DURATION_LIMIT_US", "duration_fault", "is_missing", "parse_number"]

_NUMBER = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?", re.ASCII)
_MISSING = frozenset({"", "N/A", "NA", "NULL", "NONE", "-"})

#: A profile does not last for days: a longer kernel is a broken clock.
DURATION_LIMIT_US = 86_400e6
#: Half the range of an unsigned nanosecond counter, in microseconds: beyond it a negative time has wrapped around.
_WRAP_US = 2.0**63 / 1000
#: Counters are at most signed 64-bit integers; all-ones marks an invalid one.
COUNTER_LIMIT = 2.0**63


def _plain(text: str) -> str:
    return text.strip().strip('"').strip()


def is_missing(text: str | None) -> bool:
    """Tell whether a cell says that nothing was collected."""
    return text is None or _plain(text).upper() in _MISSING


def parse_number(text: str | None) -> float | None:
    """Parse a decimal number in ASCII digits, white space around it allowed; ``None`` for anything else.

    Python's own grammar is wider: ``1_0``, ``nan``, ``inf`` and digits of other scripts are no numbers here.
    """
    plain = _plain(text or "")
    return float(plain) if _NUMBER.fullmatch(plain) else None


def duration_fault(text: str | None) -> str | None:
    """Say why *text* is no duration of a kernel; ``None`` where it is one."""
    if is_missing(text):
        return "duration is N/A" if (text or "").strip() else "duration is blank"
    value = parse_number(text)
    if value is None:
        word = _plain(text or "").lower().lstrip("+-")
        return "duration is not finite" if word in ("nan", "inf", "infinity") else "duration is not a number"
    if not math.isfinite(value):
        return "duration is not finite"
    if value < 0:
        return "duration is negative"
    if value == 0:
        return "duration is zero"
    if value >= _WRAP_US:
        return "duration is a negative time wrapped around 2^64 ns"
    if value > DURATION_LIMIT_US:
        return "duration is longer than a day"
    return None
