"""Name the columns of the tables that msprof exports."""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["COUNTERS", "HEADERS", "RANGE_HEADER"]

_BASE = [
    "Device_id",
    "Model ID",
    "Task ID",
    "Stream ID",
    "Op Name",
    "OP Type",
    "OP State",
    "Task Type",
    "Task Start Time(us)",
    "Task Duration(us)",
    "Task Wait Time(us)",
    "Block Dim",
    "Mix Block Dim",
    "HF32 Eligible",
    "Input Shapes",
    "Input Data Types",
    "Input Formats",
    "Output Shapes",
    "Output Data Types",
    "Output Formats",
    "Context ID",
]
COUNTERS = [
    "aicore_time(us)",
    "aic_total_cycles",
    "aic_mac_time(us)",
    "aic_mac_ratio",
    "aic_scalar_time(us)",
    "aic_scalar_ratio",
    "aic_mte1_time(us)",
    "aic_mte1_ratio",
    "aic_mte2_time(us)",
    "aic_mte2_ratio",
    "aic_fixpipe_time(us)",
    "aic_fixpipe_ratio",
    "aic_icache_miss_rate",
    "aiv_time(us)",
    "aiv_total_cycles",
    "aiv_vec_time(us)",
    "aiv_vec_ratio",
    "aiv_scalar_time(us)",
    "aiv_scalar_ratio",
    "aiv_mte2_time(us)",
    "aiv_mte2_ratio",
    "aiv_mte3_time(us)",
    "aiv_mte3_ratio",
    "aiv_icache_miss_rate",
    "cube_utilization(%)",
]
_RENAMED = {"Block Dim": "Block Num", "Mix Block Dim": "Mix Block Num"}

HEADERS: Mapping[str, tuple[str, ...]] = {
    # A3, CANN 8.x, level 1 with PipeUtilization: 46 columns.
    "8.x": (*_BASE, *COUNTERS),
    "block-num": (*(_RENAMED.get(name, name) for name in _BASE), *COUNTERS),
    "no-counters": tuple(_BASE),
    "no-context": (*(name for name in _BASE if name not in {"Context ID", "HF32 Eligible"}), *COUNTERS),
    "reordered": (*COUNTERS, *reversed(_BASE)),
}
RANGE_HEADER = [
    "pid",
    "tid",
    "category",
    "event_type",
    "payload_type",
    "payload_value",
    "Start_time(us)",
    "End_time(us)",
    "message_type",
    "message",
    "domain",
    "Device Start_time(us)",
    "Device End_time(us)",
]
