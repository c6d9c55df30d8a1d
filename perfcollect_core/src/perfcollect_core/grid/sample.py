"""Which theory rows to take where a table's cap leaves no room for all (the same on every machine)."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Collection, Iterator, Sequence

import attrs

from .standard import Promise
from .theory import TheoryRow

__all__ = ["STRATA", "Pick", "order_rows", "strata_counts", "table_seed"]

#: Why a row is taken, in the order of importance.
STRATA = ("critical", "kept", "required", "curve", "filling")


@attrs.frozen
class Pick:
    """The place of a row among the candidates, and why it comes here in the order."""

    index: int
    stratum: str


def table_seed(seed: int, table: str) -> str:
    """Return the seed of one table: it depends on no other table."""
    return f"{seed}\x1f{table}"


def _rank(seed: str, key: object) -> bytes:
    return hashlib.blake2b(f"{seed}\x1f{key!r}".encode(), digest_size=8).digest()


Bucket = tuple[object, ...]


def order_rows(
    rows: Sequence[TheoryRow],
    promises: Sequence[Promise | None],
    seed: str,
    room: int,
    *,
    critical: Collection[int] = (),
    present: Collection[int] = (),
) -> Iterator[Pick]:
    """Yield every candidate once, the most important first.

    Queries asked for by name come first, then what an earlier run generated, then rows that hit the required values
    and the ends of every axis (of every curve, where that leaves most of the room), then whole curves along the first axis (as many as *room* rows hold), then points of
    the other curves from coarse to fine.

    Args:
        rows: The candidates.
        promises: What each axis of the operator promises; the first axis is the one curves run along.
        seed: Seed of this table.
        room: The cap.
        critical: Indices of rows that were asked for by name.
        present: Indices of rows that an earlier run generated.
    """
    taken: set[int] = set()

    def fresh(indices: Iterator[int] | Collection[int], stratum: str) -> Iterator[Pick]:
        for index in indices:
            if index not in taken:
                taken.add(index)
                yield Pick(index, stratum)

    yield from fresh(sorted(critical), "critical")
    yield from fresh(sorted(present), "kept")
    curves = _curves(rows)
    order = sorted(curves, key=lambda bucket: _rank(seed, bucket))
    chosen = _covering(order, promises)
    # Where there is room, no curve (a projection of a model) goes without its ends.
    every = [*chosen, *(b for b in order if b not in set(chosen))] if 8 * len(curves) <= room else chosen
    yield from fresh(_anchors(curves, every, promises[0] if promises else None), "required")
    preferred = [*chosen, *(bucket for bucket in order if bucket not in set(chosen))]
    last = len(preferred)
    for position, bucket in enumerate(preferred):
        missing = [index for _, index in curves[bucket] if index not in taken]
        if len(taken) + len(missing) > room:
            last = position
            break
        yield from fresh(missing, "curve")
    rest = [curves[bucket] for bucket in preferred[last:]]
    yield from fresh(_coarse_to_fine(rest), "filling")


def _curves(rows: Sequence[TheoryRow]) -> dict[Bucket, list[tuple[int, int]]]:
    """Return the candidates of each bucket as (value on the first axis, index), in the order of the values."""
    curves: dict[Bucket, list[tuple[int, int]]] = {}
    for index, row in enumerate(rows):
        first, others = (row.at[0] or 0, row.at[1:]) if row.at else (0, ())
        curves.setdefault((*_form_key(row), *others), []).append((first, index))
    for points in curves.values():
        points.sort()
    return curves


def _form_key(row: TheoryRow) -> tuple[object, ...]:
    one = row.form
    return (one.input_dtypes, one.input_formats, one.output_dtypes, one.kind)


def _covering(order: Sequence[Bucket], promises: Sequence[Promise | None]) -> list[Bucket]:
    """Return buckets that together hit every required value of the axes curves do not run along."""
    by_value: dict[tuple[int, object], list[Bucket]] = {}
    wanted: dict[tuple[int, object], None] = {}
    count = len(promises) - 1
    for bucket in order:
        for axis, value in enumerate(bucket[len(bucket) - count :] if count > 0 else ()):
            by_value.setdefault((axis, value), []).append(bucket)
    for axis, promise in enumerate(promises[1:]):
        for value in promise.required if promise else ():
            if (axis, value) in by_value:
                wanted[axis, value] = None
    chosen: list[Bucket] = []
    for need in list(wanted):
        if need not in wanted:
            continue
        best = max(by_value[need], key=lambda bucket: sum(hit in wanted for hit in _hits(bucket, count)))
        chosen.append(best)
        for hit in _hits(best, count):
            wanted.pop(hit, None)
    return chosen


def _hits(bucket: Bucket, count: int) -> list[tuple[int, object]]:
    return list(enumerate(bucket[len(bucket) - count :])) if count > 0 else []


def _anchors(
    curves: dict[Bucket, list[tuple[int, int]]], chosen: Sequence[Bucket], promise: Promise | None
) -> Iterator[int]:
    """Yield the ends of the chosen curves, and one row for each required value of the first axis."""
    buckets = chosen or list(curves)[:1]
    for bucket in buckets:
        yield curves[bucket][0][1]
        yield curves[bucket][-1][1]
    wanted = set(promise.required if promise else ())
    for bucket in (*buckets, *curves):
        if not wanted:
            return
        for value, index in curves[bucket]:
            if value in wanted:
                wanted.discard(value)
                yield index


def _coarse_to_fine(curves: Sequence[list[tuple[int, int]]]) -> Iterator[int]:
    """Yield the ends of every curve, then middles, then quarters: whatever is cut off, what is there is spread out."""
    orders = [_spread(len(points)) for points in curves]
    for step in range(max(map(len, orders), default=0)):
        for points, order in zip(curves, orders, strict=True):
            if step < len(order):
                yield points[order[step]][1]


def _spread(count: int) -> list[int]:
    if count < 3:
        return list(range(count))
    found, spans = [0, count - 1], [(0, count - 1)]
    for low, high in spans:
        middle = (low + high) // 2
        if middle not in (low, high):
            found.append(middle)
            spans += [(low, middle), (middle, high)]
    return found


def strata_counts(picks: Sequence[Pick]) -> dict[str, int]:
    """Return how many rows each stratum got, in the order of the strata."""
    counts = Counter(pick.stratum for pick in picks)
    return {stratum: counts[stratum] for stratum in STRATA if counts[stratum]}
