"""Drive one sweep over its ranks: every configuration prepared, warmed, measured, reduced and journalled.

Runs in the coordinator, which holds no device and never imports torch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal

import attrs

from perfcollect_core.errors import DataError

from .control import Hub, RankLost, RankStuck
from .plan import CommPlan, Config
from .reduction import Reduced, reduce_samples

__all__ = ["ConfigOutcome", "SweepResult", "SweepSettings", "Window", "run_sweep"]


@attrs.frozen
class Window:
    """Host epoch nanoseconds between two synchronisations of a rank, the calls in it, and the rank's device."""

    begin_ns: int
    end_ns: int
    calls: int
    device: int


@attrs.frozen
class SweepSettings:
    """Limits of a sweep; seconds."""

    op_timeout: float = 60.0
    budget: float = 0.3
    min_iterations: int = 10
    max_iterations: int = 2000
    warmup_block: int = 3
    max_warmup_blocks: int = 8
    check: Literal["all", "ends", "off"] = "ends"
    timer: str = "host"


@attrs.frozen
class ConfigOutcome:
    """How one configuration ended: ``measured``, ``failed`` (with class and reason), or ``launched``.

    A launched one waits for the profile; ``windows`` says when each rank made its calls and on which device.
    """

    config: Config
    state: Literal["measured", "failed", "launched"]
    reduced: Reduced | None = None
    iterations: int = 0
    samples_us: Mapping[int, tuple[float, ...]] = attrs.field(factory=dict)
    windows: Mapping[int, Window] = attrs.field(factory=dict)
    wrong: int | None = None
    failure: str = ""
    reason: str = ""


@attrs.define
class SweepResult:
    """What a sweep came to; ``ended`` says why it stopped early, empty where it did not."""

    outcomes: list[ConfigOutcome] = attrs.field(factory=list)
    done_before: int = 0
    remaining: int = 0
    ended: str = ""
    culprits: tuple[int, ...] = ()
    hung: bool = False

    @property
    def exit_code(self) -> int:
        """Decision 9: wrong result, hang, mostly failed, some failed, work left, all measured."""
        failed = [o for o in self.outcomes if o.state == "failed"]
        if any(o.failure == "wrong_result" for o in failed):
            return 5
        if self.hung:
            return 6
        if len(failed) * 2 > len(self.outcomes):
            return 1
        if failed:
            return 3
        return 4 if self.remaining or self.ended else 0


def run_sweep(
    hub: Hub,
    plan: CommPlan,
    settings: SweepSettings,
    done: frozenset[str],
    record: Callable[[ConfigOutcome], None],
    progress: Callable[[int, int, Config], None],
) -> SweepResult:
    """Measure every configuration of *plan* whose key is not in *done*; *record* makes each outcome durable.

    A rank that dies or hangs ends the sweep, since its communicators cannot be repaired: what was measured is kept and
    the rest is left for a resume. A configuration that a rank cannot allocate is skipped by all.
    """
    todo = [config for config in plan.configs if config.key not in done]
    result = SweepResult(done_before=len(plan.configs) - len(todo))
    everyone = frozenset(hub.members)
    for position, config in enumerate(todo):
        progress(position, len(todo), config)
        try:
            outcome = _measure(hub, config, settings, checked=_is_checked(plan, config, settings))
        except (RankLost, RankStuck) as error:
            hung = isinstance(error, RankStuck)
            outcome = ConfigOutcome(
                config, "failed", failure="timeout" if hung else "worker_crashed", reason=str(error)
            )
            result.hung, result.ended = hung, str(error)
            result.culprits = error.ranks if isinstance(error, RankStuck) else (error.rank,)
        record(outcome)
        result.outcomes.append(outcome)
        if result.ended:
            result.remaining = len(todo) - position - 1
            return result
    hub.send(everyone, {"do": "stop"})
    return result


def _is_checked(plan: CommPlan, config: Config, settings: SweepSettings) -> bool:
    if settings.check != "ends":
        return settings.check == "all"
    alike = [
        c.index for c in plan.configs if (c.op, c.dtype, c.groups) == (config.op, config.dtype, config.groups)
    ]
    return config.index in (alike[0], alike[-1])


