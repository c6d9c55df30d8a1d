"""Tolerances of matrix products and quantised outputs against a reference of higher precision."""

from __future__ import annotations

import attrs

from perfcollect_core import Tolerance

__all__ = ["QUANTISED", "product_tolerance"]

#: Round-to-nearest of a value that fp32 and fp64 arithmetic put on two sides of a tie: one step, never two.
QUANTISED = Tolerance(rtol=0.0, atol=1.0)

_PRODUCTS = {
    # Results are of order one: one rounding to the output type, and the order of an fp32 sum.
    "BF16": Tolerance(rtol=8e-3, atol=4e-3),
    "FLOAT16": Tolerance(rtol=2e-3, atol=1e-3),
    "FLOAT": Tolerance(rtol=1e-4, atol=1e-4),
    "INT8": QUANTISED,
    "INT32": Tolerance(rtol=0.0, atol=0.0),
}


def product_tolerance(dtype: str, *, with_bias: bool = False) -> Tolerance:
    """Return the tolerance of a matrix product whose output has normalised dtype word *dtype*."""
    tolerance = _PRODUCTS[dtype]
    # A bias may be added to a product that was rounded already: an error of the product, which the sum can shrink.
    return attrs.evolve(tolerance, atol=4 * tolerance.atol) if with_bias else tolerance
