"""Where the ranks of a sweep run and who coordinates: one host, nodes started by hand, or torchrun."""

from __future__ import annotations

import json
import os
import secrets
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import attrs

from perfcollect_core.errors import WorkerError

from .network import listen
from .orders import Orders
from .plan import CommRequest
from .rank import RankSettings

__all__ = ["Node", "find_node", "own_address", "start_ranks", "stop_ranks"]

_STORE_KEY = "perfcollect/control"


@attrs.frozen(eq=False)
class Node:
    """This process's place: the ranks it starts, and the coordinator's socket where that is here."""

    node: int
    nodes: int
    ranks: tuple[int, ...]
    world: int
    control: tuple[str, int]
    token: str
    server: socket.socket | None = None
    if rank == 0:
        host = own_address((address, port))
        server = listening = listen(host, 0)
        store.set(_STORE_KEY, json.dumps([host, listening.getsockname()[1], secrets.token_hex(8)]))
    host, control_port, token = json.loads(store.get(_STORE_KEY))
    per_node = int(environ.get("LOCAL_WORLD_SIZE", "1"))
    node = (rank - local) // max(1, per_node)
    return Node(node, world // max(1, per_node), (rank,), world, (host, control_port), token, server)


def own_address(target: tuple[str, int]) -> str:
    """Return the address of this host that reaches *target*; no packet is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((socket.gethostbyname(target[0]), target[1] or 1))
        return str(probe.getsockname()[0])


def start_ranks(
    node: Node,
    request: CommRequest,
    backend: str,
    *,
    log_dir: Path,
    op_timeout: float,
    timer: str,
    environment: Mapping[str, str],
    local_ranks: tuple[int, ...],
) -> subprocess.Popen[bytes]:
    """Start this node's ranks through the fork server; they end when the returned process is stopped."""
    log_dir.mkdir(parents=True, exist_ok=True)
    ranks = tuple(
        RankSettings(rank, node.world, local, node.node, node.control, node.token, op_timeout, timer)
        for rank, local in zip(node.ranks, local_ranks, strict=True)
    )
    orders = Orders(request, backend, ranks, str(log_dir), dict(environment))
    log = (log_dir / f"node{node.node}-{node.ranks[0]}.log").open("ab")
    with log:
        process = subprocess.Popen(
            [sys.executable, "-m", "perfcollect_comm.fork_server"],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=subprocess.STDOUT,
            env={**os.environ, "PYTHONSAFEPATH": "1", "OMP_NUM_THREADS": "1", **_scrubbed()},
            start_new_session=True,
        )
    assert process.stdin is not None
    try:
        process.stdin.write(json.dumps(attrs.asdict(orders)).encode() + b"\n")
        process.stdin.flush()
    except BrokenPipeError:
        raise WorkerError(f"the ranks of node {node.node} did not start", hint=f"see {log.name}") from None
    return process


def _scrubbed() -> dict[str, str]:
    # torch reads these on import paths of its own; the plan alone decides what a rank is.
    return {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}


def stop_ranks(process: subprocess.Popen[bytes], grace_seconds: float = 5.0) -> int:
    """Let the ranks end by themselves for a while, then end them; returns the fork server's exit status."""
    deadline = time.monotonic() + grace_seconds
    while process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.02)
    assert process.stdin is not None
    process.stdin.close()
    try:
        return process.wait(timeout=5)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait()
