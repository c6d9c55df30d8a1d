"""Checks on a recorded row that every matrix and quantisation operator makes first."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from perfcollect_core import OperatorSpec, Row, Signature, Skip, TensorSpec, parse_signature
from perfcollect_core.tensors import format_shape

__all__ = ["describe", "read_signature", "refuse_dtypes"]


def describe(tensor: TensorSpec) -> str:
    """Write a tensor as messages name it: its shape as it stands in the cell."""
    return format_shape(tensor.shape) if tensor.shape is not None else "blank"


def read_signature(spec: OperatorSpec, row: Row, *, needs_output: bool = True) -> Signature | Skip:
    """Parse the tensors of *row* and refuse blank required slots, empty tensors and a missing output."""
    try:
        signature = parse_signature(row.cells)
    except ValueError as error:
        return Skip.invalid(str(error))
    for index, slot in enumerate(spec.inputs):
        if not (slot.optional or slot.metadata) and signature.input(index).shape is None:
            return Skip.invalid(f"input slot {index} {slot.name!r} of {spec.name} is blank, expected a shape")
    if needs_output and signature.output().shape is None:
        return Skip.invalid(f"output slot 0 of {spec.name} is blank, expected a shape")
    for side, tensors in (("input", signature.inputs), ("output", signature.outputs)):
        for index, tensor in enumerate(tensors):
            if tensor.shape is not None and 0 in tensor.shape:
                return Skip.invalid(f"{side} slot {index} of {spec.name} is {describe(tensor)}: no element")
    return signature


def refuse_dtypes(
    operator: str, tensors: Mapping[str, TensorSpec], allowed: Mapping[str, Collection[str]]
) -> Skip | None:
    """Skip a row whose dtypes the bindings do not build; *allowed* is by tensor name."""
    for name, tensor in tensors.items():
        words = allowed.get(name)
        if words is not None and tensor.dtype not in words:
            return Skip(
                f"dtype not supported here: {tensor.dtype or 'undefined'} of {name!r}, "
                f"{operator} replays {', '.join(words)}"
            )
    return None
