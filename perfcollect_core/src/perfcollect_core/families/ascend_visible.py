"""What a list in ``ASCEND_RT_VISIBLE_DEVICES`` really makes visible, and what is wrong with it.

The runtime reads the list up to the first id it dislikes and says nothing, so that a wrong list looks like a machine
with fewer devices or none.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import attrs

__all__ = ["VARIABLE", "Finding", "VisibleDevices", "classify_visible_devices"]

VARIABLE = "ASCEND_RT_VISIBLE_DEVICES"

Finding = Literal[
    "ok",
    "dropped",
    "empty",
    "logical_vs_physical",
    "no_device",
    "not_a_number",
    "order",
    "out_of_range",
    "repeated",
]


@attrs.frozen
class VisibleDevices:
    """What was found: ``say`` is one sentence (empty for ``ok``), ``ids`` the physical ids in logical order."""

    finding: Finding
    say: str = ""
    ids: tuple[int, ...] = ()


def classify_visible_devices(
    text: str | None,
    physical: Sequence[int],
    runtime_sees: int | None = None,
    requested_device: int | None = None,
) -> VisibleDevices:
    """Say what is wrong with a visible-device list.

    Args:
        text: Value of the variable, ``None`` where it is not set.
        physical: Ids of the devices in this machine or container.
        runtime_sees: Devices the runtime counted under this list, ``None`` where it was not asked.
        requested_device: Device a person named, to catch a physical id given for a logical one.
    """
    if not physical:
        return VisibleDevices("no_device", "there is no NPU in this machine or container")
    if text is None:
        ids = tuple(physical)
        return _requested(ids, requested_device, listed=False)
    words = [word.strip() for word in text.split(",")]
    if not any(words):
        return VisibleDevices(
            "empty", f"{VARIABLE} is set but empty, which hides every device: unset it or list ids"
        )
    for word in words:
        if not word.isascii() or not word.isdigit():
            return VisibleDevices("not_a_number", f"{VARIABLE} has {word!r}, expected a device number")
    ids = tuple(map(int, words))
    repeated = next((i for i in ids if ids.count(i) > 1), None)
    if repeated is not None:
        return VisibleDevices(
            "repeated", f"{VARIABLE} names device {repeated} more than once", tuple(sorted({*ids}))
        )
    unknown = [i for i in ids if i not in physical]
    if unknown:
        return VisibleDevices(
            "out_of_range",
            f"{VARIABLE} names device {unknown[0]}, but only {_ranges(physical)} exist in this machine or container",
        )
    if list(ids) != sorted(ids):
        return VisibleDevices(
            "order",
            f"{VARIABLE} lists {text.strip()}, but ids must ascend: the runtime takes such a list for no device",
        )
    if runtime_sees is not None and runtime_sees < len(ids):
        # Ids are indices into the slots in use: with holes in the numbering the last ones point past the end.
        beyond = [i for i in ids if i >= len(physical)]
        which = f": id {beyond[0]} is no index, the numbering has holes" if beyond else ""
        return VisibleDevices(
            "dropped",
            f"{VARIABLE} asks for {len(ids)} devices and the runtime sees {runtime_sees}{which}",
            ids[:runtime_sees],
        )
    return _requested(ids, requested_device, listed=True)


def _requested(ids: tuple[int, ...], requested: int | None, *, listed: bool) -> VisibleDevices:
    if requested is None or requested < len(ids):
        return VisibleDevices("ok", "", ids)
    if listed and requested in ids:
        logical = ids.index(requested)
        return VisibleDevices(
            "logical_vs_physical",
            f"device {requested} is logical device {logical} under {VARIABLE}={','.join(map(str, ids))}",
            ids,
        )
    return VisibleDevices(
        "out_of_range",
        f"device {requested} was asked for, but only {_ranges(range(len(ids)))} are visible",
        ids,
    )


def _ranges(ids: Sequence[int]) -> str:
    low, high = min(ids), max(ids)
    if len(ids) == high - low + 1:
        return f"{low}" if low == high else f"{low}..{high}"
    return ", ".join(map(str, sorted(ids)))
