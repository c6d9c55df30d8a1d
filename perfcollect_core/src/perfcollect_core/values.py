"""Seeded, representative input values (worker side: imports torch when called).

Uninitialised, zero or constant operands are easier on power-limited engines, make every sort a tie and every dynamic
scale zero; an index that always reads eight rows measures a cache. Everything here is drawn from one generator per
case, so the same case always gets the same values.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import TYPE_CHECKING

from .environment import Device
from .errors import CaseError
from .tensors import TensorSpec

if TYPE_CHECKING:
    import torch
    from torch import Tensor

__all__ = ["TORCH_DTYPES", "ValueMaker", "torch_dtype"]

#: Normalised dtype word -> name of the torch dtype it is built as.
TORCH_DTYPES = {
    "BF16": "bfloat16",
    "BOOL": "bool",
    "COMPLEX64": "complex64",
    "COMPLEX128": "complex128",
    "DOUBLE": "float64",
    "FLOAT": "float32",
    "FLOAT16": "float16",
    "INT8": "int8",
    "INT16": "int16",
    "INT32": "int32",
    "INT64": "int64",
    "UINT8": "uint8",
    "UINT64": "uint64",
}

#: Elements drawn at a time, a prime.
_BLOCK = 16_777_213


def torch_dtype(word: str) -> torch.dtype:
    """Return the torch dtype of a normalised word.

    Raises:
        CaseError: torch has no such dtype.
    """
    import torch

    try:
        return getattr(torch, TORCH_DTYPES[word])
    except KeyError:
        raise CaseError(
            f"dtype {word!r} has no torch equivalent, expected one of {', '.join(TORCH_DTYPES)}"
        ) from None


class ValueMaker:
    """Draws tensors for one case on one device.

    ``generator`` is the case's own, for draws that are not offered here; pass what they give through ``place``.
    """

    def __init__(self, seed: int, device: Device) -> None:
        import torch

        self._torch = torch
        self.device = device.torch_device
        # Values are drawn on the host so that every family computes on the same numbers.
        self.generator: torch.Generator = torch.Generator().manual_seed(seed & 0x7FFF_FFFF_FFFF)

    def on_host(self) -> ValueMaker:
        """Return a maker that draws on from the same generator and leaves its tensors on the host.

        For values worked out of others: ``place`` or ``tensor`` of this maker brings the result to the device.
        """
        maker = copy.copy(self)
        maker.device = "cpu"
        return maker

    def place(self, tensor: Tensor) -> Tensor:
        """Move a host tensor to the case's device."""
        return tensor if self.device == "cpu" else tensor.to(self.device)

    def _fill(self, spec: TensorSpec, draw: Callable[[int], Tensor]) -> Tensor:
        """Fill a tensor of *spec* from draws of at most ``_BLOCK`` elements, so that memory stays near its own size.

        Beyond one block the same block is repeated: a weight of a billion elements would take longer to draw than to
        measure, and a prime period aligns with no row, tile or cache.
        """
        shape, dtype = spec.shape or (), torch_dtype(spec.dtype)
        count = math.prod(shape)
        if count <= _BLOCK:
            return self.place(draw(count).reshape(shape).to(dtype))
        block = draw(_BLOCK).to(dtype)
        values = self._torch.empty(count, dtype=dtype)
        for start in range(0, count, _BLOCK):
            part = values[start : start + _BLOCK]
            part.copy_(block[: part.numel()])
        return self.place(values.reshape(shape))

    def by_dtype(self, spec: TensorSpec) -> Tensor:
        """Draw floats N(0, 1), int8 over [-127, 127], other integers 0..7, fair booleans."""
        dtype = torch_dtype(spec.dtype)
        if dtype.is_floating_point or dtype.is_complex:
            return self.normal(spec)
        if spec.dtype == "BOOL":
            return self.bernoulli(spec, 0.5)
        return self.integers(spec, -127, 128) if spec.dtype == "INT8" else self.integers(spec, 0, 8)

    def normal(self, spec: TensorSpec, scale: float = 1.0, mean: float = 0.0) -> Tensor:
        """Draw from N(mean, scale squared)."""
        dtype = torch_dtype(spec.dtype)
        drawn = dtype if dtype.is_complex or dtype.itemsize > 4 else self._torch.float32

        def draw(count: int) -> Tensor:
            values = self._torch.randn(count, generator=self.generator, dtype=drawn)
            return values if scale == 1.0 and mean == 0.0 else values.mul_(scale).add_(mean)

        return self._fill(spec, draw)

    def uniform(self, spec: TensorSpec, low: float, high: float) -> Tensor:
        """Draw uniformly from [low, high)."""

        def draw(count: int) -> Tensor:
            values = self._torch.rand(count, generator=self.generator, dtype=self._torch.float32)
            return values.mul_(high - low).add_(low)

        return self._fill(spec, draw)

    def log_uniform(self, spec: TensorSpec, low: float, high: float) -> Tensor:
        """Draw positive numbers whose logarithm is uniform over [low, high): scales of quantised tensors."""
        start, stop = math.log(low), math.log(high)

        def draw(count: int) -> Tensor:
            values = self._torch.rand(count, generator=self.generator, dtype=self._torch.float32)
            return values.mul_(stop - start).add_(start).exp_()

        return self._fill(spec, draw)

    def integers(self, spec: TensorSpec, low: int, high: int) -> Tensor:
        """Draw integers uniformly from [low, high)."""
        # Unsigned types beyond a byte and floating ones cannot be drawn directly.
        direct = spec.dtype in ("INT8", "INT16", "INT32", "INT64", "UINT8")
        dtype = torch_dtype(spec.dtype) if direct else self._torch.int64

        def draw(count: int) -> Tensor:
            return self._torch.randint(low, high, (count,), generator=self.generator, dtype=dtype)

        return self._fill(spec, draw)

    def bernoulli(self, spec: TensorSpec, probability: float) -> Tensor:
        """Draw True with *probability*, in the dtype of *spec*."""

        def draw(count: int) -> Tensor:
            return self._torch.rand(count, generator=self.generator) < probability

        return self._fill(spec, draw)

    def distinct(self, spec: TensorSpec, limit: int) -> Tensor:
        """Draw distinct integers from [0, limit) in random order.

        Raises:
            CaseError: More are asked for than there are.
        """
        count = math.prod(spec.shape or ())
        if count > limit:
            raise CaseError(f"{count} distinct indices asked of a range of {limit}")
        if limit <= max(4 * count, 1 << 16):
            values = self._torch.randperm(limit, generator=self.generator)[:count]
        else:
            # A permutation of a whole cache pool would cost more than the case: one stratum an index, shuffled.
            stride = limit // count
            offsets = self._torch.randint(0, stride, (count,), generator=self.generator)
            values = self._torch.arange(count) * stride + offsets
            values = values[self._torch.randperm(count, generator=self.generator)]
        return self.place(values.reshape(spec.shape or ()).to(torch_dtype(spec.dtype)))

    def permutation(self, count: int) -> Tensor:
        """Draw a random permutation of ``range(count)`` as int64, on the device."""
        return self.place(self._torch.randperm(count, generator=self.generator))

    def tensor(self, values: object, dtype: str) -> Tensor:
        """Place given *values* (nested lists or a host tensor) on the device as normalised dtype word *dtype*."""
        return self.place(self._torch.as_tensor(values).to(torch_dtype(dtype)))
