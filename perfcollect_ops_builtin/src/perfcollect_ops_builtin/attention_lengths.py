"""Find how many query and key tokens each sequence of a fused attention row has."""

from __future__ import annotations

from collections.abc import Sequence

from perfcollect_core import OperatorSpec, Row, Signature, case_seed
from perfcollect_core.lengths import (
    KEY_LENGTHS_COLUMN,
    MAX_SEQUENCES,
    QUERY_LENGTHS_COLUMN,
    Lengths,
    Pages,
    even_lengths,
    integer_column,
    number_column,
    page_lengths,
    query_lengths,
    read_integers,
    split_lengths,
)

from .attention_geometry import Geometry
from .attention_layout import name_slot

__all__ = ["key_lengths", "query_tokens", "sequence_count"]


def sequence_count(geometry: Geometry, signature: Signature, row: Row) -> int:
    counts = {
        f"slot {index}": (signature.input(index).shape or (0,))[0]
        for index in (5, 6, 14)
        if not signature.input(index).is_absent
    }
    if geometry.batch:
        counts["slot 0 (query)"] = geometry.batch
    batch = integer_column(row, "Batch", "Runtime batch_size")
    if batch:
        counts["column 'Batch'"] = batch
    # Host lists of one entry mean that every sequence has that length.
    several = {name: count for name, count in counts.items() if count > 1 or not geometry.batch}
    if len(set(several.values())) > 1:
        found = ", ".join(f"{name} has {count}" for name, count in several.items())
        raise ValueError(f"sequences disagree: {found}")
    count = next(iter(several.values()), geometry.batch)
    if count > MAX_SEQUENCES:
        raise ValueError(f"{next(iter(several))} has {count} sequences, expected at most {MAX_SEQUENCES}")
    return count


def query_tokens(geometry: Geometry, row: Row, count: int, assumptions: list[str]) -> tuple[int, ...]:
    recorded = read_integers(row.get(QUERY_LENGTHS_COLUMN))
    if geometry.packed:
        each = integer_column(row, "Seq Len")
        if not recorded and each and count:
            if count * each == geometry.queries:
                return (each,) * count
            if count != geometry.queries:
                raise ValueError(
                    f"slot 0 (query) holds {geometry.queries} tokens, expected {count} x {each} as recorded"
                )
        found = query_lengths(recorded, geometry.queries, count, QUERY_LENGTHS_COLUMN)
    else:
        values = tuple(recorded) * (geometry.batch if len(recorded) == 1 else 1)
        found = Lengths(values or (geometry.queries,) * geometry.batch)
        if len(found.values) != geometry.batch or not all(0 < q <= geometry.queries for q in found.values):
            raise ValueError(
                f"column {QUERY_LENGTHS_COLUMN!r} holds {len(found.values)} lengths up to {max(found.values)}, expected "
                f"{geometry.batch} of 1..{geometry.queries}"
            )
    if found.assumption:
        assumptions.append(found.assumption)
    return found.values


def key_lengths(
    spec: OperatorSpec,
    geometry: Geometry,
    signature: Signature,
    row: Row,
    queries: Sequence[int],
    assumptions: list[str],
) -> tuple[int, ...]:
    recorded = read_integers(row.get(KEY_LENGTHS_COLUMN))
    if geometry.cache:
        found = _cached_lengths(spec, geometry, signature, row, queries, recorded)
    elif geometry.packed:
        found = _packed_key_lengths(geometry, queries, recorded)
    else:
        values = tuple(recorded) * (geometry.batch if len(recorded) == 1 else 1)
        found = Lengths(values or (geometry.keys,) * geometry.batch)
        if len(found.values) != geometry.batch or not all(0 < kv <= geometry.keys for kv in found.values):
            raise ValueError(
                f"column {KEY_LENGTHS_COLUMN!r} holds {len(found.values)} lengths up to {max(found.values)}, expected "
                f"{geometry.batch} of 1..{geometry.keys} as slot 1 (key) holds"
            )
    if found.assumption:
        assumptions.append(found.assumption)
    return found.values


def _cached_lengths(
    spec: OperatorSpec,
    geometry: Geometry,
    signature: Signature,
    row: Row,
    queries: Sequence[int],
    recorded: Sequence[int],
) -> Lengths:
    table, key = signature.input(14), signature.input(1)
    if table.shape is None or len(table.shape) != 2 or table.shape[0] != len(queries):
        raise ValueError(f"{name_slot(14, table)}, expected one row for each of the {len(queries)} sequences")
    try:
        return page_lengths(
            recorded,
            number_column(row, "Runtime avg_seq_len", "Seq Len"),
            read_integers(row.get("Runtime block_table_valid_blocks")),
            queries=queries,
            pages=Pages((key.shape or (0,))[0], geometry.block_size, table.shape[1]),
            seed=case_seed(spec.name, row.ref.key),
            column=KEY_LENGTHS_COLUMN,
        )
    except ValueError as error:
        raise ValueError(f"{name_slot(1, key)}: {error}") from None


def _packed_key_lengths(geometry: Geometry, queries: Sequence[int], recorded: Sequence[int]) -> Lengths:
    total, count = geometry.keys, len(queries)
    if recorded:
        split = split_lengths(recorded, total)
        if split is None or len(split) != count:
            raise ValueError(
                f"column {KEY_LENGTHS_COLUMN!r} has {len(recorded)} entries and ends at {recorded[-1]}, expected {count} "
                f"sequences that make up the {total} keys of slot 1"
            )
        return Lengths(split)
    if total == geometry.queries:
        return Lengths(tuple(queries))
    if total < count:
        raise ValueError(
            f"slot 1 (key) holds {total} keys, expected at least one for each of {count} sequences"
        )
    why = "one sequence" if count == 1 else "not recorded: split evenly"
    return Lengths(even_lengths(total, count), f"kv_lengths={total} over {count} ({why})")
