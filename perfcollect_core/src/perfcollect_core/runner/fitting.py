"""Hold a plan against the machine: what operators need, what devices can hold (parent side)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import attrs

from perfcollect_core.cases import Skip
from perfcollect_core.environment import DeviceInfo, Probe
from perfcollect_core.errors import MissingEnvironmentError

from .needs import missing_needs
from .plan import RunPlan

__all__ = ["check_needs", "fit_devices"]


def fit_devices(plan: RunPlan, devices: Sequence[DeviceInfo], max_ranks: int) -> RunPlan:
    """Move the cases that no device here can hold to the skips: too little memory, too few ranks."""
    memory = max((device.memory_bytes for device in devices), default=0)
    kept, skips = [], list(plan.skips)
    for planned in plan.cases:
        if memory and planned.needed_bytes > memory:
            reason = (
                f"needs {planned.needed_bytes / 2**30:.1f} GiB for its tensors, "
                f"the largest device has {memory / 2**30:.1f} GiB"
            )
        elif planned.case.ranks > max_ranks:
            reason = f"needs {planned.case.ranks} ranks, {max_ranks} can run here"
        else:
            kept.append(planned)
            continue
        skips.append((planned.table, planned.row, Skip(reason)))
    return attrs.evolve(plan, cases=tuple(kept), skips=tuple(skips))


def check_needs(plan: RunPlan, family: str, probe: Probe, environ: Mapping[str, str] | None = None) -> None:
    """Refuse to start where an operator with selected rows lacks something outside perfcollect.

    *environ* is the environment workers will have, where it is not this process's own.

    Raises:
        MissingEnvironmentError: All that is missing, by operator, and the ``--ops`` that would run.
    """
    findings, fixes, variables = [], [], []
    able = []
    for table in plan.tables:
        if not table.selected or family not in table.spec.families:
            continue
        missing = missing_needs(table.spec.needs, family, environ)
        if not missing:
            able.append(table.operator)
            continue
        what = "; ".join(f"{m.what} ({m.looked})" for m in missing)
        findings.append(f"{table.operator} needs {what}, {len(table.selected)} rows left untouched")
        fixes += [m.fix for m in missing]
        variables += [need.name for need in table.spec.needs if need.kind == "env"]
    if not findings:
        return
    if not probe.devices:
        findings += [f"no device of family {family} here: {m.what} ({m.looked})" for m in probe.missing]
        fixes += [m.fix for m in probe.missing]
    hints = list(dict.fromkeys(fix for fix in fixes if fix))
    if able and probe.devices:
        hints.append(f"without them: --ops {' '.join(dict.fromkeys(able))}")
    elif able:
        hints.append(f"on a machine with a device, without them: --ops {' '.join(dict.fromkeys(able))}")
    raise MissingEnvironmentError(
        "; ".join(findings), hint="; ".join(hints), variables=tuple(dict.fromkeys(variables))
    )
