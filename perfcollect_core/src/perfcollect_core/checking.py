"""Compare the outputs of a kernel with its reference (worker side)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .measurements import Reference, Tolerance

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["difference"]


def difference(actual: tuple[Tensor | None, ...], reference: Reference) -> str | None:
    """Say in one sentence how *actual* differs from *reference*, ``None`` where it agrees.

    Non-finite values, wrong shapes and outputs the kernel did not give are differences.
    """
    if reference.compare is not None:
        return reference.compare(actual)
    if len(actual) < len(reference.outputs):
        return f"{len(actual)} outputs, expected {len(reference.outputs)}"
    pairs = zip(actual, reference.outputs, reference.tolerances, strict=False)
    for slot, (got, want, tolerance) in enumerate(pairs):
        if want is None:
            continue
        if got is None:
            return f"output {slot} is missing"
        found = _element_difference(got, want, tolerance)
        if found:
            return f"output {slot}: {found}"
    return None


def _element_difference(got: Tensor, want: Tensor, tolerance: Tolerance) -> str | None:
    import torch

    if tuple(got.shape) != tuple(want.shape):
        return f"shape {tuple(got.shape)}, expected {tuple(want.shape)}"
    wide = torch.complex128 if got.is_complex() or want.is_complex() else torch.float64
    left, right = got.detach().to("cpu", wide), want.detach().to("cpu", wide)
    error = (left - right).abs()
    # A NaN on either side compares false and so counts as wrong.
    wrong = ~(error <= tolerance.atol + tolerance.rtol * right.abs())
    count = int(wrong.sum())
    if count <= tolerance.outliers * wrong.numel():
        return None
    index = int(torch.where(wrong.flatten(), error.flatten().nan_to_num(torch.inf), -1.0).argmax())
    return (
        f"{count} of {wrong.numel()} elements differ, worst at {index}: "
        f"{left.flatten()[index].item():.6g}, expected {right.flatten()[index].item():.6g}"
    )
