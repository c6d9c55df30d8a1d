"""Find the device family a command works with, and the devices it has here."""

from __future__ import annotations

from typing import cast

from perfcollect_core.environment import DeviceFamily, Missing, Probe
from perfcollect_core.errors import DeviceUnavailableError
from perfcollect_core.loading import LoadedPlugin, load_family

__all__ = ["choose_family", "device_error", "machine_family"]

#: Which family a machine has, where it has several: the first that finds a device.
_PREFERENCE = ("ascend", "cuda", "cpu")


def machine_family() -> tuple[LoadedPlugin, Probe]:
    """Return the family of this machine and what it found.

    Raises:
        DeviceUnavailableError: None of them finds a device.
    """
    missing: list[Missing] = []
    for name in _PREFERENCE:
        family = load_family(name)
        probe = cast("DeviceFamily", family.plugin).probe()
        if probe.devices:
            return family, probe
        missing += probe.missing
    raise device_error("any family", Probe(missing=tuple(missing)))


def choose_family(name: str, held: str | None) -> tuple[LoadedPlugin, Probe]:
    """Return family *name* and its probe; ``auto`` is the family a named database *held*, else this machine's.

    The probe may be empty: whoever needs a device raises ``device_error``, and says so beside what else is missing.
    There is never a fallback to another family.
    """
    if name == "auto" and held is None:
        return machine_family()
    family = load_family(held or name if name == "auto" else name)
    return family, cast("DeviceFamily", family.plugin).probe()


def device_error(family: str, probe: Probe) -> DeviceUnavailableError:
    """Return the error of a family without a device: what it lacks, where it looked, how to fix it."""
    found = "; ".join(f"{m.what} ({m.looked})" for m in probe.missing) or "nothing was found"
    fixes = "; ".join(dict.fromkeys(m.fix for m in probe.missing if m.fix))
    return DeviceUnavailableError(
        f"no device of family {family} here: {found}",
        hint=fixes or "perfcollect doctor shows the devices of every family",
    )
