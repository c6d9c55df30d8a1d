"""Replay of Transpose: a permutation of axes, materialised."""

from __future__ import annotations

import math
from itertools import permutations
from typing import TYPE_CHECKING

import attrs

from perfcollect_core import (
    Case,
    Cost,
    Device,
    Inputs,
    Kernel,
    Skip,
    Slot,
    Tolerance,
    bytes_moved,
    declare,
    example_row,
    refuse_output,
)
from perfcollect_core.tensors import format_shape

from .moved_tensors import source_and_output_key
from .theory.moves import TRANSPOSE_AXES, transpose_rows

if TYPE_CHECKING:
    from torch import Tensor

Axes = tuple[int, ...]


def _merges_to(shape: Axes, out: Axes) -> bool:
    """Return whether *out* is *shape* with adjacent axes merged or axes of size 1 dropped."""
    sizes = iter(shape)
    for wanted in out:
        product = 1
        while product < wanted:
            product *= next(sizes, wanted + 1)
        if product != wanted:
            return False
    return math.prod(sizes) == 1


def _preference(perm: Axes) -> tuple[bool, int, bool, Axes]:
    """Order permutations that fit equally: fewest moved axes, a swap of the last two, the identity last of all."""
    moved = [axis for axis, source in enumerate(perm) if axis != source]
    rank = len(perm)
    return (not moved, len(moved), moved != [rank - 2, rank - 1], perm)


def fitting_permutations(shape: Axes, out: Axes) -> list[Axes]:
    """Return the permutations of *shape* that give *out*, best guess first."""

    def gives(perm: Axes) -> bool:
        permuted = tuple(shape[axis] for axis in perm)
        return permuted == out if len(out) == len(shape) else _merges_to(permuted, out)

    return sorted(filter(gives, permutations(range(len(shape)))), key=_preference)


def _check(case: Case) -> Case | Skip:
    x, out, recorded = case.tensors["x"], case.signature.output(), case.signature.input(1)
    shape = x.shape or ()
    if out.shape is None:
        return Skip.invalid("output slot 0 is blank, expected the permuted shape")
    if len(shape) > 8:
        return Skip.invalid(f"input 'x' has {len(shape)} axes, expected at most 8")
    if recorded.shape is not None and recorded.numel != len(shape):
        return Skip.invalid(f"input slot 1 has {recorded.numel} axes, expected {len(shape)} (rank of x)")
    possible = math.prod(out.shape) == x.numel
    found = fitting_permutations(shape, out.shape) if possible else []
    if not found:
        return Skip.invalid(
            f"output slot 0 has shape {format_shape(out.shape)}, expected a permutation of x ({format_shape(shape)})"
        )
    perm, assumptions = found[0], []
    if len(found) > 1:
        assumptions.append(f"perm={perm} ({len(found)} permutations fit)")
    if len(out.shape) != len(shape):
        assumptions.append(f"output viewed as {format_shape(out.shape)} (of another rank than x)")
    refused = refuse_output(case.signature, 0, out.shape, x.dtype, "as x")
    return refused or attrs.evolve(case, params={"perm": perm}, assumptions=tuple(assumptions))


def _call(case: Case, inputs: Inputs, device: Device) -> Kernel:
    import torch

    x, perm, shape = inputs["x"], case.integers("perm"), case.outputs[0].shape or ()

    def outputs(result: object) -> tuple[Tensor | None, ...]:
        return (result.reshape(shape),)  # type: ignore[attr-defined]  # a tensor

    if device.family == "ascend":
        return Kernel(call=lambda: x.permute(perm).contiguous(), outputs=outputs)
    # Moving axes of size 1 leaves the view contiguous; clone copies it all the same.
    return Kernel(call=lambda: x.permute(perm).clone(memory_format=torch.contiguous_format), outputs=outputs)


def _reordered(case: Case, inputs: Inputs) -> tuple[Tensor]:
    import torch

    x, perm = inputs["x"], case.integers("perm")
    source = torch.zeros([x.shape[axis] for axis in perm], dtype=torch.int64, device=x.device)
    for position, axis in enumerate(perm):
        steps = torch.arange(x.shape[axis], device=x.device) * math.prod(x.shape[axis + 1 :])
        source += steps.reshape([-1] + [1] * (len(perm) - 1 - position))
    return (x.flatten()[source].reshape(case.outputs[0].shape or ()),)


transpose = declare(
    "Transpose",
    summary="a permutation of the axes of x, made contiguous",
    torch={"ascend": "torch.Tensor.contiguous", "*": "torch.Tensor.clone"},
    inputs=(Slot("x"), Slot("perm", "one INT64 for each axis, not built", metadata=True)),
    aliases=("TransposeAiCore", "TransposeV2"),
    infer=_check,
    canonical_key=source_and_output_key,
    call=_call,
    reference=_reordered,
    tolerances=(Tolerance(0, 0),),
    cost=lambda case: Cost(0.0, bytes_moved(case)),
    value_policy="x N(0, 1)",
    assumptions=(
        "of several permutations that fit: fewest moved axes, then a swap of the last two, the identity last",
    ),
    negative=(
        example_row("4,896;2", "DT_BF16;INT64", "896,5", "DT_BF16"),
        example_row("6,4;2", "FLOAT;INT64", "8,3", "FLOAT"),
        example_row("4,896;2", "DT_BF16;INT64"),
    ),
    axes=TRANSPOSE_AXES,
    rows=transpose_rows,
    examples="operators/transpose.csv",
)
