"""Dequantisation scales packed into 64-bit integers, as quantised matrix kernels take them (worker side)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["ascend_scale", "pack_scales", "unpack_scales"]


def pack_scales(scales: Tensor) -> Tensor:
    """Put the bit pattern of each positive fp32 scale into the low half of an int64."""
    import torch

    return scales.float().view(torch.int32).to(torch.int64)


def unpack_scales(packed: Tensor) -> Tensor:
    """Return the fp32 scales of packed ones; float scales come back as fp32."""
    import torch

    if packed.is_floating_point():
        return packed.float()
    return packed.view(torch.int64).to(torch.int32).view(torch.float32)


def ascend_scale(scale: Tensor) -> Tensor:
    """Return *scale* in the encoding CANN's kernels read, which only its own conversion makes."""
    import torch_npu

    return torch_npu.npu_trans_quant_param(unpack_scales(scale).flatten()).reshape(scale.shape)
