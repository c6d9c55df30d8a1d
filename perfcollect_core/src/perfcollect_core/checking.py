"""Compare the outputs of a kernel with its reference (worker side)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import attrs

from .measurements import Reference, Tolerance

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["difference", "scatter_difference"]

#: Elements compared at a time: double-precision copies of a whole output would need eight times its memory.
_BLOCK = 1 << 22
_EXACT = Tolerance(0.0, 0.0)


def difference(actual: tuple[Tensor | None, ...], reference: Reference) -> str | None:
    """Say in one sentence how *actual* differs from *reference*, ``None`` where it agrees.

    Wrong shapes, outputs the kernel did not give and NaN are differences; an infinity agrees only with the same one.
    Outputs past the last tolerance are held to that one, all of them to equality where there is none.
    """
    if reference.compare is not None:
        return reference.compare(actual)
    if len(actual) < len(reference.outputs):
        return f"{len(actual)} outputs, expected {len(reference.outputs)}"
    tolerances = reference.tolerances or (_EXACT,)
    for slot, want in enumerate(reference.outputs):
        if want is None:
            continue
        got = actual[slot]
        if got is None:
            return f"output {slot} is missing"
        found = _element_difference(got, want, tolerances[min(slot, len(tolerances) - 1)])
        if found:
            return f"output {slot}: {found}"
    return None


@attrs.define
class _Worst:
    """The element furthest from its bound so far, and how many are past it."""

    count: int = 0
    not_finite: int = 0
    error: float = -1.0
    index: int = -1
    got: float | complex = 0.0
    want: float | complex = 0.0


def scatter_difference(
    got: Tensor, before: Tensor, slots: Tensor, rows: Tensor, tolerance: Tolerance
) -> str | None:
    """Say how a cache *got* [slots, width] differs from *before* with *rows* written to *slots*, ``None`` where not.

    A cache is compared this way because it is much larger than what a call writes. What was not written must be
    unchanged to the bit.
    """
    import torch

    found, where = got.detach().cpu(), slots.cpu().to(torch.int64)
    wrong = _element_difference(found[where], rows, tolerance)
    if wrong:
        return wrong
    untouched = torch.ones(len(found), dtype=torch.bool)
    untouched[where] = False
    changed = int((found != before.cpu())[untouched].any(-1).sum())
    return f"{changed} cache slots changed that the call does not write" if changed else None


def _element_difference(got: Tensor, want: Tensor, tolerance: Tolerance) -> str | None:
    if tuple(got.shape) != tuple(want.shape):
        return f"shape {tuple(got.shape)}, expected {tuple(want.shape)}"
    left, right = got.detach().cpu().reshape(-1), want.detach().cpu().reshape(-1)
    worst = _Worst()
    for start in range(0, left.numel(), _BLOCK):
        _compare_block(left[start : start + _BLOCK], right[start : start + _BLOCK], tolerance, start, worst)
    if not worst.not_finite and worst.count <= tolerance.outliers * left.numel():
        return None
    return (
        f"{worst.count} of {left.numel()} elements differ, worst at {worst.index}: "
        f"{_text(worst.got)}, expected {_text(worst.want)}"
    )


def _compare_block(left: Tensor, right: Tensor, tolerance: Tolerance, start: int, worst: _Worst) -> None:
    import torch

    integral = not any(t.is_floating_point() or t.is_complex() for t in (left, right))
    # Doubles cannot tell integers beyond 2 ** 53 apart, so equality is asked of the integers themselves.
    equal = left.to(torch.int64) == right.to(torch.int64) if integral else None
    wide = torch.complex128 if left.is_complex() or right.is_complex() else torch.float64
    a, b = left.to(wide), right.to(wide)
    if equal is None:
        equal = a == b
    error = (a - b).abs()
    bound = tolerance.atol + tolerance.rtol * b.abs()
    within = equal | ((error <= bound) & torch.isfinite(b) & ((error > 0) | (not integral)))
    wrong = ~within
    count = int(wrong.sum())
    if not count:
        return
    worst.count += count
    worst.not_finite += int((wrong & ~(torch.isfinite(a) & torch.isfinite(b))).sum())
    ranked = torch.where(wrong, error.nan_to_num(torch.inf, torch.inf), -1.0)
    index = int(ranked.argmax())
    if float(ranked[index]) > worst.error or worst.index < 0:
        worst.error, worst.index = float(ranked[index]), start + index
        worst.got, worst.want = left[index].item(), right[index].item()


def _text(value: float | complex) -> str:
    if isinstance(value, bool):
        return str(value)
    if isinstance(value, int):
        return str(value)
    return f"{value:.6g}" if isinstance(value, complex) or not math.isnan(value) else "nan"
