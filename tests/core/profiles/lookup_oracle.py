"""The consumer's look-up, written from its contract alone: exact match, ties by file order, interpolation limits.

It stands for TensorCast: what it answers for a database is what a simulation would be given.
"""

from __future__ import annotations

import csv
import math
from pathlib import Path

LATENCY = ("Average Duration(us)", "Profiling Average Duration(us)", "Duration(us)")
MATMULS = ("MatMulV2", "MatMulV3", "MatMulCommon", "QuantBatchMatmulV3")


def latency(row: dict[str, str]) -> float | None:
    """Return the first finite latency above zero."""
    for column in LATENCY:
        try:
            value = float(row.get(column) or "")
        except ValueError:
            continue
        if math.isfinite(value) and value > 0:
            return value
    return None


def shapes(cell: str) -> list[tuple[int, ...]]:
    """Return the shapes of a cell, empty slots dropped; raises ValueError as the consumer does."""
    inner = cell.strip()
    if not inner:
        raise ValueError("empty shape cell")
    slots = [slot.strip().strip("()") for slot in inner.strip('"').split(";")]
    return [tuple(int(dim) for dim in slot.split(",") if dim.strip()) for slot in slots if slot]


def words(cell: str) -> list[str]:
    return [word for word in cell.strip().strip('"').split(";") if word]


def restored(shape: tuple[int, ...], form: str) -> tuple[int, ...]:
    """Return the logical shape of a FRACTAL_NZ tensor."""
    if form != "FRACTAL_NZ" or len(shape) < 4:
        return shape
    *batch, high, wide, a, b = shape
    return (*batch, wide * a, high * b)


class Table:
    """One kernel's rows; any cell the consumer cannot read makes every look-up of the kernel fail."""

    def __init__(self, path: Path) -> None:
        self.kernel = path.stem
        with path.open(encoding="utf-8-sig", newline="") as stream:
            usable = [row for row in csv.DictReader(stream) if latency(row) is not None]
        self.rows = [
            (row, shapes(row["Input Shapes"]), shapes(row["Output Shapes"] or '""')) for row in usable
        ]

    def exact(self, row: dict[str, str]) -> tuple[float, dict[str, str]] | None:
        """Answer for the tensors of *row*: the best match, the first in the file among equals."""
        asked = shapes(row["Input Shapes"])
        dtypes, forms = words(row["Input Data Types"]), words(row["Input Formats"])
        best: tuple[int, dict[str, str]] | None = None
        for known, inputs, outputs in self.rows:
            if words(known["Input Data Types"]) != dtypes or len(inputs) != len(asked):
                continue
            if known["Output Data Types"] != row["Output Data Types"] or outputs != shapes(
                row["Output Shapes"]
            ):
                continue
            known_forms = words(known["Input Formats"])
            ranks = [
                _rank(query, have, form, mine)
                for query, have, form, mine in zip(
                    asked,
                    inputs,
                    known_forms + ["ND"] * len(inputs),
                    forms + ["ND"] * len(asked),
                    strict=False,
                )
            ]
            if None in ranks:
                continue
            rank = max(ranks, default=0)
            if best is None or rank < best[0]:
                best = rank, known
        return None if best is None else (latency(best[1]), best[1])

    def interpolated(self, row: dict[str, str]) -> float | None:
        """Answer between rows: linear in the one free leading dimension, never outside the measured range."""
        asked = shapes(row["Input Shapes"])
        points: dict[int, list[float]] = {}
        for known, inputs, _ in self.rows:
            same = (
                words(known["Input Data Types"]) == words(row["Input Data Types"])
                and words(known["Input Formats"]) == words(row["Input Formats"])
                and len(inputs) == len(asked)
                and inputs[0][1:] == asked[0][1:]
                and (self.kernel not in MATMULS or inputs[1:] == asked[1:])
            )
            if same:
                points.setdefault(inputs[0][0], []).append(latency(known))
        axis = sorted(points)
        at = asked[0][0]
        if len(axis) < 2 or not axis[0] <= at <= axis[-1]:
            return None
        low = max(x for x in axis if x <= at)
        high = min(x for x in axis if x >= at)
        below, above = _median(points[low]), _median(points[high])
        return below if low == high else below + (above - below) * (at - low) / (high - low)


def _median(values: list[float]) -> float:
    ordered = sorted(values)
    half = len(ordered) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2


def _rank(query: tuple[int, ...], have: tuple[int, ...], form: str, query_form: str) -> int | None:
    """Return 0 for an equal tensor, 1 for one that fits after padding, ``None`` for another."""
    if query == have and form == query_form:
        return 0
    asked, known = restored(query, query_form), restored(have, form)
    if asked == known or asked == tuple(reversed(known)):
        return 0
    if len(asked) == len(known) and all(_padded(a, b) for a, b in zip(asked, known, strict=True)):
        return 1
    return None


def _padded(asked: int, known: int) -> bool:
    steps = (8, 16, 32, 64) if known >= 64 else (16, 32, 64)
    return asked == known or any(-(-asked // step) * step == known for step in steps)
