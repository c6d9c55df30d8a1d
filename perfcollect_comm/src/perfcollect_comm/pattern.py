"""Closed-form contents of the buffers: small integers, exact in every message dtype at any group size."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from .plan import Config

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["expected_output", "input_pattern", "refill_interval"]

#: The largest sum of a reduction: bfloat16 and int8 hold it exactly.
_LARGEST_SUM = 7


#: Largest finite value of the floating-point message dtypes; integers wrap and need no care.
_LARGEST_VALUE = {"bfloat16": 3.3e38, "float16": 65504.0, "float32": 3.4e38}


def refill_interval(config: Config) -> int:
    """Return after how many calls in place the input must be restored so that sums stay finite, 0 for never.

    As seldom as that: restoring takes ranks differently long, and the call after it times their waiting.
    """
    if config.op != "all_reduce" or config.dtype not in _LARGEST_VALUE:
        return 0
    return max(1, int(math.log(_LARGEST_VALUE[config.dtype] / _LARGEST_SUM) / math.log(config.n)))


def input_pattern(config: Config, rank: int, like: Tensor) -> Tensor:
    """Return what group member *rank* sends, shaped like its buffer.

    Reductions: member r contributes 1 at position i where (i + r) mod n is below k(i), so that the sum is k(i), which
    depends on the position. Moves: a value that tells member and position apart.
    """
    position = _positions(like)
    if config.op in ("all_reduce", "reduce_scatter"):
        return (((position + rank) % config.n) < _sum_at(position, config.n)).to(like.dtype)
    return _moved(position, rank).to(like.dtype)


def expected_output(config: Config, rank: int, like: Tensor) -> Tensor:
    """Return what group member *rank* must hold after the call."""
    position = _positions(like)
    if config.op == "all_reduce":
        return _sum_at(position, config.n).to(like.dtype)
    if config.op == "reduce_scatter":
        return _sum_at(position + rank * like.numel(), config.n).to(like.dtype)
    if config.op == "broadcast":
        return _moved(position, 0).to(like.dtype)
    chunk = like.numel() // config.n
    sender, offset = position // chunk, position % chunk
    if config.op == "all_gather":
        return _moved(offset, sender).to(like.dtype)
    return _moved(offset + rank * chunk, sender).to(like.dtype)


def _positions(like: Tensor) -> Tensor:
    import torch

    return torch.arange(like.numel(), device=like.device)


def _sum_at(position: Tensor, n: int) -> Tensor:
    return 1 + position % min(n, _LARGEST_SUM)


def _moved(position: Tensor, sender: int | Tensor) -> Tensor:
    return (position * 7 + sender * 13) % 61 - 30
