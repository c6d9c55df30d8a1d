"""Addresses, interfaces and ports of this host."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from pathlib import Path

from perfcollect_core.errors import UsageError

__all__ = ["free_port", "interface_of", "listen", "port_holder", "stale_variables"]

_RANK_VARIABLES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


def interface_of(address: str) -> str | None:
    """Return the name of the interface that owns an IPv4 *address*, ``None`` where none does."""
    import fcntl
    import struct

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, name in socket.if_nameindex():
            request = struct.pack("256s", name.encode()[:15])
            try:
                answer = fcntl.ioctl(probe.fileno(), 0x8915, request)  # SIOCGIFADDR
            except OSError:
                continue
            if socket.inet_ntoa(answer[20:24]) == address:
                return name
    return None


def free_port(address: str = "127.0.0.1") -> int:
    """Return a TCP port nobody listens on right now."""
    with socket.socket() as probe:
        probe.bind((address, 0))
        return int(probe.getsockname()[1])


def listen(address: str, port: int) -> socket.socket:
    """Listen on *port* (0: any free one).

    Raises:
        UsageError: The port is not one, or somebody else holds it; named with pid where that can be read.
    """
    if not 0 <= port <= 65535:
        raise UsageError(f"port {port}, expected 1 to 65535", hint="give another --master-port")
    server = socket.socket()
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        server.bind((address, port))
        server.listen(1024)
    except OSError as error:
        server.close()
        holder = port_holder(port)
        held = f", held by pid {holder}" if holder else ""
        raise UsageError(
            f"cannot listen on {address}:{port}: {error.strerror}{held}",
            hint="leave --master-port out to have a free one chosen, or give another",
        ) from None
    return server


def port_holder(port: int) -> int | None:
    """Return the pid that listens on TCP *port*, ``None`` where it cannot be read."""
    inodes = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            lines = Path(table).read_text().splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            fields = line.split()
            if fields[3] == "0A" and int(fields[1].rpartition(":")[2], 16) == port:
                inodes.add(f"socket:[{fields[9]}]")
    for process in Path("/proc").glob("[0-9]*"):
        try:
            for link in (process / "fd").iterdir():
                if str(link.readlink()) in inodes:
                    return int(process.name)
        except OSError:
            continue
    return None


def stale_variables(environ: Mapping[str, str] = os.environ) -> tuple[str, ...]:
    """Return rank variables set outside a torchrun launch: they are not obeyed, and worth a line."""
    if "TORCHELASTIC_RUN_ID" in environ:
        return ()
    return tuple(f"{name}={environ[name]}" for name in _RANK_VARIABLES if environ.get(name))
