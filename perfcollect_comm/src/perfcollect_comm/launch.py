"""Where the ranks of a sweep run and who coordinates: one host, nodes started by hand, or torchrun."""

from __future__ import annotations

import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import attrs

from perfcollect_core.errors import UsageError

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

    @property
    def coordinates(self) -> bool:
        return self.server is not None


def find_node(
    *,
    nproc: int,
    nnodes: int,
    node_rank: int | None,
    master_addr: str | None,
    master_port: int | None,
    environ: Mapping[str, str] = os.environ,
) -> Node:
    """Work out which node this is.

    Under torchrun every process is a node of one rank. Otherwise the options decide; rank variables in the environment
    are not obeyed.

    Raises:
        UsageError: Several nodes without rank, address or port, or a port that is taken.
    """
    if "TORCHELASTIC_RUN_ID" in environ:
        return _torchrun_node(environ)
    if nnodes == 1:
        server = listen("127.0.0.1", master_port or 0)
        address = ("127.0.0.1", int(server.getsockname()[1]))
        return Node(0, 1, tuple(range(nproc)), nproc, address, secrets.token_hex(8), server)
    if node_rank is None or master_addr is None or master_port is None:
        given = {"--node-rank": node_rank, "--master-addr": master_addr, "--master-port": master_port}
        missing = ", ".join(option for option, value in given.items() if value is None)
        raise UsageError(
            f"{nnodes} nodes without {missing}",
            hint="give every node the same --master-addr and --master-port and its own --node-rank",
        )
    if not 0 <= node_rank < nnodes:
        raise UsageError(f"node rank {node_rank}, expected 0 to {nnodes - 1}", hint="number the nodes from 0")
    if master_addr in ("127.0.0.1", "localhost", "::1"):
        raise UsageError(
            f"master address {master_addr} with {nnodes} nodes: other hosts cannot reach it",
            hint="give an address of node 0 that the other nodes can reach",
        )
    ranks = tuple(range(node_rank * nproc, (node_rank + 1) * nproc))
    # Nodes started by hand share no secret; the port is the agreement.
    token = f"perfcollect-comm-{master_port}"
    listening = listen(master_addr, master_port) if node_rank == 0 else None
    return Node(node_rank, nnodes, ranks, nproc * nnodes, (master_addr, master_port), token, listening)


def _torchrun_node(environ: Mapping[str, str]) -> Node:
    # The one place where a parent imports torch: torchrun's own store says where the coordinator listens.
    from datetime import timedelta

    from torch.distributed import TCPStore

    rank, world, local = int(environ["RANK"]), int(environ["WORLD_SIZE"]), int(environ["LOCAL_RANK"])
    address, port = environ["MASTER_ADDR"], int(environ["MASTER_PORT"])
    agent_store = environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    store = TCPStore(
        address,
        port,
        is_master=rank == 0 and not agent_store,
        timeout=timedelta(seconds=300),
        wait_for_workers=False,
    )
    server: socket.socket | None = None
    if rank == 0:
        host = own_address((address, port))
        listening = server = listen(host, 0)
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
    wrap: Callable[[Sequence[str]], tuple[str, ...]] | None = None,
) -> subprocess.Popen[bytes]:
    """Start this node's ranks through the fork server; they end when the returned process is stopped.

    *wrap* puts a profiler around its command.
    """
    log_dir.mkdir(parents=True, exist_ok=True)
    ranks = tuple(
        RankSettings(rank, node.world, local, node.node, node.control, node.token, op_timeout, timer)
        for rank, local in zip(node.ranks, local_ranks, strict=True)
    )
    orders = Orders(request, backend, ranks, str(log_dir), dict(environment))
    place = f"node{node.node}-{node.ranks[0]}"
    orders_path = log_dir / f"{place}.orders.json"
    orders_path.write_text(json.dumps(attrs.asdict(orders)), encoding="utf-8")
    argv = [sys.executable, "-m", "perfcollect_comm.fork_server", str(orders_path)]
    if wrap is None:
        argv.append("--watch-stdin")
    with (log_dir / f"{place}.log").open("ab") as log:
        return subprocess.Popen(
            wrap(argv) if wrap is not None else argv,
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=subprocess.STDOUT,
            env={**os.environ, "PYTHONSAFEPATH": "1", "OMP_NUM_THREADS": "1", **_scrubbed()},
            start_new_session=True,
        )


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
        # The session is the server's own: ranks and a profiler around them end with it.
        os.killpg(process.pid, signal.SIGKILL)
        return process.wait()
