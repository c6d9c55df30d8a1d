"""Collect one sweep: start this node's ranks, coordinate where that is here, journal, and say how it ended."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import attrs

from perfcollect_core.errors import UsageError, WorkerError

from .backend import CommBackend
from .control import Hub, RankLost, RankStuck
from .launch import Node, own_address, start_ranks, stop_ranks
from .network import free_port
from .plan import CommPlan, CommRequest, Config
from .profiled import fill_outcomes
from .run_directory import RunDirectory
from .sweep import SweepResult, SweepSettings, run_sweep

__all__ = ["Sweep", "collect"]

#: msprof exports for minutes once its program has ended.
_EXPORT_SECONDS = 600.0


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
    profile = _Profile(sweep) if sweep.settings.timer == "kernel" else None
    ranks = start_ranks(
        node,
        sweep.request,
        sweep.backend.name,
        log_dir=sweep.directory.logs,
        op_timeout=sweep.settings.op_timeout,
        timer=sweep.settings.timer,
        environment=environment,
        local_ranks=local_ranks,
        wrap=profile.wrap if profile else None,
    )
    grace_seconds = 0.0
    result: SweepResult | None = None
    try:
        if node.server is None:
            _follow(node, sweep, ranks)
            return None
        result = _coordinate(node, sweep, done, say, progress)
        if result.ended:
            say(result.ended)
        if profile and profile.directory:
            grace_seconds = _EXPORT_SECONDS
        elif not result.ended:
            grace_seconds = 3.0
    finally:
        stop_ranks(ranks, grace_seconds)
    if profile and profile.directory:
        profile.fill(result)
    return result


class _Profile:
    """The profile of a sweep whose durations are read after its ranks ended."""

    def __init__(self, sweep: Sweep) -> None:
        self._sweep = sweep
        self.directory: Path | None = None

    def wrap(self, argv: Sequence[str]) -> tuple[str, ...]:
        """Return the command under the backend's profiler, *argv* itself where it has none around processes."""
        wrapped = self._sweep.backend.profiled(argv, self._sweep.directory.path)
        if wrapped is None:
            return tuple(argv)
        command, self.directory = wrapped
        return command

    def fill(self, result: SweepResult) -> None:
        """Replace the launched outcomes of *result* by what the profile says, and journal it."""
        assert self.directory is not None
        launched = [outcome for outcome in result.outcomes if outcome.state == "launched"]
        filled = fill_outcomes(launched, self._sweep.backend.read_profile(self.directory))
        for outcome in filled:
            self._sweep.directory.record(outcome)
        result.outcomes = [outcome for outcome in result.outcomes if outcome.state != "launched"] + filled
        if all(outcome.state == "measured" for outcome in filled):
            shutil.rmtree(self.directory, ignore_errors=True)


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
