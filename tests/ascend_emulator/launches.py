"""Make one call of every kernel type through the real torch_npu, each in a marked part of the launch log."""

from __future__ import annotations

import sys
from pathlib import Path

import torch
import torch_npu

# A script's own directory is not on the path where PYTHONSAFEPATH is set.
sys.path.insert(0, str(Path(__file__).resolve().parent))

import basic_launches
import fused_launches
from launch_registry import LAUNCHES

__all__ = ["main"]

# Importing them registers their calls.
_REGISTERED = (basic_launches, fused_launches)


def main(names: list[str]) -> int:
    """Run the named launches, or all; print one line for each."""
    torch.npu.set_device(0)
    torch.npu.config.allow_internal_format = True
    torch.npu.set_compile_mode(jit_compile=False)
    mstx = torch_npu.npu.mstx
    failures = 0
    for name, function in LAUNCHES.items():
        if names and name not in names:
            continue
        mstx.mark(f"begin {name}")
        try:
            function()
            torch.npu.synchronize()
        except Exception as error:  # every launch is to be tried
            failures += 1
            print(f"FAILED {name}: {type(error).__name__}: {str(error).splitlines()[0]}", flush=True)
        else:
            print(f"ok {name}", flush=True)
        mstx.mark(f"end {name}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
