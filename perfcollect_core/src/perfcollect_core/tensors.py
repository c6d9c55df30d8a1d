"""Slots, dtypes and formats as they stand in table cells, and the signature they form.

Cell grammar (shared/spec of the profiler): slots joined by ``;``, dimensions by ``,``; the whole cell may carry a
pair of literal quotes. Slots are positional and blanks are significant: slot *i* of shapes, dtypes and formats
belong together.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from itertools import zip_longest

import attrs

__all__ = [
    "ABSENT",
    "DTYPE_BYTES",
    "INPUT_COLUMNS",
    "NZ",
    "OUTPUT_COLUMNS",
    "SIGNATURE_COLUMNS",
    "Signature",
    "TensorSpec",
    "format_shape",
    "normalise_dtype",
    "normalise_format",
    "nz_storage_shape",
    "parse_shape",
    "parse_signature",
    "render_signature",
    "split_slots",
]

INPUT_COLUMNS = ("Input Shapes", "Input Data Types", "Input Formats")
OUTPUT_COLUMNS = ("Output Shapes", "Output Data Types", "Output Formats")
SIGNATURE_COLUMNS = INPUT_COLUMNS + OUTPUT_COLUMNS

NZ = "FRACTAL_NZ"

#: Bytes per element of the normalised dtype words; a word that is not here has an unknown size.
DTYPE_BYTES: Mapping[str, float] = {
    "BF16": 2,
    "BOOL": 1,
    "COMPLEX64": 8,
    "COMPLEX128": 16,
    "DOUBLE": 8,
    "FLOAT": 4,
    "FLOAT16": 2,
    "FLOAT4_E2M1": 0.5,
    "FLOAT8_E4M3FN": 1,
    "FLOAT8_E5M2": 1,
    "FLOAT8_E8M0": 1,
    "HIFLOAT8": 1,
    "INT4": 0.5,
    "INT8": 1,
    "INT16": 2,
    "INT32": 4,
    "INT64": 8,
    "UINT8": 1,
    "UINT16": 2,
    "UINT32": 4,
    "UINT64": 8,
}

_BLANK = frozenset({"", "()", "N/A", "NA", "NULL", "NONE", "UNDEFINED", "DT_UNDEFINED"})
_DTYPE_SYNONYMS = {
    "BFLOAT16": "BF16",
    "FLOAT32": "FLOAT",
    "FP32": "FLOAT",
    "FP16": "FLOAT16",
    "FLOAT64": "DOUBLE",
}


@attrs.frozen
class TensorSpec:
    """One slot of a row.

    ``shape`` is ``None`` where the cell is blank: with a dtype that is a 0-D tensor (``is_scalar``), without one the
    optional input is absent (``is_absent``). ``dtype`` and ``format`` are normalised words (``BF16``, ``ND``), empty
    where blank; the ``*_text`` fields keep the spelling of the cell and do not count in comparisons.
    """

    shape: tuple[int, ...] | None = None
    dtype: str = ""
    format: str = ""
    shape_text: str = attrs.field(default="", eq=False, repr=False)
    dtype_text: str = attrs.field(default="", eq=False, repr=False)
    format_text: str = attrs.field(default="", eq=False, repr=False)

    @property
    def is_absent(self) -> bool:
        return self.shape is None and not self.dtype

    @property
    def is_scalar(self) -> bool:
        return self.shape is None and bool(self.dtype)

    @property
    def is_nz_storage(self) -> bool:
        """Whether ``shape`` is the tiled FRACTAL_NZ storage shape rather than the logical one."""
        return (
            self.format == NZ
            and self.shape is not None
            and len(self.shape) >= 4
            and self.shape[-2] == 16
            and self.shape[-1] in (8, 16, 32, 64)
        )

    @property
    def numel(self) -> int:
        """Number of elements; 1 for a 0-D tensor, 0 for an absent one."""
        if self.shape is None:
            return 1 if self.dtype else 0
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of the elements; a dtype of unknown size counts 1 byte an element."""
        return math.ceil(self.numel * DTYPE_BYTES.get(self.dtype, 1))


ABSENT = TensorSpec()


@attrs.frozen
class Signature:
    """The tensors of one row, by slot."""

    inputs: tuple[TensorSpec, ...] = ()
    outputs: tuple[TensorSpec, ...] = ()

    def input(self, slot: int) -> TensorSpec:
        """Return input *slot*, or ``ABSENT`` past the recorded slots (profilers trim trailing blanks)."""
        return self.inputs[slot] if slot < len(self.inputs) else ABSENT

    def output(self, slot: int = 0) -> TensorSpec:
        """Return output *slot*, or ``ABSENT`` past the recorded slots."""
        return self.outputs[slot] if slot < len(self.outputs) else ABSENT

    def canonical(self) -> tuple[str, str, str, str, str]:
        """Return (input shapes, dtypes, formats, output shapes, dtypes) in one spelling, as the row key uses them.

        The dtype and format of a blank slot are blank and trailing blank slots are cut.
        """
        ins, outs = _trim(self.inputs), _trim(self.outputs)
        return (
            ";".join(format_shape(t.shape) for t in ins),
            ";".join(t.dtype if t.shape is not None else "" for t in ins),
            ";".join(t.format if t.shape is not None else "" for t in ins),
            ";".join(format_shape(t.shape) for t in outs),
            ";".join(t.dtype if t.shape is not None else "" for t in outs),
        )


