"""What the ``comm`` commands say, as lines and as objects for JSON."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path

import attrs

from perfcollect_core.cli.output import format_table

from .destination import Destination
from .plan import CommPlan
from .run_directory import RunDirectory
from .sweep import SweepResult
from .tables import CommRow

__all__ = ["plan_lines", "plan_object", "result_lines", "result_object"]


def plan_object(plan: CommPlan) -> dict[str, object]:
    """Return *plan* as plain data."""
    predicted = [c.predicted_us for c in plan.configs if not math.isnan(c.predicted_us)]
    return {
        "world": plan.world,
        "grid": plan.grid.shape,
        "tiers": [link.name for link in plan.links],
        "digest": plan.digest(),
        "rank_bytes": plan.rank_bytes(),
        "predicted_us": sum(predicted) if predicted else None,
        "groups": plan.groups(),
        "configs": [
            {
                "key": c.key,
                "ranks": c.groups[0],
                "groups": len(c.groups),
                "predicted_us": None if math.isnan(c.predicted_us) else c.predicted_us,
            }
            for c in plan.configs
        ],
        "uncovered": [attrs.asdict(item) for item in plan.uncovered],
        "notes": plan.notes,
    }


def plan_lines(plan: CommPlan) -> list[str]:
    """Describe *plan* for people: a line per collective, group size and tier."""
    series: dict[tuple[object, ...], list[int]] = {}
    for config in plan.configs:
        key = (
            config.op,
            config.n,
            f"{config.tier} {plan.links[config.tier].name}",
            config.layout,
            len(config.groups),
        )
        series.setdefault((*key, _ranks_text(config.groups[0])), []).append(config.size.message_bytes)
    rows = [[*key, len(sizes), f"{min(sizes)}..{max(sizes)}"] for key, sizes in series.items()]
    header = ["collective", "n", "tier", "layout", "at once", "ranks", "sizes", "bytes"]
    lines = [
        f"world {plan.world}, grid {' '.join(map(str, plan.grid.shape))}: {len(plan.configs)} configurations, "
        f"{len(plan.groups())} groups, up to {plan.rank_bytes() / 2**20:.1f} MiB of buffers a rank"
    ]
    predicted = [c.predicted_us for c in plan.configs if not math.isnan(c.predicted_us)]
    if predicted:
        lines.append(f"one call of each is predicted to take {sum(predicted) / 1e3:.2f} ms")
    if rows:
        lines.append(format_table(header, rows))
    lines.extend(plan.notes)
    lines.extend(f"not covered: {item.what}: {item.why}" for item in plan.uncovered)
    return lines


def _ranks_text(ranks: tuple[int, ...]) -> str:
    if len(ranks) <= 4:
        return ",".join(map(str, ranks))
    return f"{ranks[0]},{ranks[1]},..,{ranks[-1]}"


def result_object(
    plan: CommPlan, result: SweepResult, directory: RunDirectory, written: Mapping[Path, tuple[CommRow, ...]]
) -> dict[str, object]:
    """Return the end of a run as plain data."""
    return {
        "run_dir": str(directory.path),
        "exit_code": result.exit_code,
        "measured": sum(o.state == "measured" for o in result.outcomes),
        "failed": [
            {"key": o.config.key, "class": o.failure, "reason": o.reason}
            for o in result.outcomes
            if o.state == "failed"
        ],
        "done_before": result.done_before,
        "remaining": result.remaining,
        "uncovered": [attrs.asdict(item) for item in plan.uncovered],
        "ended": result.ended,
        "tables": {str(path): len(rows) for path, rows in written.items()},
    }


def result_lines(
    plan: CommPlan,
    result: SweepResult,
    directory: RunDirectory,
    destination: Destination,
    written: Mapping[Path, tuple[CommRow, ...]],
) -> list[str]:
    """Describe the end of a run; the last line holds the counts."""
    lines = [f"failed {o.config.key}: {o.reason}" for o in result.outcomes if o.state == "failed"]
    lines.extend(f"wrote {len(rows)} rows to {path}" for path, rows in written.items())
    if result.ended and not result.outcomes:
        lines.append(result.ended)
    if result.remaining:
        lines.append(
            f"go on with: perfcollect comm run --resume --run-dir {directory.path} and the same options"
        )
    measured = sum(o.state == "measured" for o in result.outcomes)
    failed = sum(o.state == "failed" for o in result.outcomes)
    lines.append(
        f"{measured} measured, {failed} failed, {result.done_before} done before, {result.remaining} not run, "
        f"{len(plan.uncovered)} not covered; {destination}"
    )
    return lines
