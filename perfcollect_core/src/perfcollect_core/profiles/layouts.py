"""Names of the columns in the two files an Ascend profiler leaves: ``kernel_details`` and ``op_summary``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import attrs

from perfcollect_core.tensors import SIGNATURE_COLUMNS

__all__ = [
    "CORE",
    "COUNTERS",
    "DEVICE",
    "DURATION",
    "GROUP_COLUMNS",
    "KERNEL_DETAILS",
    "LAYOUTS",
    "OP_SUMMARY",
    "REQUIRED",
    "START",
    "STATE",
    "STEP",
    "STREAM",
    "TASK",
    "TYPE",
    "Layout",
]

TYPE, STATE, CORE = "Type", "OP State", "Accelerator Core"
DURATION, START = "Duration(us)", "Start Time(us)"
STEP, DEVICE, STREAM, TASK = "Step Id", "Device_id", "Stream ID", "Task ID"

#: What a row is grouped by as text, before keys are normalised.
GROUP_COLUMNS = (TYPE, STATE, CORE, *SIGNATURE_COLUMNS)

REQUIRED = (*GROUP_COLUMNS, DURATION)

#: Hardware counters of the standard set, in the order in which a new table has them.
COUNTERS = (
    "aicore_time(us)",
    "aic_total_cycles",
    *(
        f"aic_{unit}_{what}"
        for unit in ("mac", "scalar", "mte1", "mte2", "fixpipe")
        for what in ("time(us)", "ratio")
    ),
    "aic_icache_miss_rate",
    "aiv_time(us)",
    "aiv_total_cycles",
    *(f"aiv_{unit}_{what}" for unit in ("vec", "scalar", "mte2", "mte3") for what in ("time(us)", "ratio")),
    "aiv_icache_miss_rate",
    "cube_utilization(%)",
)

#: Columns that describe a call and are no counters.
_DESCRIPTIVE = frozenset(
    (
        *REQUIRED,
        *(START, STEP, DEVICE, STREAM, TASK),
        *("Model ID", "Name", "Wait Time(us)", "Block Dim", "Mix Block Dim", "HF32 Eligible", "Context ID"),
    )
)


@attrs.frozen
class Layout:
    """How one kind of file spells the names this package uses (``renamed``: its name to ours)."""

    name: str
    renamed: Mapping[str, str]

    def canonical(self, header: Iterable[str]) -> tuple[str, ...]:
        """Return *header* in our spelling."""
        return tuple(self.renamed.get(name, name) for name in header)

    def spelling(self, column: str) -> str:
        """Return how this layout spells *column*."""
        return next((theirs for theirs, ours in self.renamed.items() if ours == column), column)


_NEWER = {"Block Num": "Block Dim", "Mix Block Num": "Mix Block Dim"}

KERNEL_DETAILS = Layout("kernel_details", _NEWER)
OP_SUMMARY = Layout(
    "op_summary",
    {
        "OP Type": TYPE,
        "Task Type": CORE,
        "Task Duration(us)": DURATION,
        "Task Start Time(us)": START,
        "Task Wait Time(us)": "Wait Time(us)",
        "Op Name": "Name",
        **_NEWER,
    },
)
LAYOUTS = (KERNEL_DETAILS, OP_SUMMARY)


def counters_in(header: Iterable[str]) -> tuple[str, ...]:
    """Return the counter columns of a canonical *header*: the standard ones first, then what is new to us."""
    names = [name for name in header if name and name not in _DESCRIPTIVE]
    extra = [name for name in names if name not in COUNTERS]
    return (*(name for name in COUNTERS if name in names), *extra)