def _trim(slots: tuple[TensorSpec, ...]) -> tuple[TensorSpec, ...]:
    end = len(slots)
    while end and slots[end - 1].shape is None:
        end -= 1
    return slots[:end]


def _unquote(text: str) -> str:
    text = text.strip()
    if len(text) >= 2 and text[0] == text[-1] == '"':
        return text[1:-1].strip()
    return text.strip('"').strip()


def split_slots(cell: str | None) -> tuple[str, ...]:
    """Split a list cell into its slots, every blank one kept; a blank cell has no slot."""
    text = _unquote(cell or "")
    return tuple(_unquote(slot) for slot in text.split(";")) if text else ()


def parse_shape(slot: str) -> tuple[int, ...] | None:
    """Parse one shape slot (``"128,4"``, ``"(128, 4)"``); ``None`` where it is blank.

    Raises:
        ValueError: A dimension is not a non-negative decimal integer.
    """
    text = slot.strip()
    if text.upper() in _BLANK:
        return None
    if text[0] == "(" and text[-1] == ")":
        text = text[1:-1]
    shape = []
    for dim in re.split(r"[,\s]+", text.strip(", \t")):
        if not re.fullmatch(r"[0-9]+", dim, re.ASCII):
            raise ValueError(f"shape {slot!r} has dimension {dim!r}, expected a non-negative integer")
        shape.append(int(dim))
    return tuple(shape)


def normalise_dtype(word: str) -> str:
    """Return the one spelling of a dtype word (``DT_BFLOAT16`` gives ``BF16``), empty for an undefined one."""
    upper = word.strip().upper()
    if upper in _BLANK:
        return ""
    upper = upper.removeprefix("DT_").removeprefix("TORCH.")
    return _DTYPE_SYNONYMS.get(upper, upper)


def normalise_format(word: str) -> str:
    """Return the one spelling of a format word, empty for ``NULL``."""
    upper = word.strip().upper()
    return "" if upper in _BLANK else upper


def format_shape(shape: Iterable[int] | None) -> str:
    """Write a shape slot; a blank slot is the empty text."""
    return "" if shape is None else ",".join(map(str, shape))


# Cells repeat: the plan of a table and its keys read the same ones.
@lru_cache(maxsize=16384)
def _tensors(shapes: str | None, dtypes: str | None, formats: str | None) -> tuple[TensorSpec, ...]:
    triples = zip_longest(split_slots(shapes), split_slots(dtypes), split_slots(formats), fillvalue="")
    return tuple(
        TensorSpec(parse_shape(shape), normalise_dtype(dtype), normalise_format(form), shape, dtype, form)
        for shape, dtype, form in triples
    )


def parse_signature(cells: Mapping[str, str]) -> Signature:
    """Parse the six shape, dtype and format cells of a row.

    Raises:
        ValueError: A shape cell does not parse; the message names the column.
    """
    sides = []
    for columns in (INPUT_COLUMNS, OUTPUT_COLUMNS):
        try:
            sides.append(_tensors(*(cells.get(column) for column in columns)))
        except ValueError as error:
            raise ValueError(f"column {columns[0]!r}: {error}") from None
    return Signature(*sides)


def render_signature(signature: Signature) -> dict[str, str]:
    """Write the six cells of a signature, in the spelling it was read with; the inverse of ``parse_signature``.

    Shape cells carry the literal inner quotes that keep a consumer's reader from turning them into numbers.
    """
    cells = {}
    for columns, slots in ((INPUT_COLUMNS, signature.inputs), (OUTPUT_COLUMNS, signature.outputs)):
        shapes = ";".join(t.shape_text or format_shape(t.shape) for t in slots)
        cells[columns[0]] = f'"{shapes}"'
        cells[columns[1]] = ";".join(t.dtype_text or _default_dtype_text(t) for t in slots)
        cells[columns[2]] = ";".join(
            t.format_text or t.format or ("NULL" if t.is_absent else "ND") for t in slots
        )
    return cells


def _default_dtype_text(spec: TensorSpec) -> str:
    if spec.is_absent:
        return "DT_UNDEFINED"
    return "DT_BF16" if spec.dtype == "BF16" else spec.dtype


def nz_storage_shape(shape: tuple[int, ...], dtype: str) -> tuple[int, ...]:
    """Return the FRACTAL_NZ storage shape ``(..., C1, R1, 16, C0)`` of a logical matrix ``(..., R, C)``.

    C0 is 16 for 2 and 4 byte types, 32 for 1 byte and 64 for 4 bit types; both counts are rounded up.
    """
    *batch, rows, columns = shape
    size = DTYPE_BYTES.get(dtype, 2)
    c0 = 64 if size < 1 else 32 if size == 1 else 16
    return (*batch, -(-columns // c0), -(-rows // 16), 16, c0)
