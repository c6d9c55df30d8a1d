"""One measured figure beside its target, and the table of all of them."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

__all__ = ["Figure", "print_figures"]


@attrs.frozen
class Figure:
    """A figure; ``reached`` is ``None`` where there is no target or it could not be measured here."""

    what: str
    value: str
    target: str
    reached: bool | None
    note: str = ""


def print_figures(figures: Sequence[Figure]) -> None:
    """Print the table, one line a figure, notes below it."""
    marks = {True: "reached", False: "MISSED", None: "-"}
    rows = [("figure", "measured", "target", "")]
    rows += [(f.what, f.value, f.target, marks[f.reached]) for f in figures]
    widths = [max(len(row[i]) for row in rows) for i in range(4)]
    for number, row in enumerate(rows):
        print("  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip())
        if number == 0:
            print("  ".join("-" * width for width in widths))
    for figure in figures:
        if figure.note:
            print(f"{figure.what}: {figure.note}")
