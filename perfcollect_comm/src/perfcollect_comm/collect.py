"""Collect one sweep: start this node's ranks, coordinate where that is here, journal, and say how it ended."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Mapping

import attrs

from perfcollect_core.errors import UsageError, WorkerError

from .backend import CommBackend
from .control import Hub, RankLost, RankStuck
from .launch import Node, own_address, start_ranks, stop_ranks
from .network import free_port
from .plan import CommPlan, CommRequest, Config
from .run_directory import RunDirectory
from .sweep import SweepResult, SweepSettings, run_sweep

__all__ = ["Sweep", "collect"]


@attrs.frozen(eq=False)
class Sweep:
    """Everything about one sweep that all nodes agree on."""

    request: CommRequest
    plan: CommPlan
    backend: CommBackend
    settings: SweepSettings
    join_timeout: float
    directory: RunDirectory


def collect(
    node: Node,
    sweep: Sweep,
    done: frozenset[str],
    say: Callable[[str], None],
    progress: Callable[[int, int, Config], None],
) -> SweepResult | None:
    """Run *sweep* and return its result, ``None`` on a node that does not coordinate.

    Raises:
        WorkerError: The ranks of this node could not be started, or not all ranks joined with the same plan.
    """
    address = "127.0.0.1" if node.nodes == 1 else own_address(node.control)
    local_ranks = tuple(rank - node.ranks[0] for rank in node.ranks)
    environment = dict(sweep.backend.rank_environment(local_ranks[0], address))
    ranks = start_ranks(
        node,
        sweep.request,
        sweep.backend.name,
        log_dir=sweep.directory.logs,
        op_timeout=sweep.settings.op_timeout,
        timer=sweep.settings.timer,
        environment=environment,
        local_ranks=local_ranks,
    )
    grace_seconds = 0.0
    try:
        if node.server is None:
            _follow(node, sweep, ranks)
            return None
        result = _coordinate(node, sweep, done, say, progress)
        if result.ended:
            say(result.ended)
        else:
            grace_seconds = 3.0
        return result
    finally:
        stop_ranks(ranks, grace_seconds)


def _follow(node: Node, sweep: Sweep, ranks: subprocess.Popen[bytes]) -> None:
    failed = ranks.wait()
    if failed:
        raise WorkerError(
            f"{failed} of {len(node.ranks)} ranks of node {node.node} ended with an error",
            hint=f"node 0 says why; logs: {sweep.directory.logs}",
        )


def _coordinate(
    node: Node,
    sweep: Sweep,
    done: frozenset[str],
    say: Callable[[str], None],
    progress: Callable[[int, int, Config], None],
) -> SweepResult:
    assert node.server is not None
    per_node = node.world // node.nodes
    hub = Hub(node.server, node.world, node.token, say)
    try:
        hub.roll_call(sweep.join_timeout, lambda rank: f"node {rank // per_node} local {rank % per_node}")
        strangers = sorted(m.rank for m in hub.members.values() if m.digest != sweep.plan.digest())
        if strangers:
            raise UsageError(
                f"ranks {', '.join(map(str, strangers))} made another plan than the coordinator",
                hint="start every node with the same options and the same perfcollect version",
            )
        environments = _connect(hub, node, sweep)
        if isinstance(environments, SweepResult):
            return environments
        sweep.directory.begin(_header(sweep, hub, environments))
        return run_sweep(hub, sweep.plan, sweep.settings, done, sweep.directory.record, progress)
    finally:
        hub.close()


def _connect(hub: Hub, node: Node, sweep: Sweep) -> Mapping[int, Mapping[str, object]] | SweepResult:
    """Have every rank open the process groups; a rank that cannot ends the sweep before its first configuration."""
    everyone = frozenset(hub.members)
    host = node.control[0]
    hub.send(everyone, {"do": "connect", "address": host, "port": free_port(host)})
    try:
        return hub.gather(
            everyone,
            "connected",
            sweep.join_timeout + sweep.settings.op_timeout,
            lambda: "creating the groups",
        )
    except (RankLost, RankStuck) as error:
        return SweepResult(
            remaining=len(sweep.plan.configs), ended=str(error), hung=isinstance(error, RankStuck)
        )


def _header(sweep: Sweep, hub: Hub, environments: Mapping[int, Mapping[str, object]]) -> dict[str, object]:
    return {
        "backend": sweep.backend.name,
        "library": sweep.backend.library,
        "digest": sweep.plan.digest(),
        "world": sweep.plan.world,
        "grid": sweep.plan.grid.shape,
        "timer": sweep.settings.timer,
        "settings": attrs.asdict(sweep.settings),
        "request": attrs.asdict(sweep.request),
        "ranks": {rank: {"host": m.host, "pid": m.pid, "node": m.node} for rank, m in hub.members.items()},
        "environment": environments[0].get("environment", {}),
        "time": time.time(),
    }
