"""Find durations below what the hardware can do at all, where an operator knows its cost.

The bounds are generous on purpose: a finding is a wrong number and not a fast kernel.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import attrs

from perfcollect_core.cases import Case, Cost
from perfcollect_core.errors import DataError, PerfcollectError
from perfcollect_core.host import OperatorHost, compose
from perfcollect_core.tables.checks import Check, Finding
from perfcollect_core.tables.columns import column_meanings, duration_us
from perfcollect_core.tables.identity import Identity, generation, read_identity
from perfcollect_core.tables.read import Table
from perfcollect_core.tensors import DTYPE_BYTES

__all__ = ["Peaks", "peaks_of", "roofline_check"]

#: Dense 16-bit operations per second in the name of an Ascend device (``..._376T_...``), in units of 10^12.
_TERA = re.compile(r"_([0-9]+)T_")


@attrs.frozen
class Peaks:
    """Upper bounds of a device: 16-bit operations and bytes per second, and bytes its caches may hold."""

    flops: float
    bandwidth: float
    cache_bytes: float = 256 * 2**20

    def floor_us(self, cost: Cost, case: Case) -> float:
        """Return the shortest time *case* can take, in microseconds."""
        smallest = min((DTYPE_BYTES.get(t.dtype, 1) for t in case.tensors.values()), default=2)
        rate = self.flops * max(1.0, 2 / smallest)
        from_memory = max(0.0, cost.nbytes - self.cache_bytes)
        return max(cost.flops / rate, from_memory / self.bandwidth) * 1e6


def peaks_of(identity: Identity | None) -> Peaks | None:
    """Return the bounds of the device a database is for; ``None`` where none are known (CPUs, CUDA devices)."""
    if identity is None or identity.family != "ascend" or identity.emulated:
        return None
    named = _TERA.search(identity.device)
    # An A3 device is two dies, each with the memory of an A2; without a name the fastest is assumed.
    tera = int(named[1]) if named else 752
    return Peaks(tera * 1e12, 2e12 if generation(identity.device) == "A2" else 4e12)


def roofline_check(database: Path) -> Check:
    """Return a check for the tables of *database*; it finds nothing where device or cost is not known."""
    try:
        identity = read_identity(database)
    except DataError:
        identity = None
    peaks = peaks_of(identity)

    def check(table: Table) -> Iterator[Finding]:
        if peaks is None or identity is None:
            return
        operator = _host(table.operator, identity.family)
        if operator is None:
            return
        spec = operator.spec()
        columns = [column for column in column_meanings().duration if column in table.header]
        for row, line in zip(table.rows, table.lines, strict=True):
            durations = {column: duration_us(row.cells.get(column)) for column in columns}
            if not any(durations.values()):
                continue
            try:
                case = operator.make_case(spec, row)
                if not isinstance(case, Case) or case.assumptions:
                    # What a row does not record may be less than what was assumed.
                    continue
                cost = operator.estimate_cost(case)
            except PerfcollectError:
                continue
            floor = peaks.floor_us(cost, case)
            for column, value in durations.items():
                if value is not None and value < floor:
                    yield Finding(
                        table.path.name,
                        "roofline",
                        f"{column!r} is {value:g} us, below the {floor:.3f} us that {cost.flops:.3g} operations and "
                        f"{cost.nbytes:.3g} bytes need at least",
                        line,
                    )

    return check


def _host(operator: str, family: str) -> OperatorHost | None:
    """Return the composed hooks of *operator* where its plugin itself knows the cost."""
    from perfcollect_core.discovery import plugin_index
    from perfcollect_core.loading import load_family, load_operator

    if not plugin_index().providers("operators", operator):
        return None
    try:
        loaded = load_operator(operator)
        if not hasattr(loaded.plugin, "perfcollect_estimate_cost"):
            return None
        return compose(loaded, load_family(family))
    except PerfcollectError:
        return None
