"""How densely the rows of a table cover the axes of its operator, planned and measured."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
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


class CoverageMeter:
    """Counts the rows of one table; ``result`` says how they cover the axes."""

    def __init__(self, axes: Sequence[Axis], standards: Mapping[str, AxisStandard]) -> None:
        self._axes = tuple(axes)
        found = [(index, promise_of(axis, standards)) for index, axis in enumerate(axes)]
        self._promises: list[tuple[int, Promise]] = [(i, p) for i, p in found if p is not None]
        # Variant and values of a row: generated, measured.
        self._rows: dict[tuple[object, ...], tuple[bool, bool]] = {}

    def add(self, row: Row) -> None:
        """Count *row*; one that an axis cannot be read off is left out."""
        at = tuple(axis.extract(row) for axis in self._axes)
        if None not in at:
            self.add_at(_variant(row), at, bool(row.get(GRID_RULE)), has_valid_duration(row.cells))

    def add_at(
        self, variant: object, at: tuple[int | None, ...], generated: bool, measured: bool = False
    ) -> None:
        """Count a row whose place on the axes is known."""
        key = (variant, *at)
        old = self._rows.get(key)
        self._rows[key] = (generated, measured) if old is None else (old[0] or generated, old[1] or measured)

    def result(self, table: str) -> TableCoverage:
        planned = tuple(self._axis(index, promise, lambda mark: True) for index, promise in self._promises)
        measured = tuple(
            self._axis(index, promise, lambda mark: mark[1]) for index, promise in self._promises
        )
        return TableCoverage(table, planned, measured)

    def _axis(
        self, index: int, promise: Promise, counts: Callable[[tuple[bool, bool]], bool]
    ) -> AxisCoverage:
        buckets: dict[tuple[object, ...], set[int]] = {}
        generated: set[tuple[object, ...]] = set()
        seen: set[int] = set()
        for key, mark in self._rows.items():
            if not counts(mark):
                continue
            value = key[index + 1]
            assert isinstance(value, int)
            bucket = (*key[: index + 1], *key[index + 2 :])
            buckets.setdefault(bucket, set()).add(value)
            seen.add(value)
            if mark[0]:
                generated.add(bucket)
        owned = generated or set(buckets)
        short, inside = [], 0
        for bucket in sorted(owned, key=repr):
            values = sorted(buckets[bucket])
            holes = tuple(promise.standard.holes(values))
            inside += not holes
            missing = self._missing(promise, set(values))
            if holes or missing:
                short.append(BucketHoles(self._name(index, bucket), holes, missing))
        return AxisCoverage(
            axis=promise.axis.name,
            anchors=len(promise.required),
            anchors_missing=tuple(v for v in promise.required if v not in seen),
            ends_present=promise.low in seen and promise.high in seen,
            buckets=len(buckets),
            points=sum(map(len, buckets.values())),
            several=sum(len(values) > 1 for values in buckets.values()),
            owned=len(owned),
            compliant=len(owned) - len(short),
            compliant_inside=inside,
            short=tuple(short),
        )

    @staticmethod
    def _missing(promise: Promise, values: set[int]) -> tuple[int, ...]:
        if promise.axis.own_range:
            low, high = min(values), max(values)
            return tuple(v for v in promise.required if low <= v <= high and v not in values)
        return tuple(v for v in promise.required if v not in values)

    def _name(self, index: int, bucket: tuple[object, ...]) -> str:
        others = [axis.name for i, axis in enumerate(self._axes) if i != index]
        return (
            " ".join(f"{name}={value}" for name, value in zip(others, bucket[1:], strict=True)) or "all rows"
        )


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
