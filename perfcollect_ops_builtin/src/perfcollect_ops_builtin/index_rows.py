"""Read rows of the lightning indexer: shapes, lengths and modes."""

from __future__ import annotations

from perfcollect_core import Row, Signature
from perfcollect_core.lengths import (
    KEY_LENGTHS_COLUMN,
    MAX_SEQUENCES,
    QUERY_LENGTHS_COLUMN,
    Lengths,
    Pages,
    even_lengths,
    integer_column,
    paged_row_lengths,
    query_lengths,
    read_integers,
    split_lengths,
)
from perfcollect_core.tensors import format_shape

__all__ = ["check_shapes", "find_modes", "sequence_lengths"]


def _shape(signature: Signature, index: int) -> tuple[int, ...]:
    shape = signature.input(index).shape
    if not shape or 0 in shape:
        name = ("query", "key", "weights")[index]
        raise ValueError(f"slot {index} ({name}) is {format_shape(shape) or 'blank'}, expected a tensor")
    return shape


def check_shapes(signature: Signature) -> None:
    """Check the slots against each other and the kernel's limits; raises ``ValueError``."""
    query, key, weights = (_shape(signature, index) for index in (0, 1, 2))
    if len(query) not in (3, 4) or query[-1] != 128 or not 0 < query[-2] <= 64:
        raise ValueError(f"slot 0 (query) is {format_shape(query)}, expected 1 to 64 heads of 128 last")
    if key[-2:] != (1, 128) or len(key) not in (3, 4):
        raise ValueError(f"slot 1 (key) is {format_shape(key)}, expected one head of 128 last")
    if weights != query[:-1]:
        raise ValueError(f"slot 2 (weights) is {format_shape(weights)}, expected {format_shape(query[:-1])}")
    table = signature.input(5).shape
    if table is not None and (len(key) != 4 or key[1] % 16 or not 0 < key[1] <= 1024):
        raise ValueError(
            f"slot 1 (key) is {format_shape(key)}, expected blocks of 16 to 1024 tokens (a multiple of 16)"
        )
    if table is None and len(key) != len(query):
        raise ValueError(
            f"slot 1 (key) is {format_shape(key)}, expected {len(query)} dimensions as the query"
        )
    out = signature.output().shape
    if out is None or out[:-1] != (*query[:-2], 1):
        raise ValueError(
            f"output slot 0 (sparse_indices) is {format_shape(out) or 'blank'}, expected "
            f"{format_shape((*query[:-2], 1))} and the number of keys to pick"
        )
    if not (1 <= out[-1] <= 2048 or (out[-1] <= 8192 and out[-1] % 1024 == 0)):
        raise ValueError(
            f"output slot 0 picks {out[-1]} keys, expected 1 to 2048 or a multiple of 1024 up to 8192"
        )


def sequence_lengths(row: Row, signature: Signature, seed: int) -> tuple[Lengths, Lengths]:
    """Return the query and key tokens of each sequence; raises ``ValueError``."""
    query, key, table = (signature.input(index).shape or () for index in (0, 1, 5))
    counts = {(signature.input(index).shape or (0,))[0] for index in (3, 4, 5)} - {0}
    if len(query) == 4:
        counts.add(query[0])
    if len(counts) > 1:
        raise ValueError(f"slots 3, 4 and 5 have {sorted(counts)} sequences, expected one count")
    count = next(iter(counts), 0)
    if count > MAX_SEQUENCES:
        raise ValueError(
            f"slot 0 (query) is {format_shape(query)}: {count} sequences, expected at most {MAX_SEQUENCES}"
        )
    if table:
        if len(table) != 2:
            raise ValueError(f"slot 5 (block_table) is {format_shape(table)}, expected one row a sequence")
        pages = Pages(key[0], key[1], table[1])
        tokens = query[0] if len(query) == 3 else query[0] * query[1]
        try:
            return paged_row_lengths(row, tokens=tokens, count=count, pages=pages, seed=seed)
        except ValueError as error:
            raise ValueError(f"slot 1 (key) is {format_shape(key)}: {error}") from None
    if len(query) == 4:
        lengths = Lengths((query[1],) * query[0]), Lengths((key[1],) * key[0])
    else:
        lengths = _packed(row, query[0], key[0], count)
    for q, kv in zip(lengths[0].values, lengths[1].values, strict=True):
        if kv < q:
            raise ValueError(
                f"slot 1 (key) is {format_shape(key)}: {kv} keys for {q} causal queries of a sequence"
            )
    return lengths


def _packed(row: Row, queries: int, keys: int, count: int) -> tuple[Lengths, Lengths]:
    found = query_lengths(read_integers(row.get(QUERY_LENGTHS_COLUMN)), queries, count, QUERY_LENGTHS_COLUMN)
    recorded = read_integers(row.get(KEY_LENGTHS_COLUMN))
    split = split_lengths(recorded, keys) if recorded else None
    if recorded and (split is None or len(split) != len(found.values)):
        raise ValueError(
            f"column {KEY_LENGTHS_COLUMN!r} ends at {recorded[-1]}, expected the {keys} keys of slot 1"
        )
    if split is None and keys == queries:
        return found, Lengths(found.values)
    even = f"kv_lengths={keys} over {len(found.values)} (not recorded: split evenly)"
    return found, Lengths(split) if split else Lengths(even_lengths(keys, len(found.values)), even)


def find_modes(row: Row, signature: Signature) -> dict[str, object]:
    """Return layouts, top-k and mask of the call; raises ``ValueError`` where columns and slots contradict."""
    query, key, out = signature.input(0), signature.input(1), signature.output()
    topk = (out.shape or (0,))[-1]
    for column, found in (
        ("Runtime topk", topk),
        ("Runtime num_heads", (query.shape or (0, 0))[-2]),
        ("Runtime block_size", (key.shape or (0, 0))[1]),
    ):
        recorded = integer_column(row, column)
        if recorded is not None and recorded != found:
            raise ValueError(f"column {column!r} is {recorded}, expected {found} as in the slots")
    mode = integer_column(row, "Runtime sparse_mode")
    if mode not in (None, 0, 3):
        raise ValueError(f"column 'Runtime sparse_mode' is {mode}, expected 0 or 3")
    layout = "TND" if len(query.shape or ()) == 3 else "BSND"
    values = signature.output(1)
    return {
        "layout_query": layout,
        "layout_key": layout if signature.input(5).is_absent else "PA_BSND",
        "topk": topk,
        "sparse_mode": 3 if mode is None else mode,
        "return_value": values.shape == out.shape,
    }
