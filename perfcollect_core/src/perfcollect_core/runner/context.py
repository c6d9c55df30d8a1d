"""Where a run measures and writes: devices, database, and what its sessions are told."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import cast

import attrs

from perfcollect_core import __version__
from perfcollect_core.discovery import plugin_index
from perfcollect_core.environment import DeviceFamily, DeviceInfo, Probe
from perfcollect_core.errors import DataError, UsageError
from perfcollect_core.loading import LoadedPlugin
from perfcollect_core.tables.identity import adopt_identity, check_identity
from perfcollect_core.tables.lock import database_lock

from .execution import ExecutorPlugin
from .options import RunOptions
from .plan import RunPlan
from .processes import machine_memory_bytes
from .protocol import PluginRef, Setup
from .run_dir import writable
from .settings import SessionSettings
from .write_back import LOCK_WAIT_SECONDS

__all__ = ["RunContext", "adopt", "check_writable", "select_devices", "session_settings"]

_MEMORY_SHARE = 0.9


@attrs.frozen(eq=False)
class RunContext:
    """Where a run measures and writes."""

    database: Path
    run_dir: Path
    family: LoadedPlugin
    devices: tuple[DeviceInfo, ...]
    versions: Mapping[str, str]
    executor: ExecutorPlugin
    write: bool = True

    @property
    def device_family(self) -> DeviceFamily:
        return cast("DeviceFamily", self.family.plugin)

    @property
    def emulated(self) -> bool:
        return Probe(self.devices).emulated


def select_devices(found: Sequence[DeviceInfo], asked: Sequence[int] | None) -> tuple[DeviceInfo, ...]:
    """Return the devices to use.

    Raises:
        UsageError: One that was asked for is not there.
    """
    if asked is None:
        return tuple(found)
    by_index = {device.index: device for device in found}
    absent = [index for index in asked if index not in by_index]
    if absent:
        there = ", ".join(map(str, sorted(by_index)))
        raise UsageError(f"--devices {absent[0]}: there is no such device, expected some of {there}")
    return tuple(by_index[index] for index in dict.fromkeys(asked))


def check_writable(database: Path, run_dir: Path | None) -> bool:
    """Tell whether the tables can be written; a place that cannot is refused unless a run directory was named.

    Raises:
        DataError: The database cannot be written, and nothing says where else to keep the measurements.
    """
    why = writable(database)
    if why is None:
        return True
    if run_dir is None:
        raise DataError(
            f"database {database} cannot be written: {why}",
            hint="give yourself write access, or keep the measurements elsewhere with --run-dir DIR "
            "and write them back later with perfcollect db apply DIR",
        )
    return False


def adopt(context: RunContext) -> None:
    """Say in the database what it holds from now on, before another family's run can begin on it."""
    with database_lock(context.database, wait_seconds=LOCK_WAIT_SECONDS):
        family, device = context.device_family.name, context.devices[0].name
        check_identity(context.database, family=family, device=device, emulated=context.emulated)
        adopt_identity(
            context.database,
            family=family,
            device=device,
            versions=context.versions,
            emulated=context.emulated,
        )


def session_settings(
    plan: RunPlan, options: RunOptions, context: RunContext, wrappers: Sequence[LoadedPlugin]
) -> SessionSettings:
    """Return what every session of a run shares; workers get plugins by where they are imported from."""
    family = context.device_family
    case_plan = options.plan(family.default_plan())
    provider = plugin_index().require("families", context.family.name)
    refs = []
    for wrapper in wrappers:
        found = plugin_index().require("wrappers", wrapper.name)
        refs.append(PluginRef(wrapper.name, found.value, wrapper.provider))
    setup = Setup(
        family=PluginRef(context.family.name, provider.value, context.family.provider),
        device=0,
        operators={table.operator: table.ref for table in plan.tables},
        wrappers=tuple(refs),
        path=tuple(os.path.abspath(entry) for entry in sys.path),  # noqa: PTH100  # "" means the working directory
        memory_bytes=int(_MEMORY_SHARE * machine_memory_bytes() / max(1, len(context.devices))),
        run_dir=str(context.run_dir),
    )
    return SessionSettings(
        family=family,
        setup=setup,
        plan=case_plan,
        statistic=options.statistic,
        provenance=f"{family.name}, perfcollect {__version__}, {options.statistic}",
        run_dir=context.run_dir,
        check=options.check,
        check_max_flop=options.check_max_flop,
        case_timeout=options.case_timeout,
        max_seconds=options.max_seconds,
        fail_fast=options.fail_fast,
        exit_seconds=getattr(family, "exit_seconds", 5.0),
        keep_profiles=options.keep_profiles,
    )
