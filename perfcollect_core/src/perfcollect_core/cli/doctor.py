"""``perfcollect doctor``: check the plugins and the machine, with a fix for each finding."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from .arguments import complete_family
from .output import emit, format_option, note

if TYPE_CHECKING:
    from perfcollect_core.diagnosis.findings import Check, Finding

__all__ = ["doctor"]


@click.command(
    short_help="Check the plugins and the machine, with a fix for each finding.",
    epilog="Example: perfcollect doctor --family ascend",
)
@click.option(
    "--family",
    metavar="NAME",
    shell_complete=complete_family,
    help="Make what this device family lacks an error.",
)
@click.option(
    "--timeout",
    "timeout_s",
    type=click.FloatRange(min=0, min_open=True),
    default=60.0,
    show_default=True,
    metavar="S",
    help="Seconds a plugin may take to load, or a family to probe.",
)
@format_option
def doctor(family: str | None, timeout_s: float, output_format: str) -> int:
    """Check the plugins and the machine; every plugin is loaded in a process of its own.

    Exit code 1 where there is an error, else 0.
    """
    import attrs

    from perfcollect_core.diagnosis.findings import Scope

    scope = Scope(family, timeout_s)
    found = []
    for check in _checks():
        note(f"checking {check.__name__.replace('_', ' ')} ...")
        found += list(check(scope))
    errors = sum(finding.level == "error" for finding in found)
    warnings = sum(finding.level == "warning" for finding in found)
    lines = [line for finding in found for line in _lines(finding)]
    lines.append(f"{errors} errors, {warnings} warnings")
    emit([attrs.asdict(finding) for finding in found], lines, output_format)
    return 1 if errors else 0


def _checks() -> tuple[Check, ...]:
    from perfcollect_core.diagnosis import (
        ascend_stack,
        cuda_visible,
        databases,
        families,
        metadata,
        plugins,
        ports,
        torch_pair,
    )

    return (
        plugins.loadable,
        plugins.conflicts,
        metadata.shadowed,
        metadata.stale,
        torch_pair.torch_pair,
        families.families,
        families.operator_needs,
        ascend_stack.ascend_stack,
        ascend_stack.ascend_visible_devices,
        cuda_visible.cuda_visible_devices,
        ports.hccl_ports,
        databases.databases,
    )


def _lines(finding: Finding) -> list[str]:
    lines = [f"{finding.level:<7}  {finding.subject}: {finding.message}"]
    if finding.fix and finding.level != "ok":
        lines.append(f"{'':<7}  fix: {finding.fix}")
    return lines
