"""Print the plan of a run."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from perfcollect_core.environment import Probe
from perfcollect_core.runner.plan import RunPlan
from perfcollect_core.runner.table_choice import what_to_do

from .output import format_table

__all__ = ["plan_document", "plan_lines"]


def plan_document(plan: RunPlan, database: Path, probe: Probe) -> dict[str, object]:
    """Return the plan as ``--format json`` prints it."""
    return {
        "database": str(database),
        "devices": [device.name for device in probe.devices],
        "operators": [
            {
                "operator": table.operator,
                "provider": table.provider,
                "table": table.path.name,
                "rows": table.rows,
                "selected": len(table.selected),
                "cases": sum(case.table is table for case in plan.cases),
                "skips": [
                    {"reason": reason, "kind": kind, "rows": count}
                    for (reason, kind), count in _skips(plan, table).items()
                ],
                "largest_bytes": max(
                    (case.needed_bytes for case in plan.cases if case.table is table), default=0
                ),
                "predicted_seconds": round(
                    sum(case.predicted_seconds for case in plan.cases if case.table is table), 3
                ),
            }
            for table in plan.tables
        ],
        "unreadable": dict(plan.unreadable),
        "unclaimed": list(plan.unclaimed),
        "left_by_limit": plan.left,
        "measured_before": plan.done,
        "given_up_before": plan.denied,
        "predicted_seconds": round(plan.predicted_seconds, 3),
    }


def _skips(plan: RunPlan, table: object) -> Counter[tuple[str, str]]:
    return Counter((skip.reason, skip.kind) for owner, _, skip in plan.skips if owner is table)


def plan_lines(plan: RunPlan, database: Path, probe: Probe) -> list[str]:
    """Return the plan for people: a table by operator, skips with reasons, what it will take."""
    rows = []
    for table in plan.tables:
        cases = [case for case in plan.cases if case.table is table]
        skipped = sum(_skips(plan, table).values())
        largest = max((case.needed_bytes for case in cases), default=0.0) / 2**20
        seconds = sum(case.predicted_seconds for case in cases)
        rows.append(
            (
                table.operator,
                table.path.name,
                table.rows,
                len(table.selected),
                len(cases),
                skipped,
                f"{largest:.1f}",
                f"{seconds:.0f}",
            )
        )
    header = ("operator", "table", "rows", "selected", "cases", "skips", "largest MiB", "about s")
    devices = ", ".join(device.name for device in probe.devices)
    lines = [f"database {database}", f"devices {devices or 'none'}", ""]
    lines.append(format_table(header, rows, right=(2, 3, 4, 5, 6, 7)))
    for table in plan.tables:
        for (reason, kind), count in _skips(plan, table).most_common():
            lines.append(f"{table.operator}: {count} rows {kind}: {reason}")
    lines += [f"{name} cannot be read: {why}" for name, why in plan.unreadable.items()]
    lines += [what_to_do(name) for name in plan.unclaimed]
    if plan.left:
        lines.append(f"{plan.left} further cases are beyond --limit")
    if plan.done or plan.denied:
        lines.append(f"of this run already: {plan.done} measured, {plan.denied} given up")
    nothing = plan.nothing_to_do()
    if nothing is not None:
        return [*lines, nothing]
    lines.append(
        f"{len(plan.cases)} cases, about {plan.predicted_seconds:.0f} s; nothing was measured (dry run)"
    )
    return lines
