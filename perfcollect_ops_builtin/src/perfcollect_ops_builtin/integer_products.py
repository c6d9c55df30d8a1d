"""Exact int8 matrix products on stock torch (worker side)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["int8_product"]

#: What the CUDA kernel behind torch._int_mm asks of its operands.
_CUDA_MIN_ROWS, _CUDA_MULTIPLE = 32, 8


def int8_product(a: Tensor, b: Tensor) -> Callable[[], Tensor]:
    """Return a call that multiplies int8 *a* (M, K) with *b* (K, N) into int32.

    Operands are padded here, where CUDA needs it, so that the call itself is one kernel.
    """
    import torch

    if b.shape[0] == 1:
        # torch 2.13 on the CPU reads past a (1, N) view of stride (1, 1): such a transposed weight gives garbage.
        b = b.clone(memory_format=torch.contiguous_format)
    if not a.is_cuda:
        return lambda: torch._int_mm(a, b)
    m, n = a.shape[0], b.shape[1]
    pad = torch.nn.functional.pad
    inner = -a.shape[1] % _CUDA_MULTIPLE
    a = pad(a, (0, inner, 0, max(0, _CUDA_MIN_ROWS - m)))
    if inner or n % _CUDA_MULTIPLE:
        b = pad(b, (0, -n % _CUDA_MULTIPLE, 0, inner))
    return lambda: torch._int_mm(a, b)[:m, :n]
