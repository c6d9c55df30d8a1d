"""Ask torch which GPUs it sees, in a process of its own: ``python -m perfcollect_core.families.cuda_child FILE``."""

from __future__ import annotations

import json
import sys
from pathlib import Path

__all__ = ["describe_devices"]


def describe_devices() -> dict[str, object]:
    """Return devices and versions as JSON values, or ``error`` with the reason torch gave."""
    found: dict[str, object] = {"devices": [], "versions": {}}
    try:
        import torch

        found["versions"] = {"torch": str(torch.__version__), "cuda": str(torch.version.cuda or "")}
        found["devices"] = [
            _describe(torch.cuda.get_device_properties(i), i) for i in range(torch.cuda.device_count())
        ]
        if found["devices"]:
            # Counting devices needs no context; a driver too old for this torch shows only when one is made.
            torch.cuda.init()
    except Exception as error:
        found["error"] = f"{type(error).__name__}: {next(iter(str(error).splitlines()), '')}".rstrip(": ")
    return found


def _describe(properties: object, index: int) -> dict[str, object]:
    return {
        "index": index,
        "name": str(getattr(properties, "name", "")),
        "memory_bytes": int(getattr(properties, "total_memory", 0)),
        "l2_bytes": int(getattr(properties, "L2_cache_size", 0)),
        "capability": f"{getattr(properties, 'major', 0)}.{getattr(properties, 'minor', 0)}",
    }


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(json.dumps(describe_devices()), encoding="utf-8")
