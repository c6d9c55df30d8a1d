"""Dtypes and tolerances of matrix products and quantised outputs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from perfcollect_core import Reference, TensorSpec, Tolerance

if TYPE_CHECKING:
    from torch import Tensor

__all__ = [
    "EXACT",
    "FLOATS",
    "PACKED",
    "QUANTISED",
    "product_dtypes",
    "product_tolerance",
    "quantised_reference",
]

FLOATS = ("BF16", "FLOAT16", "FLOAT")

EXACT = Tolerance(rtol=0.0, atol=0.0)
#: Round-to-nearest of values that fp32 and fp64 arithmetic put on two sides of a tie: rare.
QUANTISED = Tolerance(rtol=0.0, atol=0.0, outliers=0.01)
#: And such a value is off by one step, never two.
_ONE_STEP = Tolerance(rtol=0.0, atol=1.0)
#: The same where eight values share a word, so that one step of one value changes the word by any amount.
PACKED = Tolerance(rtol=0.0, atol=0.0, outliers=0.02)

_PRODUCTS = {
    # Results are of order one: one rounding to the output type, and the order of an fp32 sum.
    "BF16": Tolerance(rtol=8e-3, atol=4e-3),
    "FLOAT16": Tolerance(rtol=2e-3, atol=1e-3),
    "FLOAT": Tolerance(rtol=1e-4, atol=1e-4),
    "INT8": QUANTISED,
    "INT32": EXACT,
}


def product_tolerance(dtype: str, *, rounded_twice: bool = False) -> Tolerance:
    """Return the tolerance of a matrix product whose output has normalised dtype word *dtype*.

    *rounded_twice*: a bias may be added to a product that was rounded already, which the sum can shrink, or the
    weight is dequantised to the input type first.
    """
    tolerance = _PRODUCTS[dtype]
    return attrs.evolve(tolerance, atol=4 * tolerance.atol) if rounded_twice else tolerance


def quantised_reference(outputs: tuple[Tensor, ...], tolerances: tuple[Tolerance, ...]) -> Reference:
    """Return a reference in which ``QUANTISED`` outputs may differ rarely, and then by one step only."""
    from perfcollect_core.checking import difference

    rare = Reference(outputs, tolerances)
    steps = tuple(_ONE_STEP if tolerance is QUANTISED else tolerance for tolerance in tolerances)
    small = Reference(outputs, steps)
    return attrs.evolve(rare, compare=lambda actual: difference(actual, rare) or difference(actual, small))


def product_dtypes(x1: TensorSpec, x2: TensorSpec, y: TensorSpec) -> tuple[str, str, tuple[str, ...]] | str:
    """Return (dtype computed in, dtype of the result, assumptions) of a float product, or why there is none."""
    compute = x1.dtype if x1.dtype == x2.dtype else "FLOAT"
    result = y.dtype or compute
    if result not in (compute, "FLOAT"):
        return f"output slot 0 is {result}, expected {compute} or FLOAT of x1 {x1.dtype} and x2 {x2.dtype}"
    assumptions = []
    if x1.dtype != x2.dtype:
        assumptions.append(f"x1 and x2 promoted to {compute} before the call ({x1.dtype} with {x2.dtype})")
    if compute == "FLOAT":
        assumptions.append("allow_hf32=False (not recorded, fixed for FLOAT)")
    return compute, result, tuple(assumptions)
