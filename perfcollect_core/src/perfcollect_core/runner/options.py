"""What a run is asked to do, apart from where: the part of the command line that a resumed run takes up again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import attrs

from perfcollect_core.cases import Param
from perfcollect_core.measurements import Plan

__all__ = ["RunOptions", "decode_options", "encode_options"]


@attrs.frozen
class RunOptions:
    """The options of ``perfcollect run`` under their names there; ``None`` leaves the choice to the family.

    ``tables`` maps a file name to the operator that replays it (``--table FILE=OPERATOR``).
    """

    operators: tuple[str, ...] = ()
    tables: Mapping[str, str] = attrs.field(factory=dict)
    update_mode: Literal["all", "missing-only"] = "all"
    rows: str | None = None
    limit: int | None = None
    max_seconds: float | None = None
    repeat: int | None = None
    warmup: int | None = None
    passes: int | None = None
    precision: float | None = None
    max_case_seconds: float | None = None
    case_timeout: float | None = None
    statistic: str = "median"
    cache: Literal["warm", "cold"] = "warm"
    check: bool = False
    check_max_flop: float = 20e9
    devices: tuple[int, ...] | None = None
    wrappers: tuple[str, ...] = ()
    fail_fast: bool = False
    prune: bool = False
    retry_failed: bool = False
    keep_profiles: bool = False
    plugin_options: Mapping[str, Param] = attrs.field(factory=dict)

    def plan(self, default: Plan) -> Plan:
        """Return the plan of every case: the family's, with what was asked for instead."""
        asked: dict[str, Any] = {
            "repeat": self.repeat,
            "warmup": self.warmup,
            "passes": self.passes,
            "precision": self.precision,
            "max_seconds": self.max_case_seconds,
        }
        chosen = {name: value for name, value in asked.items() if value is not None}
        return attrs.evolve(default, cache=self.cache, **chosen)

    def repeat_rule(self, plan: Plan) -> str:
        """Say in words how often a case is launched."""
        passes = f", {plan.passes} passes" if plan.passes > 1 else ""
        if plan.repeat is not None:
            return f"{plan.repeat} launches after {plan.warmup} warm-up launches{passes}"
        return (
            f"auto: until the 95 % interval of the median is within {plan.precision:.3g} of it, "
            f"at most {plan.max_seconds:g} s a case{passes}"
        )


def encode_options(options: RunOptions) -> dict[str, Any]:
    """Write options as JSON values."""
    return attrs.asdict(options)


def decode_options(value: Mapping[str, Any]) -> RunOptions:
    """Read options back; names of another version are ignored."""
    known = {field.name for field in attrs.fields(RunOptions)}
    fields: dict[str, Any] = {
        name: tuple(entry) if isinstance(entry, list) else entry
        for name, entry in value.items()
        if name in known
    }
    return RunOptions(**fields)
