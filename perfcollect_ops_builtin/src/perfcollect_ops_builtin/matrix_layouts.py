"""Find M, K, N and the storage order of both operands of a matrix product from recorded shapes.

Profiles do not record transpose flags: only the shapes tell whether a weight is stored as (K, N) or (N, K). A
FRACTAL_NZ storage shape holds block counts rounded up, so its true dimensions come from the other tensors.
"""

from __future__ import annotations

import attrs

from perfcollect_core import Case, TensorSpec
from perfcollect_core.tensors import NZ

from .row_checks import describe

__all__ = ["MatrixLayout", "case_sizes", "logical_matrix", "solve_layout", "stores"]


@attrs.frozen
class MatrixLayout:
    """Dimensions of C[M, N] = A[M, K] B[K, N]; ``transpose_*`` say that an operand is stored the other way round."""

    m: int
    k: int
    n: int
    transpose_a: bool
    transpose_b: bool
    assumptions: tuple[str, ...] = ()


def case_sizes(case: Case, *names: str) -> tuple[int, ...]:
    """Return integer parameters of *case*, by default M, K and N."""
    return tuple(int(str(case.params[name])) for name in names or ("m", "k", "n"))


def stores(tensor: TensorSpec, rows: int, columns: int) -> bool:
    """Say whether the last dimensions of *tensor* hold a logical matrix (rows, columns)."""
    shape = tensor.shape or ()
    if tensor.is_nz_storage:
        c1, r1, _, c0 = shape[-4:]
        return (c1, r1) == (-(-columns // c0), -(-rows // 16))
    return shape[-2:] == (rows, columns)


def logical_matrix(tensor: TensorSpec, rows: int, columns: int) -> TensorSpec:
    """Return *tensor* with true dimensions in storage order; its leading dimensions, dtype and format stay."""
    shape = tensor.shape or ()
    batch = shape[:-4] if tensor.is_nz_storage else shape[:-2]
    return TensorSpec((*batch, rows, columns), tensor.dtype, NZ if tensor.format == NZ else "ND")


def solve_layout(
    x1: TensorSpec,
    x2: TensorSpec,
    m: int,
    n: int,
    *,
    prefer_transposed_b: bool,
    may_transpose_a: bool = True,
) -> MatrixLayout | str:
    """Find the layout of x1 and x2 for an M x N result, or say in words why there is none.

    Where several orders fit, A is taken as (M, K) and B as *prefer_transposed_b* says; that is an assumption.
    """
    fits = []
    for transpose_a in (False, True) if may_transpose_a else (False,):
        for k in _inner_sizes(x1, x2, transpose_a):
            if not stores(x1, *((k, m) if transpose_a else (m, k))):
                continue
            for transpose_b in (prefer_transposed_b, not prefer_transposed_b):
                if stores(x2, *((n, k) if transpose_b else (k, n))):
                    fits.append((transpose_a, transpose_b, k))
    if not fits:
        return _misfit(x1, x2, m, n, may_transpose_a)
    transpose_a, transpose_b, k = fits[0]
    assumptions = []
    if any(fit[0] != transpose_a for fit in fits):
        assumptions.append("transpose_a=False (x1 fits as (M,K) and as (K,M))")
    if any(fit[0] == transpose_a and fit[1] != transpose_b for fit in fits):
        order = "(N,K)" if transpose_b else "(K,N)"
        assumptions.append(f"transpose_b={transpose_b} (x2 fits both orders, taken as {order})")
    return MatrixLayout(m, k, n, transpose_a, transpose_b, tuple(assumptions))


def _inner_sizes(x1: TensorSpec, x2: TensorSpec, transpose_a: bool) -> tuple[int, ...]:
    """Return the values K may have: read off the operand that is not in blocks."""
    if not x1.is_nz_storage:
        return ((x1.shape or ())[-2 if transpose_a else -1],)
    return () if x2.is_nz_storage else tuple(dict.fromkeys((x2.shape or ())[-2:]))


def _misfit(x1: TensorSpec, x2: TensorSpec, m: int, n: int, may_transpose_a: bool) -> str:
    if x1.is_nz_storage and x2.is_nz_storage:
        return f"x1 {describe(x1)} and x2 {describe(x2)} are both block counts: the true K is not recorded"
    sizes = {
        k: "(M,K)" if not transpose_a else "(K,M)"
        for transpose_a in ((False, True) if may_transpose_a else (False,))
        for k in _inner_sizes(x1, x2, transpose_a)
        if stores(x1, *((k, m) if transpose_a else (m, k)))
    }
    if not sizes:
        wanted = "(M,K) or (K,M)" if may_transpose_a else "(M,K)"
        return f"input slot 0 'x1' is {describe(x1)}, expected {wanted} with M={m} of the output"
    k = next(iter(sizes))
    blocks = " in blocks of 16" if x2.is_nz_storage else ""
    return (
        f"input slot 1 'x2' is {describe(x2)}, expected {n},{k} (N,K) or {k},{n} (K,N){blocks} "
        f"for x1 {describe(x1)} and N={n} of the output"
    )
