"""Write rows as cells, and refuse rows whose slots contradict each other (parent side, used by operator plugins)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from .cases import Skip
from .tensors import INPUT_COLUMNS, OUTPUT_COLUMNS, Signature, format_shape, split_slots
from .values import TORCH_DTYPES

__all__ = ["broadcast_shape", "example_row", "refuse_dtype", "refuse_output"]


def example_row(
    input_shapes: str,
    input_dtypes: str,
    output_shapes: str = "",
    output_dtypes: str = "",
    input_formats: str = "",
    columns: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """Return the cells of a row, with further *columns*; formats not given are ``ND``, ``NULL`` for undefined slots."""
    outputs = (output_shapes, output_dtypes, _formats(output_dtypes))
    inputs = (input_shapes, input_dtypes, input_formats or _formats(input_dtypes))
    cells = dict(zip(INPUT_COLUMNS + OUTPUT_COLUMNS, inputs + outputs, strict=True))
    return {**cells, **(columns or {})}


def _formats(dtypes: str) -> str:
    return ";".join("NULL" if word == "DT_UNDEFINED" else "ND" for word in split_slots(dtypes))


def broadcast_shape(*shapes: tuple[int, ...] | None) -> tuple[int, ...] | None:
    """Return the shape that *shapes* broadcast to (``None`` among them: a 0-D tensor), ``None`` where they do not."""
    result: list[int] = []
    for shape in (shape or () for shape in shapes):
        for axis in range(1, len(shape) + 1):
            if axis > len(result):
                result.insert(0, shape[-axis])
            elif shape[-axis] != 1 and result[-axis] not in (1, shape[-axis]):
                return None
            elif result[-axis] == 1:
                result[-axis] = shape[-axis]
    return tuple(result)


def refuse_output(
    signature: Signature, slot: int, shape: tuple[int, ...], dtype: str = "", why: str = ""
) -> Skip | None:
    """Refuse a recorded output *slot* of another shape or dtype than the inputs give; a blank one passes.

    *why* says where the expectation comes from (``"x broadcast with y"``). A blank shape is right for a 0-D output.
    """
    recorded = signature.output(slot)
    because = f" ({why})" if why else ""
    if recorded.shape is not None and recorded.shape != shape:
        return Skip.invalid(
            f"output slot {slot} has shape {format_shape(recorded.shape)}, "
            f"expected {format_shape(shape) or 'a 0-D tensor'}{because}"
        )
    if dtype and recorded.dtype and recorded.dtype != dtype:
        return Skip.invalid(f"output slot {slot} has dtype {recorded.dtype}, expected {dtype}{because}")
    return None


def refuse_dtype(name: str, dtype: str, allowed: Sequence[str]) -> Skip | None:
    """Refuse input *name* where its dtype word is none of *allowed*; skip it where torch has no such type at all."""
    if dtype in allowed:
        return None
    wanted = " or ".join(dict.fromkeys(allowed))
    if dtype and dtype not in TORCH_DTYPES:
        return Skip(f"dtype not supported here: {dtype} of input {name!r}, expected {wanted}")
    return Skip.invalid(f"input {name!r} has dtype {dtype or 'none'}, expected {wanted}")
