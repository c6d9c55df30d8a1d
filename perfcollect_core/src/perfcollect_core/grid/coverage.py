"""How densely the rows of a table cover the axes of its operator, planned and measured."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import zip_longest

import attrs

from perfcollect_core.cases import Row
from perfcollect_core.specs import Axis
from perfcollect_core.tables.columns import has_valid_duration
from perfcollect_core.tensors import normalise_dtype, normalise_format, split_slots

from .standard import AxisStandard, Hole, Promise, promise_of

__all__ = ["AxisCoverage", "BucketHoles", "CoverageMeter", "TableCoverage", "form_variant"]

GRID_RULE = "Grid Rule"
_SHOWN = 5


@attrs.frozen
class BucketHoles:
    """What one bucket (everything but the axis held fixed) lacks along an axis."""

    bucket: str
    holes: tuple[Hole, ...] = ()
    missing: tuple[int, ...] = ()

    def __str__(self) -> str:
        parts = [f"hole {hole}" for hole in self.holes]
        if self.missing:
            parts.append(f"no {', '.join(map(str, self.missing))}")
        return f"{self.bucket}: {'; '.join(parts)}"


@attrs.frozen(kw_only=True)
class AxisCoverage:
    """One axis of one table.

    ``anchors_missing`` are required values no row of the table has; ``owned`` counts the buckets judged (those with
    generated rows, or all where the table has none), ``short`` those of them that lack a point.
    """

    axis: str
    anchors: int
    anchors_missing: tuple[int, ...]
    ends_present: bool
    buckets: int
    points: int
    several: int
    owned: int
    compliant: int
    compliant_inside: int
    short: tuple[BucketHoles, ...] = ()

    @property
    def is_short(self) -> bool:
        return bool(self.anchors_missing) or self.owned != self.compliant

    @property
    def violating_pairs(self) -> int:
        return sum(len(bucket.holes) for bucket in self.short)

    def as_dict(self) -> dict[str, object]:
        """Return the numbers, as reports print them."""
        return {
            "axis": self.axis,
            "anchors": self.anchors - len(self.anchors_missing),
            "anchors_required": self.anchors,
            "anchors_missing": list(self.anchors_missing),
            "ends_present": self.ends_present,
            "violating_pairs": self.violating_pairs,
            "buckets": self.buckets,
            "points_per_bucket": round(self.points / self.buckets, 2) if self.buckets else 0.0,
            "buckets_with_two_points": self.several,
            "buckets_judged": self.owned,
            "buckets_compliant": self.compliant,
            "buckets_compliant_inside": self.compliant_inside,
            "holes": [str(bucket) for bucket in self.short[:50]],
        }


@attrs.frozen
class TableCoverage:
    """The axes of one table, over all its rows (planned) and over those with a valid duration (measured)."""

    table: str
    planned: tuple[AxisCoverage, ...]
    measured: tuple[AxisCoverage, ...]

    @property
    def short(self) -> tuple[AxisCoverage, ...]:
        return tuple(axis for axis in self.planned if axis.is_short)

    def as_dict(self) -> dict[str, object]:
        return {
            "table": self.table,
            "planned": [axis.as_dict() for axis in self.planned],
            "measured": [axis.as_dict() for axis in self.measured],
        }

    def findings(self) -> Iterable[str]:
        """Yield a sentence for everything the planned rows lack."""
        for axis in self.short:
            if axis.anchors_missing:
                yield f"axis {axis.axis}: required values missing: {_listed(axis.anchors_missing)}"
            for bucket in axis.short[:_SHOWN]:
                yield f"axis {axis.axis}: {bucket}"
            if len(axis.short) > _SHOWN:
                yield f"axis {axis.axis}: and {len(axis.short) - _SHOWN} more buckets that lack points"


def _listed(values: Sequence[int]) -> str:
    shown = ", ".join(map(str, values[:12]))
    return f"{shown} and {len(values) - 12} more" if len(values) > 12 else shown


class _AxisMeter:
    """The buckets of one axis: which values each has, as bits, so that memory grows with buckets and not with rows."""

    def __init__(self, index: int, promise: Promise) -> None:
        self.index, self.promise = index, promise
        self._bits: dict[int, int] = {}
        #: Values of all rows, values of measured rows, whether a row was generated.
        self._buckets: dict[tuple[object, ...], list[int]] = {}

    def add(self, variant: object, at: Sequence[int | None], generated: bool, measured: bool) -> None:
        index, value = self.index, at[self.index]
        bucket = (variant, *at[:index], *at[index + 1 :])
        entry = self._buckets.get(bucket)
        if entry is None:
            entry = self._buckets[bucket] = [0, 0, 0]
        assert value is not None
        bit = self._bits.get(value)
        if bit is None:
            bit = self._bits[value] = 1 << len(self._bits)
        entry[0] |= bit
        if measured:
            entry[1] |= bit
        if generated:
            entry[2] = 1

    def result(self, axes: Sequence[Axis], *, measured: bool) -> AxisCoverage:
        promise, which = self.promise, int(measured)
        masks = {bucket: entry[which] for bucket, entry in self._buckets.items() if entry[which]}
        owned = [b for b in masks if self._buckets[b][2]] or list(masks)
        seen, points, several = 0, 0, 0
        for mask in masks.values():
            seen |= mask
            count = bin(mask).count("1")
            points += count
            several += count > 1
        judged = {mask: self._judge(mask) for mask in {masks[bucket] for bucket in owned}}
        lacking = sorted((b for b in owned if any(judged[masks[b]])), key=repr)
        present = set(self._values(seen))
        others = [axis.name for i, axis in enumerate(axes) if i != self.index]
        return AxisCoverage(
            axis=promise.axis.name,
            anchors=len(promise.required),
            anchors_missing=tuple(v for v in promise.required if v not in present),
            ends_present=promise.low in present and promise.high in present,
            buckets=len(masks),
            points=points,
            several=several,
            owned=len(owned),
            compliant=len(owned) - len(lacking),
            compliant_inside=sum(not judged[masks[bucket]][0] for bucket in owned),
            short=tuple(BucketHoles(_named(others, b), *judged[masks[b]]) for b in lacking),
        )

    def _values(self, mask: int) -> list[int]:
        return sorted(value for value, bit in self._bits.items() if mask & bit)

    def _judge(self, mask: int) -> tuple[tuple[Hole, ...], tuple[int, ...]]:
        """Return the holes between the values of a bucket, and the required values it lacks."""
        values, promise = self._values(mask), self.promise
        low, high = (values[0], values[-1]) if promise.axis.own_range else (promise.low, promise.high)
        missing = tuple(v for v in promise.required if low <= v <= high and v not in values)
        return tuple(promise.standard.holes(values)), missing


def _named(axes: Sequence[str], bucket: tuple[object, ...]) -> str:
    return " ".join(f"{name}={value}" for name, value in zip(axes, bucket[1:], strict=True)) or "all rows"


class CoverageMeter:
    """Counts the rows of one table; ``result`` says how they cover the axes."""

    def __init__(self, axes: Sequence[Axis], standards: Mapping[str, AxisStandard]) -> None:
        self._axes = tuple(axes)
        found = [(index, promise_of(axis, standards)) for index, axis in enumerate(axes)]
        self._meters = [_AxisMeter(index, promise) for index, promise in found if promise is not None]

    def add(self, row: Row) -> None:
        """Count *row*; one that an axis cannot be read off is left out."""
        at = tuple(axis.extract(row) for axis in self._axes)
        if None not in at:
            self.add_at(_variant(row), at, bool(row.get(GRID_RULE)), has_valid_duration(row.cells))

    def add_at(
        self, variant: object, at: Sequence[int | None], generated: bool, measured: bool = False
    ) -> None:
        """Count a row whose place on the axes is known."""
        for meter in self._meters:
            meter.add(variant, at, generated, measured)

    def result(self, table: str) -> TableCoverage:
        """Return the coverage so far, of all rows and of the measured ones."""
        planned, measured = (
            tuple(meter.result(self._axes, measured=which) for meter in self._meters)
            for which in (False, True)
        )
        return TableCoverage(table, planned, measured)


def _variant(row: Row) -> tuple[str, ...]:
    """Return what tells variants of a row apart beside its axes: types, formats and ranks."""
    ranks = row.get("Input Shapes").translate(_RANKS)
    return form_variant(
        row.get("Input Data Types"), row.get("Input Formats"), row.get("Output Data Types"), ranks
    )


_RANKS = {ord(digit): None for digit in "0123456789 "}


@lru_cache(maxsize=4096)
def form_variant(dtypes: str, formats: str, outputs: str, ranks: str) -> tuple[str, ...]:
    """Return the variant of a row, whatever spelling its types have and however many blank slots end it."""
    words = [normalise_dtype(word) for word in split_slots(dtypes)]
    forms = [form if word else "" for word, form in zip_longest(words, split_slots(formats), fillvalue="")]
    sides = (words, [normalise_format(form) for form in forms], ranks.split(";"))
    results = [normalise_dtype(word) for word in split_slots(outputs)]
    return (*(";".join(side).rstrip(";") for side in sides), ";".join(results).rstrip(";"))
