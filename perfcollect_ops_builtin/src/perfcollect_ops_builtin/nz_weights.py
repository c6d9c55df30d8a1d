"""Put matrices into the FRACTAL_NZ layout on Ascend (worker side)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perfcollect_core import Device, TensorSpec
from perfcollect_core.tensors import NZ

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["cast_to_nz"]

_ACL_FORMAT_FRACTAL_NZ = 29


def cast_to_nz(matrix: Tensor, spec: TensorSpec, device: Device) -> Tensor:
    """Return *matrix* in the format *spec* asks for; only Ascend has another than row-major.

    *matrix* must be a whole tensor: casting a view casts its base storage or a copy, depending on the CANN version.
    Transposed views are taken of the result.
    """
    if device.family != "ascend" or spec.format != NZ:
        return matrix
    import torch
    import torch_npu

    # Without it the cast is ignored with a warning.
    torch.npu.config.allow_internal_format = True
    return torch_npu.npu_format_cast(matrix.contiguous(), _ACL_FORMAT_FRACTAL_NZ)
