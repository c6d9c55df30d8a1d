"""Check the port range HCCL takes on a host."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator

from .findings import Finding, Level, Scope

__all__ = ["base_port_trouble", "hccl_ports"]

_VARIABLE = "HCCL_IF_BASE_PORT"
_LAST_PORT = 65535
#: NPUs of a full server: HCCL takes one port an NPU from the base on.
_DEVICES = 16


def base_port_trouble(text: str, devices: int, is_busy: Callable[[int], bool] | None = None) -> str | None:
    """Say what is wrong with a base port for *devices* NPUs, ``None`` where nothing is."""
    busy = is_busy or _is_busy
    if not (text.isascii() and text.isdecimal()):
        return f"{_VARIABLE}={text} is not a number"
    first = int(text)
    last = first + devices - 1
    if not 1 <= first <= last <= _LAST_PORT:
        return f"{_VARIABLE}={text} for {devices} NPUs: the range {first} to {last} ends above {_LAST_PORT}"
    taken = [port for port in range(first, last + 1) if busy(port)]
    if taken:
        return f"{_VARIABLE}={text} for {devices} NPUs: {', '.join(map(str, taken))} is taken"
    return None


def _is_busy(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
        except OSError:
            return True
    return False


def hccl_ports(scope: Scope) -> Iterator[Finding]:
    """Judge ``HCCL_IF_BASE_PORT`` where it is set; left alone, HCCL chooses by itself."""
    text = os.environ.get(_VARIABLE, "").strip()
    if not text:
        return
    trouble = base_port_trouble(text, _DEVICES)
    if trouble is None:
        yield Finding("ports", "ok", _VARIABLE, f"{text} to {int(text) + _DEVICES - 1} are free")
    else:
        level: Level = "error" if scope.family == "ascend" else "warning"
        yield Finding(
            "ports", level, _VARIABLE, trouble, f"choose a free range that ends at {_LAST_PORT} or below"
        )
