"""Collect calls by name, and make the tensors they take."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch_npu

__all__ = ["BF16", "FLOAT", "INT8", "INT32", "INT64", "LAUNCHES", "empty", "launch", "nz"]

BF16, FLOAT = torch.bfloat16, torch.float32
INT8, INT32, INT64 = torch.int8, torch.int32, torch.int64
LAUNCHES: dict[str, Callable[[], Any]] = {}


def launch(name: str) -> Callable[[Callable[[], Any]], Callable[[], Any]]:
    """Register a call under the name that marks its part of the launch log."""

    def register(function: Callable[[], Any]) -> Callable[[], Any]:
        LAUNCHES[name] = function
        return function

    return register


def empty(*shape: int, dtype: torch.dtype = BF16) -> torch.Tensor:
    """Return a device tensor whose values do not matter."""
    return torch.empty(*shape, dtype=dtype, device="npu")


def nz(tensor: torch.Tensor) -> torch.Tensor:
    """Return *tensor* in the FRACTAL_NZ layout."""
    return torch_npu.npu_format_cast(tensor, 29)
