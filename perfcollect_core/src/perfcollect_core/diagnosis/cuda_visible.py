"""Check ``CUDA_VISIBLE_DEVICES``: the driver reads it up to the first entry it dislikes and says nothing."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping

from .findings import Finding, Level, Scope

__all__ = ["cuda_visible_devices"]

_VARIABLE = "CUDA_VISIBLE_DEVICES"
_FIX = f"correct {_VARIABLE} or unset it"


def cuda_visible_devices(scope: Scope, environ: Mapping[str, str] | None = None) -> Iterator[Finding]:
    """Say what a list that is set hides."""
    text = (os.environ if environ is None else environ).get(_VARIABLE)
    if text is None:
        return
    trouble = _trouble(text)
    if trouble is None:
        yield Finding("cuda", "ok", _VARIABLE, text)
        return
    level: Level = "error" if scope.family == "cuda" else "warning"
    yield Finding("cuda", level, _VARIABLE, trouble, _FIX)


def _trouble(text: str) -> str | None:
    words = [word.strip() for word in text.split(",")]
    if words == [""]:
        return f"{_VARIABLE} is set but empty, which hides every device"
    for position, word in enumerate(words):
        if re.fullmatch(r"[0-9]+|(GPU|MIG)-[0-9A-Za-z/-]+", word):
            continue
        kept = ", ".join(words[:position]) or "no device"
        return f"{_VARIABLE} has {word!r}, which ends the list: what stays visible is {kept}"
    if len({*words}) < len(words):
        return f"{_VARIABLE} names a device twice, which hides every device"
    return None
