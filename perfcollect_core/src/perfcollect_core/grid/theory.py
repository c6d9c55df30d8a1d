"""Theory rows before they are text: shapes under a form of dtypes and formats, and the forms a table has."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import attrs

from perfcollect_core.cases import Row
from perfcollect_core.specs import GridRequest
from perfcollect_core.tensors import DTYPE_BYTES, Signature, normalise_dtype, parse_signature

from .models import ModelShapes

__all__ = ["Form", "Shape", "TheoryRow", "find_forms", "form", "models_of", "shapes_text", "values_of"]

#: Dimensions of one slot; the empty shape is a blank slot.
Shape = tuple[int, ...]


@attrs.frozen
class Form:
    """Dtypes and formats of the slots of a row, as they are written; a blank dtype is an absent slot."""

    input_dtypes: tuple[str, ...]
    input_formats: tuple[str, ...]
    output_dtypes: tuple[str, ...]
    output_formats: tuple[str, ...]
    state: str = "dynamic"
    kind: str = ""

    def has(self, slot: int) -> bool:
        """Tell whether input *slot* is there."""
        return slot < len(self.input_dtypes) and bool(normalise_dtype(self.input_dtypes[slot]))

    def input_dtype(self, slot: int) -> str:
        return normalise_dtype(self.input_dtypes[slot]) if slot < len(self.input_dtypes) else ""

    def input_format(self, slot: int) -> str:
        return self.input_formats[slot].strip().upper() if slot < len(self.input_formats) else ""

    def bytes_per_element(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Return the size of an element of each input and output slot; an unknown dtype counts 2 bytes."""

        def size(word: str) -> float:
            dtype = normalise_dtype(word)
            return DTYPE_BYTES.get(dtype, 2.0) if dtype else 0.0

        return tuple(map(size, self.input_dtypes)), tuple(map(size, self.output_dtypes))


class TheoryRow(NamedTuple):
    """One generated row: what a rule yields.

    ``rule`` says where it came from (the ``Grid Rule`` cell), ``at`` where it stands on each axis of the operator's
    spec, ``extra`` holds its metadata cells.
    """

    inputs: tuple[Shape, ...]
    outputs: tuple[Shape, ...]
    form: Form
    rule: str
    at: tuple[int | None, ...] = ()
    extra: Mapping[str, str] | None = None


def shapes_text(shapes: Iterable[Shape]) -> str:
    """Write the shapes of a side, as a shape cell holds them without its quotes."""
    return ";".join([",".join(map(str, shape)) for shape in shapes])


def form(input_dtypes: str, output_dtypes: str, input_formats: str = "", kind: str = "") -> Form:
    """Write a form as a row has it (``form("DT_BF16;;INT64", "DT_BF16")``); formats are ND unless given."""
    inputs = tuple(word or "DT_UNDEFINED" for word in input_dtypes.split(";"))
    outputs = tuple(word or "DT_UNDEFINED" for word in output_dtypes.split(";"))
    formats = (
        tuple(word or "NULL" for word in input_formats.split(";"))
        if input_formats
        else tuple("NULL" if word == "DT_UNDEFINED" else "ND" for word in inputs)
    )
    return Form(inputs, formats, outputs, ("ND",) * len(outputs), kind=kind)


def find_forms(
    templates: Sequence[Row],
    default: Form,
    fits: Callable[[Signature], str | None] | None = None,
    *,
    likes: Sequence[Form] = (),
) -> tuple[Form, ...]:
    """Return the forms that the rows of a table have and a rule can extend, else *default*.

    A row's form counts where its input and output slots are those of *default* (or of one of *likes*) and *fits*
    gives it a kind (``None`` refuses it). Forms come in a fixed order, whatever the order of the rows.
    """
    patterns = {_pattern(one) for one in (default, *likes)}
    found: dict[Form, None] = {}
    for row in templates:
        try:
            signature = parse_signature(row.cells)
        except ValueError:
            continue
        inputs = list(signature.inputs)
        while inputs and inputs[-1].is_absent:
            inputs.pop()
        outputs = [t for t in signature.outputs if not t.is_absent]
        pattern = tuple(not t.is_absent for t in inputs), len(outputs)
        if pattern not in patterns:
            continue
        kind = fits(signature) if fits else ""
        if kind is None:
            continue
        width = max(len(default.input_dtypes), len(inputs)) if _pattern(default) == pattern else len(inputs)
        padded = [*signature.inputs, *([None] * width)][: max(width, len(inputs))]
        found[
            Form(
                tuple((t.dtype_text if t and t.dtype else "DT_UNDEFINED") for t in padded),
                tuple((t.format_text if t and t.format else _blank_format(t)) for t in padded),
                tuple(t.dtype_text or t.dtype for t in outputs),
                tuple(t.format_text or "ND" for t in outputs),
                state=row.get("OP State") or "dynamic",
                kind=kind,
            )
        ] = None
    return tuple(sorted(found, key=attrs.astuple)) or (default,)


def _blank_format(tensor: object) -> str:
    return "ND" if tensor is not None and not getattr(tensor, "is_absent", True) else "NULL"


def _pattern(one: Form) -> tuple[tuple[bool, ...], int]:
    inputs = [bool(normalise_dtype(word)) for word in one.input_dtypes]
    while inputs and not inputs[-1]:
        inputs.pop()
    return tuple(inputs), len(one.output_dtypes)


def models_of(request: GridRequest) -> tuple[ModelShapes, ...]:
    """Return the models a request is about."""
    return tuple(model for model in request.models if isinstance(model, ModelShapes))


def values_of(request: GridRequest, grid: Iterable[int], asked: Iterable[int]) -> tuple[int, ...]:
    """Return the values of a width: what the models ask for, beside the *grid* unless a workload is asked exactly."""
    wanted = {value for value in asked if value > 0} if request.targeted else set()
    return tuple(sorted(wanted if request.workloads else {*grid, *wanted}))
