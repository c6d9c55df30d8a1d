"""Draw logits without ties along the last axis, for kernels that compare."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from perfcollect_core import TensorSpec, ValueMaker, torch_dtype

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["ORDERED", "TIES", "distinct_logits", "may_tie"]

#: Types whose values have an order, which torch and the kernels sort.
ORDERED = ("BF16", "FLOAT16", "FLOAT", "DOUBLE", "INT8", "UINT8", "INT16", "INT32", "INT64")

#: Values a normal sample of each type can spread over before neighbours round to one.
TIES = {"BF16": 512, "FLOAT16": 4096}


def may_tie(spec: TensorSpec) -> bool:
    """Return whether the last axis is longer than its type has values to offer."""
    return (spec.shape or (1,))[-1] > TIES.get(spec.dtype, 1 << 22)


def distinct_logits(make: ValueMaker, spec: TensorSpec, scale: float = 3.0) -> Tensor:
    """Draw N(0, *scale* squared), a random order of distinct values along the last axis (integers: of ranks)."""
    import torch

    dtype = torch_dtype(spec.dtype)
    if not spec.shape:
        return make.by_dtype(spec)
    if not dtype.is_floating_point:
        return make.integers(spec, *((0, 128) if dtype.itemsize == 1 else (-30_000, 30_000)))
    count = spec.shape[-1]
    ranks = make.on_host().uniform(attrs.evolve(spec, dtype="FLOAT"), 0, 1).argsort(-1)
    # Clamped where float32 would round a share to 1, whose quantile is infinite.
    shares = ((ranks.float() + 0.5) / count).clamp_(1e-7, 1 - 1e-7)
    return make.tensor(torch.special.ndtri(shares).mul_(scale), spec.dtype)
