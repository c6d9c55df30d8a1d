"""Columns that operators add to a parsed table, as their plugins declare them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

import attrs

from perfcollect_core.errors import PerfcollectError
from perfcollect_core.specs import ProfileColumn
from perfcollect_core.tensors import split_slots

__all__ = ["ProfileColumns", "load_profile_columns"]

#: Kernel types that are known to declare profile columns; a line says so where their plugin is not installed.
_EXPECTED = frozenset({"FusedInferAttentionScore"})


@attrs.frozen
class ProfileColumns:
    """The profile columns of one operator, and in words why there are none where some would be expected."""

    columns: tuple[ProfileColumn, ...] = ()
    note: str = ""

    def cells(self, row: Mapping[str, str], sources: tuple[str, ...]) -> dict[str, str]:
        """Return what the columns hold for *row*, seen in *sources*."""
        slots = split_slots(row.get("Input Shapes"))
        filled = {}
        for column in self.columns:
            if column.slot is not None:
                filled[column.name] = slots[column.slot] if column.slot < len(slots) else ""
            elif column.source:
                filled[column.name] = ";".join(name for name in sources if name)
            else:
                filled[column.name] = column.value
        return filled


@cache
def load_profile_columns(operator: str) -> ProfileColumns:
    """Load what *operator*'s plugin declares; none where no plugin provides it, or it cannot be loaded."""
    from perfcollect_core.discovery import plugin_index
    from perfcollect_core.host import read_spec
    from perfcollect_core.loading import load_operator

    if not plugin_index().providers("operators", operator):
        if operator in _EXPECTED:
            return ProfileColumns(
                note=f"{operator}.csv has the standard columns only: no installed distribution provides {operator}"
            )
        return ProfileColumns()
    try:
        spec = read_spec(load_operator(operator))
    except PerfcollectError as error:
        return ProfileColumns(note=f"{operator}.csv has the standard columns only: {error}")
    return ProfileColumns(spec.profile_columns)
