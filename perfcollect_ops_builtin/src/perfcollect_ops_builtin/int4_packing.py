"""Eight 4-bit integers in an INT32, as torch_npu returns quint4x2 tensors (worker side)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["PER_WORD", "pack_int4", "unpack_int4"]

PER_WORD = 8


def pack_int4(values: Tensor) -> Tensor:
    """Pack integers in [-8, 7] along the last dimension, the first in the lowest bits."""
    import torch

    nibbles = values.to(torch.int32).bitwise_and_(15).unflatten(-1, (-1, PER_WORD))
    shifts = torch.arange(0, 32, 4, dtype=torch.int32, device=values.device)
    # The fields do not overlap, so that their sum, which wraps, is their union.
    return (nibbles << shifts).sum(dim=-1, dtype=torch.int32)


def unpack_int4(packed: Tensor) -> Tensor:
    """Return the signed integers of a packed tensor."""
    import torch

    shifts = torch.arange(28, -1, -4, dtype=torch.int32, device=packed.device)
    # Shift each field to the top, then back down with its sign.
    return ((packed.unsqueeze(-1) << shifts) >> 28).flatten(-2)
