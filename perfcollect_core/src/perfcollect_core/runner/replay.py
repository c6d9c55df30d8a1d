"""Replay operators one after the other and say which ones failed; nothing is measured and no table is written."""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Literal

import attrs

from perfcollect_core.environment import DeviceFamily
from perfcollect_core.tables.atomic import replace_file

from .failures import describe_exit
from .plan import PlannedCase, PlannedTable
from .processes import end_tree
from .protocol import ENV_TOKEN, PluginRef
from .replay_worker import ReplayedCase, ReplayOrders, replay_cases

__all__ = ["FailedReplay", "OperatorReplay", "ReplayStatus", "replay_operators", "write_status"]

ExecutionMode = Literal["subprocess", "inprocess"]


@attrs.frozen(eq=False)
class OperatorReplay:
    """The cases of one operator that one launch replays: equal ranks."""

    table: PlannedTable
    cases: tuple[PlannedCase, ...]
    ranks: int

    @property
    def operator(self) -> str:
        return self.table.operator


@attrs.frozen
class FailedReplay:
    """One failure: the operator, the row's input shapes where a row is to blame, and why."""

    op: str
    reason: str
    row: str = ""


@attrs.define
class ReplayStatus:
    """What ``replay_status.json`` holds: operators that replayed, failures, and what was skipped with the reason."""

    success: list[str] = attrs.field(factory=list)
    failed: list[FailedReplay] = attrs.field(factory=list)
    skipped: list[FailedReplay] = attrs.field(factory=list)

    def to_json(self) -> dict[str, object]:
        """Return the status as JSON values."""
        return {
            "success": self.success,
            "failed": [attrs.asdict(entry) for entry in self.failed],
            "skipped": [attrs.asdict(entry) for entry in self.skipped],
        }


def write_status(status: ReplayStatus, run_dir: Path) -> Path:
    """Write ``replay_status.json`` to *run_dir* and return its path."""
    path = run_dir / "replay_status.json"
    replace_file(path, (json.dumps(status.to_json(), indent=2) + "\n").encode("utf-8"))
    return path


def replay_operators(
    replays: Iterable[OperatorReplay],
    family: tuple[PluginRef, DeviceFamily],
    wrappers: Sequence[PluginRef],
    *,
    mode: ExecutionMode,
    repeat: int,
    device: int,
    run_dir: Path,
    continue_on_error: bool,
    timeout_seconds: float,
    announce: Callable[[str], None],
    path: Sequence[str] = (),
) -> ReplayStatus:
    """Replay each operator; without *continue_on_error* the first failing operator is the last."""
    status = ReplayStatus()
    for replay in replays:
        announce(f"{replay.operator}: {len(replay.cases)} rows, {repeat} launches each")
        orders = ReplayOrders(
            operator=replay.table.ref,
            family=family[0],
            wrappers=tuple(wrappers),
            device=device,
            repeat=repeat,
            cases=tuple(planned.case for planned in replay.cases),
            path=tuple(path),
        )
        if mode == "inprocess":
            failures = [_failure(replay, done) for done in replay_cases(orders) if done.failure]
        else:
            failures = _in_child(replay, orders, family[1], run_dir, timeout_seconds)
        status.failed += failures
        if not failures:
            status.success.append(replay.operator)
        elif not continue_on_error:
            break
    return status


def _failure(replay: OperatorReplay, done: ReplayedCase) -> FailedReplay:
    row = replay.cases[done.index].row.get("Input Shapes") if done.index < len(replay.cases) else ""
    return FailedReplay(replay.operator, f"{done.failure}: {done.reason}", row)


def _in_child(
    replay: OperatorReplay, orders: ReplayOrders, family: DeviceFamily, run_dir: Path, timeout_seconds: float
) -> list[FailedReplay]:
    stem = f"{replay.operator}_{replay.ranks}"
    orders_path = run_dir / f"{stem}.orders.json"
    orders_path.write_text(json.dumps(orders.to_json()), encoding="utf-8")
    argv = [sys.executable, "-m", "perfcollect_core.runner.replay_worker", str(orders_path)]
    # A family that measures under a profiler starts the processes of a replay without it.
    start = getattr(family, "launch_unprofiled", family.launch)
    launch = start(argv, replay.ranks, orders.device, run_dir)
    log = run_dir / "logs" / f"{stem}.log"
    token = secrets.token_hex(16)
    with log.open("wb") as stream:
        child = subprocess.Popen(
            launch.argv,
            env=_environment({**launch.env, ENV_TOKEN: token}),
            stdout=stream,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            code: int | None = child.wait(timeout_seconds * max(1, len(replay.cases)))
        except subprocess.TimeoutExpired:
            code = None
        finally:
            end_tree(token, child.pid)
            child.wait()
    return _read_results(replay, orders_path, code, log)


def _environment(changes: Mapping[str, str | None]) -> dict[str, str]:
    merged: dict[str, str | None] = {**os.environ, **changes}
    return {name: value for name, value in merged.items() if value is not None}


def _read_results(
    replay: OperatorReplay, orders_path: Path, code: int | None, log: Path
) -> list[FailedReplay]:
    failures: dict[int, FailedReplay] = {}
    finished = []
    for rank in range(replay.ranks):
        results = orders_path.with_name(f"{orders_path.name}.{rank}.results")
        lines = results.read_text(encoding="utf-8").splitlines() if results.exists() else []
        finished.append(len(lines))
        for line in lines:
            done = ReplayedCase(*json.loads(line))
            if done.failure:
                failures.setdefault(done.index, _failure(replay, done))
    reached = min(finished)
    if reached < len(replay.cases) and reached not in failures:
        how = "did not end in time" if code is None else describe_exit(code)
        reason = f"worker_crashed: the replay {how}, see {log}"
        failures[reached] = FailedReplay(
            replay.operator, reason, replay.cases[reached].row.get("Input Shapes")
        )
    return [failures[index] for index in sorted(failures)]
