"""Checks on a recorded row that every matrix and quantisation operator makes first."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from perfcollect_core import OperatorSpec, Row, Signature, Skip, TensorSpec, parse_signature
from perfcollect_core.tensors import format_shape

__all__ = ["describe", "float_row", "read_signature", "refuse_dtypes", "row_cells"]


def describe(tensor: TensorSpec) -> str:
    """Write a tensor as messages name it: its shape as it stands in the cell."""
    return format_shape(tensor.shape) if tensor.shape is not None else "blank"


def row_cells(
    inputs: str, dtypes: str, output: str, out_dtypes: str, formats: str = "", **columns: str
) -> dict[str, str]:
    """Return the cells of a row, formats ND unless given: how specs write their negative rows."""
    return {
        "Input Shapes": inputs,
        "Input Data Types": dtypes,
        "Input Formats": formats or ";".join("ND" if word else "NULL" for word in dtypes.split(";")),
        "Output Shapes": output,
        "Output Data Types": out_dtypes,
        "Output Formats": ";".join("ND" for _ in out_dtypes.split(";")),
        **{name.replace("_", " ", 1): text for name, text in columns.items()},
    }


def float_row(inputs: str, output: str) -> dict[str, str]:
    """Return the cells of a BF16 row with as many inputs as *inputs* has slots."""
    return row_cells(inputs, ";".join("DT_BF16" for _ in inputs.split(";")), output, "DT_BF16")


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
    spec: OperatorSpec, signature: Signature, allowed: Mapping[str, Collection[str]]
) -> Skip | None:
    """Skip a row whose dtypes the bindings do not build; *allowed* is by slot name, absent slots pass."""
    sides = ((spec.inputs, signature.input), (spec.outputs, signature.output))
    for slots, tensor_of in sides:
        for index, slot in enumerate(slots):
            tensor, words = tensor_of(index), allowed.get(slot.name)
            if words is not None and not tensor.is_absent and tensor.dtype not in words:
                return Skip(
                    f"dtype not supported here: {tensor.dtype or 'undefined'} "
                    f"({slot.name!r}: {spec.name} replays {', '.join(words)})"
                )
    return None
