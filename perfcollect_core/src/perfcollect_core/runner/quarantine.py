"""Leave alone devices that do not start, or that fail what others measure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import attrs

from .slots import PROBES, Slot

__all__ = ["Quarantine"]


@attrs.define(eq=False)
class Quarantine:
    """Evidence against devices; ``notes`` say which were left alone and why."""

    notes: list[str] = attrs.field(factory=list)
    #: Cases in a row that failed on a device and were measured on another.
    _strikes: Counter[int] = attrs.field(factory=Counter)

    def start_failed(self, slot: Slot, complaint: str) -> None:
        """A worker ended before it had served a case; three in a row are enough."""
        slot.start_failed(complaint)
        if slot.state == "quarantined":
            self.notes.append(
                f"device {slot.device} was left alone after {PROBES} failed starts: {complaint}"
            )

    def measured(self, device: int, failed_on: Iterable[int]) -> None:
        """A case was measured on *device* after it failed on others."""
        self._strikes.update(failed_on)
        del self._strikes[device]

    def is_sick(self, slot: Slot) -> bool:
        """Tell whether enough cases failed on the device that others measured."""
        return self._strikes[slot.device] >= PROBES and slot.state in ("ready", "empty")

    def close(self, slot: Slot) -> None:
        """Leave a device alone whose worker has been let go."""
        slot.state = "quarantined"
        self.notes.append(
            f"device {slot.device} was left alone after {PROBES} cases failed on it that other devices measured"
        )