def _measure(hub: Hub, config: Config, settings: SweepSettings, *, checked: bool) -> ConfigOutcome:
    members = config.members

    def describe() -> str:
        return f"{config.op} of {config.size.message_bytes} B on {config.n} ranks (tier {config.tier})"

    def ask(message: Mapping[str, object], kind: str) -> dict[int, dict[str, object]]:
        hub.send(members, {**message, "config": config.index})
        return hub.gather(members, kind, settings.op_timeout, describe)

    ready = ask({"do": "prepare"}, "ready")
    refused = {rank: str(answer["reason"]) for rank, answer in ready.items() if answer.get("reason")}
    if refused:
        rank, reason = min(refused.items())
        return ConfigOutcome(
            config, "failed", failure="out_of_memory", reason=f"rank {rank}: {reason}; skipped by all ranks"
        )
    for rank, answer in sorted(ready.items()):
        if answer["bytes"] != config.size.rank_input_bytes:
            raise RankLost(
                rank,
                f"rank {rank} on {hub.members[rank].host} brings {answer['bytes']} B to {describe()}, "
                f"expected {config.size.rank_input_bytes} B of input",
            )
    per_call_us = 0.0
    previous: float | None = None
    for _ in range(settings.max_warmup_blocks):
        warm = ask({"do": "warm", "calls": settings.warmup_block}, "warm")
        per_call_us = max(float(str(answer["per_call_us"])) for answer in warm.values())
        if previous is not None and abs(per_call_us - previous) <= 0.1 * previous:
            break
        previous = per_call_us
    # One side decides how often, for all: ranks that each judged their own clock would not agree and hang.
    wanted = int(settings.budget * 1e6 / max(per_call_us, 0.1))
    iterations = min(max(wanted, settings.min_iterations), settings.max_iterations)
    answers = ask({"do": "measure", "calls": iterations, "check": checked}, "result")
    unseen = {rank: str(answer["reason"]) for rank, answer in answers.items() if answer.get("reason")}
    if unseen:
        rank, reason = min(unseen.items())
        return ConfigOutcome(config, "failed", failure="not_observed", reason=f"rank {rank}: {reason}")
    samples = {rank: _numbers(answer["samples_us"]) for rank, answer in answers.items()}
    wrong = sum(int(str(answer["wrong"])) for answer in answers.values()) if checked else None
    if wrong:
        culprits = [rank for rank, answer in answers.items() if int(str(answer["wrong"]))]
        return ConfigOutcome(
            config,
            "failed",
            wrong=wrong,
            failure="wrong_result",
            reason=f"{wrong} wrong elements on ranks {culprits}",
        )
    windows = {
        rank: _window(answer["window"], iterations) for rank, answer in answers.items() if "window" in answer
    }
    if windows:
        return ConfigOutcome(config, "launched", iterations=iterations, windows=windows, wrong=wrong)
    try:
        reduced = _slowest_group(config, samples)
    except DataError as error:
        return ConfigOutcome(config, "failed", failure="not_observed", reason=str(error))
    return ConfigOutcome(config, "measured", reduced, iterations, samples, wrong=wrong)


def _numbers(values: object) -> tuple[float, ...]:
    if not isinstance(values, list):
        raise DataError(f"samples {values!r}, expected a list of microseconds")
    return tuple(float(value) for value in values)


def _window(value: object, calls: int) -> Window:
    if not isinstance(value, list) or len(value) != 3:
        raise DataError(f"window {value!r}, expected begin, end and device")
    return Window(int(value[0]), int(value[1]), calls, int(value[2]))


def _slowest_group(config: Config, samples_us: Mapping[int, tuple[float, ...]]) -> Reduced:
    """Reduce each group by itself and return the slowest: what a job that waits for all tiles would see."""
    reductions = [reduce_samples({rank: samples_us[rank] for rank in group}) for group in config.groups]
    return max(reductions, key=lambda reduced: reduced.duration_us)
