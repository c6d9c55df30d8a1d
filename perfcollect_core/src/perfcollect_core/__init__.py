"""perfcollect: build and refresh operator performance databases.

The names below are the public surface for plugins. They are imported on first use, so that ``import
perfcollect_core`` costs nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .cases import Case, Cost, MatchedRows, Outcome, Row, RowRef, RunRequest, Skip
    from .declarations import bytes_moved, declare, flops_per_output, read_examples
    from .defaults import case_seed, default_case
    from .environment import Device, DeviceFamily, DeviceInfo, Launch, Missing, Need, Probe, TaskRecord
    from .markers import HOOK_API, hookimpl
    from .measurements import Inputs, Kernel, Measurement, Plan, Reference, Samples, Statistics, Tolerance
    from .routing import expert_choices, group_list, group_sizes
    from .rows import broadcast_shape, example_row, refuse_dtype, refuse_output
    from .sequences import block_table, cumulative, rope_cos_sin, sequence_lengths, slot_mapping
    from .specs import Axis, GridRequest, OperatorSpec, ProfileColumn, Slot
    from .tensors import (
        ABSENT,
        Signature,
        TensorSpec,
        nz_storage_shape,
        parse_shape,
        parse_signature,
        render_signature,
        split_slots,
    )
    from .values import ValueMaker, torch_dtype

__version__ = "0.1.0"

_HOMES = {
    "cases": ("Case", "Cost", "MatchedRows", "Outcome", "Row", "RowRef", "RunRequest", "Skip"),
    "declarations": ("bytes_moved", "declare", "flops_per_output", "read_examples"),
    "defaults": ("case_seed", "default_case"),
    "environment": ("Device", "DeviceFamily", "DeviceInfo", "Launch", "Missing", "Need", "Probe", "TaskRecord"),
    "markers": ("HOOK_API", "hookimpl"),
    "measurements": (
        "Inputs", "Kernel", "Measurement", "Plan", "Reference", "Samples", "Statistics", "Tolerance",
    ),
    "rows": ("broadcast_shape", "example_row", "refuse_dtype", "refuse_output"),
    "routing": ("expert_choices", "group_list", "group_sizes"),
    "sequences": ("block_table", "cumulative", "rope_cos_sin", "sequence_lengths", "slot_mapping"),
    "specs": ("Axis", "GridRequest", "OperatorSpec", "ProfileColumn", "Slot"),
    "tensors": (
        "ABSENT", "Signature", "TensorSpec", "nz_storage_shape", "parse_shape", "parse_signature",
        "render_signature", "split_slots",
    ),
    "values": ("ValueMaker", "torch_dtype"),
}  # fmt: skip
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}

__all__ = [
    "ABSENT", "HOOK_API", "Axis", "Case", "Cost", "Device", "DeviceFamily", "DeviceInfo", "GridRequest",
    "Inputs", "Kernel", "Launch", "MatchedRows", "Measurement", "Missing", "Need", "OperatorSpec", "Outcome",
    "Plan", "Probe", "ProfileColumn", "Reference", "Row", "RowRef", "RunRequest", "Samples", "Signature",
    "Skip", "Slot", "Statistics", "TaskRecord", "TensorSpec", "Tolerance", "ValueMaker", "__version__",
    "block_table", "broadcast_shape", "bytes_moved", "case_seed", "cumulative", "declare", "default_case",
    "example_row", "expert_choices", "flops_per_output", "group_list", "group_sizes", "hookimpl",
    "nz_storage_shape", "parse_shape", "parse_signature", "read_examples", "refuse_dtype", "refuse_output",
    "render_signature", "rope_cos_sin", "sequence_lengths", "slot_mapping", "split_slots", "torch_dtype",
]  # fmt: skip


def __getattr__(name: str) -> object:
    if name in _HOME_OF:
        return getattr(importlib.import_module(f"{__name__}.{_HOME_OF[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
