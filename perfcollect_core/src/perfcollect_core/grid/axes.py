"""Values that theory rows take along their axes, and how an axis is read off a row."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from perfcollect_core.cases import Row
from perfcollect_core.specs import Axis

__all__ = [
    "ATTENTION_BATCHES",
    "ATTENTION_LENGTHS",
    "GEMM_TOKENS",
    "HEADS",
    "HEAD_DIMS",
    "KV_HEADS",
    "MOE_TOKENS",
    "PAD_TOKENS",
    "SAMPLING_BATCHES",
    "TOKENS",
    "VOCABULARIES",
    "WIDTHS",
    "column",
    "dim",
    "doubling",
    "has_slot",
    "rows_axis",
]


def doubling(low: int, high: int) -> tuple[int, ...]:
    """Return *low*, twice it, and so on up to *high*."""
    values = [low]
    while values[-1] * 2 <= high:
        values.append(values[-1] * 2)
    return tuple(values)


#: Rows of a matrix product.
GEMM_TOKENS = (
    *range(1, 9), *range(10, 17, 2), *range(20, 33, 4), 36, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 256, 384, 512,
    768, 1024, 2048, 4096, 8192, 16384, 32768,
)  # fmt: skip
#: N and K of matrix products, hidden sizes of everything else.
WIDTHS = (
    128, 192, 256, 320, 384, 448, 512, 640, 768, 896, 1024, 1280, 1536, 1728, 1792, 2048, 2304, 2560, 3072, 3456,
    3584, 4096, 4608, 5120, 6144, 6912, 7168, 8192, 10240, 12288, 13824, 14336, 16384, 18432, 27648, 28672, 55296,
)  # fmt: skip
#: Tokens of element-wise kernels.
TOKENS = (1, 4, 16, 64, *doubling(128, 32768))
#: Tokens that are no multiple of 8: the ones that get padded.
PAD_TOKENS = (
    1, 2, 3, 4, 5, 6, 7, 9, 15, 31, 63, 127, 129, 255, 257, 511, 513, 1023, 1025, 2047, 2049, 4095, 4097, 8191, 8193,
)  # fmt: skip
MOE_TOKENS = doubling(1, 65536)
HEADS = (1, 2, 3, 4, 5, 8, 10, 12, 16, 20, 24, 32, 40, 48, 64, 128)
KV_HEADS = doubling(1, 32)
HEAD_DIMS = (64, 128, 256)
ATTENTION_BATCHES = (1, 2, 4, 8, 16, 32, 48, 64, 128)
ATTENTION_LENGTHS = (1, 4, 16, 64, *doubling(128, 131072))
SAMPLING_BATCHES = doubling(1, 128)
VOCABULARIES = (1024, 4096, 16384, 32000, 65536, 128256, 151936)


def _slot(row: Row, side: str, slot: int) -> list[str]:
    slots = row.get(side).split(";")
    text = slots[slot].strip(' "') if slot < len(slots) else ""
    return text.split(",") if text else []


def dim(side: str, slot: int, index: int) -> Callable[[Row], int | None]:
    """Return what reads dimension *index* of a slot; *side* is ``I`` or ``O``."""
    heading = {"I": "Input Shapes", "O": "Output Shapes"}[side]

    def extract(row: Row) -> int | None:
        shape = _slot(row, heading, slot)
        if not -len(shape) <= index < len(shape):
            return None
        text = shape[index].strip()
        return int(text) if text.isascii() and text.isdecimal() else None

    return extract


def has_slot(slot: int) -> Callable[[Row], int | None]:
    """Return what reads 1 where input *slot* has a shape, else 0."""
    return lambda row: int(bool(_slot(row, "Input Shapes", slot)))


def column(name: str) -> Callable[[Row], int | None]:
    """Return what reads a whole number off a metadata column."""

    def extract(row: Row) -> int | None:
        text = row.get(name)
        try:
            return int(float(text)) if text else None
        except (ValueError, OverflowError):
            return None

    return extract


def rows_axis(axes: Iterable[Axis], row: Row) -> tuple[int | None, ...]:
    """Return where a row stands on each axis."""
    return tuple(axis.extract(row) for axis in axes)
