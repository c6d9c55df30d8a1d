"""The weight of a grouped product as a row records it: one tensor of E matrices (parent side)."""

from __future__ import annotations

import attrs

from perfcollect_core import TensorSpec

from .matrix_layouts import MatrixLayout, solve_layout
from .row_checks import describe

__all__ = ["GroupedShape", "solve_grouped"]

_GROUP_LIMIT = 1024


@attrs.frozen
class GroupedShape:
    """E groups and the layout of one of their products."""

    groups: int
    layout: MatrixLayout


def solve_grouped(x: TensorSpec, weight: TensorSpec, m: int, n: int, *, what: str) -> GroupedShape | str:
    """Find E, K and the storage order of *weight* for *x* (M, K) and N columns, or say why there is none.

    *what* names where N comes from. A weight that does not fit is often the table of a whole MoE layer.
    """
    if len(x.shape or ()) != 2 or x.is_nz_storage:
        return f"input slot 0 'x' is {describe(x)}, expected (M,K)"
    if len(weight.shape or ()) != (5 if weight.is_nz_storage else 3):
        return f"input slot 1 'weight' is {describe(weight)}, expected one tensor of E matrices"
    groups = (weight.shape or (0,))[0]
    if groups > _GROUP_LIMIT:
        return (
            f"input slot 1 'weight' is {describe(weight)}: {groups} groups, the kernel takes {_GROUP_LIMIT}"
        )
    rows, k = x.shape or (0, 0)
    if rows != m:
        return f"input slot 0 'x' is {describe(x)}, expected M={m} rows of the output"
    layout = solve_layout(x, weight, m, n, prefer_transposed_b=False, may_transpose_a=False)
    if isinstance(layout, str):
        return (
            f"input slot 1 'weight' is {describe(weight)}, expected E,{k},{n} (E,K,N) or E,{n},{k} (E,N,K) "
            f"with K={k} of x and N={n} of {what}"
        )
    # The message of the solver speaks of x2, the weight's name in the plain products.
    notes = tuple(note.replace("x2 ", "weight ") for note in layout.assumptions)
    return GroupedShape(groups, attrs.evolve(layout, assumptions=notes))
