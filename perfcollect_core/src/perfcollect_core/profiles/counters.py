"""Parse the hardware counters of a frame: what is no plausible number is left out, never read as zero."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from .frames import LINE
from .layouts import COUNTERS
from .ledger import FileLedger
from .numbers import COUNTER_LIMIT, is_missing, parse_number

if TYPE_CHECKING:
    import polars as pl

__all__ = ["parse_counters"]

_MAX_IMPLAUSIBLE = 1000


def parse_counters(frame: pl.DataFrame, columns: Sequence[str], ledger: FileLedger) -> pl.DataFrame:
    """Replace the text of the counter *columns* by numbers, null where there is none.

    A cell of a standard counter that says something and is no plausible number is entered into *ledger*.
    """
    import polars as pl

    counters = [name for name in columns if name in frame.columns]
    if not counters:
        return frame
    texts = frame.select(counters)
    numbers = texts.select(pl.all().cast(pl.Float64, strict=False))
    sums, least = numbers.select(pl.all().sum()).row(0), numbers.select(pl.all().min()).row(0)
    fixed = []
    for name, total, low in zip(counters, sums, least, strict=True):
        # A finite sum has neither NaN nor infinity in it, and no term above it where none is negative.
        sound = low is None or (low >= 0 and total < COUNTER_LIMIT)
        if not sound or numbers[name].null_count() != texts[name].null_count():
            fixed.append(_fix_counter(name, frame[LINE], texts[name], numbers[name], ledger))
    return frame.drop(counters).with_columns(numbers.with_columns(fixed) if fixed else numbers)


def _fix_counter(
    name: str, lines: pl.Series, texts: pl.Series, numbers: pl.Series, ledger: FileLedger
) -> pl.Series:
    import polars as pl

    plausible = numbers.is_between(0, COUNTER_LIMIT, closed="left").fill_null(False)
    values = numbers.to_list()
    for index in (~plausible & texts.is_not_null() & (texts != "N/A")).arg_true():
        text = texts[index]
        value = None if is_missing(text) else parse_number(text)
        values[index] = value if value is not None and 0 <= value < COUNTER_LIMIT else None
        if values[index] is None and not is_missing(text) and name in COUNTERS:
            ledger.implausible_count += 1
            if len(ledger.implausible) < _MAX_IMPLAUSIBLE:
                ledger.implausible.append((lines[index], name, text.strip()))
    return pl.Series(name, values, dtype=pl.Float64)
