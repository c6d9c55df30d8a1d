"""Ask torch_npu what it sees, in a process of its own: ``python -m perfcollect_core.families.ascend_child FILE``.

The answer goes to FILE because CANN and torch_npu write to stdout as they please.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import sys
from pathlib import Path

__all__ = ["EMULATED_SYMBOL", "describe_devices"]

#: Exported by the library of an emulated CANN and by no real one.
EMULATED_SYMBOL = "perfcollect_emulated_cann"


def describe_devices() -> dict[str, object]:
    """Return devices and versions as JSON values, or ``error`` with the reason torch_npu gave."""
    found: dict[str, object] = {"devices": [], "versions": {}}
    try:
        import torch
        import torch_npu

        versions = {"torch": str(torch.__version__), "torch_npu": str(torch_npu.__version__)}
        cann = getattr(getattr(torch_npu, "version", None), "cann", None)
        if cann:
            versions["cann"] = str(cann)
        found["versions"] = versions
        devices = []
        for index in range(torch_npu.npu.device_count()):
            properties = torch_npu.npu.get_device_properties(index)
            devices.append(
                {
                    "index": index,
                    "soc": str(properties.name),
                    "memory_bytes": int(properties.total_memory),
                }
            )
        found["devices"] = devices
    except Exception as error:
        # torch_npu raises plain Exception for a missing environment, OSError and ImportError for libraries.
        found["error"] = f"{type(error).__name__}: {next(iter(str(error).splitlines()), '')}".rstrip(": ")
    found["emulated"] = _is_emulated()
    return found


def _is_emulated() -> bool:
    with contextlib.suppress(OSError):
        return hasattr(ctypes.CDLL("libascendcl.so"), EMULATED_SYMBOL)
    return False


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(json.dumps(describe_devices()), encoding="utf-8")
