"""Collectives of one file: counted by type, each once although the profiler records it twice."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from .frames import LINE
from .layouts import START, STREAM
from .ledger import FileLedger
from .numbers import is_missing

if TYPE_CHECKING:
    import polars as pl

__all__ = ["MIRRORED", "Collectives"]

MIRRORED = "second record of a collective (on its hardware stream)"


class Collectives:
    """Gathers the collectives of a file; some thirty bytes a record, since pairs may lie far apart."""

    def __init__(self) -> None:
        self._parts: list[pl.DataFrame] = []
        self._types: dict[str, int] = {}

    def add(self, frame: pl.DataFrame, grouped: pl.DataFrame, types: Mapping[int, str]) -> None:
        """Take the rows of *frame* in those groups that are collectives (index to type)."""
        import polars as pl

        numbers = [self._types.setdefault(name, len(self._types)) for name in types.values()]
        lines = grouped[LINE].gather(list(types))
        records = pl.DataFrame([lines, pl.Series("type", numbers, dtype=pl.UInt32)]).explode(LINE)
        rows = records.join(frame, on=LINE, how="left", maintain_order="left")
        start = pl.col(START).str.strip_chars() if START in frame.columns else pl.lit("")
        stream = rows[STREAM] if STREAM in frame.columns else pl.Series([None] * rows.height, dtype=pl.String)
        hidden = [text for text in stream.unique() if is_missing(text)]
        self._parts.append(
            rows.select(
                LINE,
                "type",
                "ps",
                pl.struct("type", start.alias("start"), "ps").hash().alias("call"),
                (stream.is_null() | stream.is_in([text for text in hidden if text is not None])).alias(
                    "hidden"
                ),
            )
        )

    def settle(self, ledger: FileLedger, *, mirrored: bool) -> None:
        """Enter the collectives into *ledger*; *mirrored* sets the second record of a call aside."""
        import polars as pl

        if not self._parts:
            return
        records = pl.concat(self._parts)
        if mirrored:
            # A pair is one record without a stream and one on a stream, equal otherwise.
            hidden = pl.col("hidden").sum().over("call")
            place = pl.int_range(pl.len()).over("call", "hidden")
            second = ~pl.col("hidden") & (place < hidden)
            copies = records.filter(second)
            if copies.height:
                ledger.set_aside(MIRRORED, copies[LINE].to_list(), int(copies["ps"].sum()))
                ledger.harmless.add(MIRRORED)
            records = records.filter(~second)
        names = list(self._types)
        counted = records.group_by("type").agg(pl.len().alias("count"), pl.col("ps").sum()).sort("type")
        for number, count, time_ps in counted.iter_rows():
            ledger.set_apart("collective", names[number], count, time_ps)
