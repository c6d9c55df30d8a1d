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
@click.option(
    "--device-test",
    is_flag=True,
    help="Measure one small case of each operator and pack what it showed into one archive to send.",
)
@format_option
def doctor(family: str | None, timeout_s: float, device_test: bool, output_format: str) -> int:
    """Check the plugins and the machine; every plugin is loaded in a process of its own.

    Exit code 1 where there is an error, else 0.
    """
    import attrs

    if device_test:
        return _device_test(family or "auto", output_format)

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


def _device_test(family: str, output_format: str) -> int:
    """Run the device test; exit code 3 where an operator that could be tried failed."""
    import os
    import time
    from pathlib import Path

    from perfcollect_core.diagnosis.device_test import run_device_test
    from perfcollect_core.runner.choose_family import choose_family, device_error

    loaded, probe = choose_family(family, None)
    if not probe.devices:
        raise device_error(loaded.name, probe)
    additions = getattr(loaded.plugin, "worker_environment", None)
    environ = {**os.environ, **(additions()[0] if additions else {})}
    archive = Path(
        f"perfcollect_device_test_{loaded.name}_{time.strftime('%Y%m%d_%H%M%S')}.tar.gz"
    ).absolute()
    done = run_device_test(loaded.name, probe, archive, environ, note)
    lines = [f"{operator:<32}{end}" for operator, end in done.ends.items()]
    lines.append(f"{archive} holds versions, journal, logs and profiles: send this file")
    emit({"archive": str(done.archive), "ends": dict(done.ends)}, lines, output_format)
    return 3 if done.failed else 0


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
