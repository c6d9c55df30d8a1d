"""How many bytes a theory row needs on the device."""

from __future__ import annotations

import math
from functools import lru_cache

from .theory import Form, TheoryRow

__all__ = ["parse_budget", "row_bytes"]


def parse_budget(gib: float) -> int:
    """Return a budget of GiB in bytes, 0 for none (0, negative or not a number)."""
    if math.isnan(gib) or gib <= 0 or math.isinf(gib):
        return 0
    return math.floor(gib * 2**30)


@lru_cache(maxsize=1024)
def _sizes(form: Form) -> tuple[tuple[float, ...], tuple[float, ...]]:
    return form.bytes_per_element()


def row_bytes(row: TheoryRow) -> float:
    """Return the bytes of the tensors of *row*: inputs, and outputs that are not one of the inputs written in place."""
    inputs, outputs = _sizes(row.form)
    total = 0.0
    for shape, size in zip(row.inputs, inputs, strict=False):
        if shape and size:
            total += math.prod(shape) * size
    for shape, size in zip(row.outputs, outputs, strict=False):
        # A cache is four-dimensional or paged, and comes back as it went in.
        if shape and size and not (len(shape) == 4 and shape in row.inputs):
            total += math.prod(shape) * size
    return total
