"""Clocks, throttling and power of a GPU, read through nvidia-ml-py where it is installed."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Callable
from typing import TypeVar

import attrs

__all__ = ["THROTTLE_REASONS", "DeviceHealth", "open_health"]

_T = TypeVar("_T")

#: Bits of NVML's clock event reasons that mean a slower kernel; idling and application clocks do not.
THROTTLE_REASONS = {
    0x04: "held down by its power cap",
    0x08: "slowed down by hardware",
    0x20: "held down by temperature (software)",
    0x40: "slowed down by temperature (hardware)",
    0x80: "slowed down by the power brake",
}


@attrs.frozen(eq=False)
class DeviceHealth:
    """One GPU's NVML handle; whatever a driver does not offer reads as not known."""

    _nvml: object
    _handle: object

    def _ask(self, function: str, *arguments: object) -> int | None:
        # NVML raises NVMLError_NotSupported and relatives for what a board lacks.
        with contextlib.suppress(Exception):
            return int(getattr(self._nvml, function)(self._handle, *arguments))
        return None

    @property
    def _sm(self) -> object:
        return getattr(self._nvml, "NVML_CLOCK_SM", 1)

    def nominal_mhz(self) -> int | None:
        """Return the clock applications are set to run at, else the highest one."""
        return self._ask("nvmlDeviceGetApplicationsClock", self._sm) or self._ask(
            "nvmlDeviceGetMaxClockInfo", self._sm
        )

    def current_mhz(self) -> int | None:
        """Return the clock of the multiprocessors right now."""
        return self._ask("nvmlDeviceGetClockInfo", self._sm)

    def share_of_nominal(self) -> float | None:
        """Return the current clock over the nominal one, ``None`` where either cannot be read."""
        current, nominal = self.current_mhz(), self.nominal_mhz()
        return current / nominal if current and nominal else None

    def throttle_reasons(self) -> tuple[str, ...]:
        """Return in words why the GPU runs below its clock; empty where it does not."""
        bits = self._ask("nvmlDeviceGetCurrentClocksEventReasons")
        if bits is None:
            bits = self._ask("nvmlDeviceGetCurrentClocksThrottleReasons") or 0
        return tuple(text for bit, text in THROTTLE_REASONS.items() if bits & bit)

    def facts(self) -> dict[str, str]:
        """Return what is worth keeping beside the numbers."""
        power = self._ask("nvmlDeviceGetEnforcedPowerLimit")
        found = {
            "nominal_clock_mhz": self.nominal_mhz(),
            "clock_mhz": self.current_mhz(),
            "power_limit_w": None if power is None else power // 1000,
            "temperature_c": self._ask("nvmlDeviceGetTemperature", 0),
            "persistence_mode": self._ask("nvmlDeviceGetPersistenceMode"),
        }
        facts = {name: str(value) for name, value in found.items() if value is not None}
        with contextlib.suppress(Exception):
            version = self._nvml.nvmlSystemGetDriverVersion()  # type: ignore[attr-defined]  # a module
            facts["driver"] = version.decode() if isinstance(version, bytes) else str(version)
        return facts


def open_health(
    uuid: str, index: int, load: Callable[[str], object] = importlib.import_module
) -> DeviceHealth | None:
    """Open a GPU by *uuid* (else by *index*), ``None`` where nvidia-ml-py or the driver is not there."""
    try:
        nvml = load("pynvml")
        nvml.nvmlInit()  # type: ignore[attr-defined]  # a module
    except Exception:
        return None
    for spelling in (uuid, f"GPU-{uuid}"):
        # The index is the driver's, which CUDA_VISIBLE_DEVICES does not renumber; the uuid is the device's own.
        with contextlib.suppress(Exception):
            return DeviceHealth(nvml, nvml.nvmlDeviceGetHandleByUUID(spelling))  # type: ignore[attr-defined]
    with contextlib.suppress(Exception):
        return DeviceHealth(nvml, nvml.nvmlDeviceGetHandleByIndex(index))  # type: ignore[attr-defined]
    return None
