"""Read rows of SparseFlashAttention: shapes, lengths and which positions each query attends to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from perfcollect_core import Case, Row, Signature, Skip
from perfcollect_core.lengths import (
    Lengths,
    Pages,
    case_lengths,
    integer_column,
    paged_row_lengths,
    read_integers,
)
from perfcollect_core.tensors import format_shape

__all__ = ["PATTERNS", "attended_pairs", "check_shapes", "find_selection", "sequence_lengths", "valid_counts"]

#: ``uniform`` draws positions over the whole context, ``local`` takes half of them from its end.
PATTERNS = ("uniform", "local")

_NAMES = (
    "query",
    "key",
    "value",
    "sparse_indices",
    "block_table",
    "actual_seq_lengths_query",
    "actual_seq_lengths_kv",
    "query_rope",
    "key_rope",
)


def check_shapes(signature: Signature) -> Skip | None:
    """Refuse layouts that are not replayed; raises ``ValueError`` where slots contradict each other."""
    for index, name in enumerate(_NAMES):
        shape = signature.input(index).shape
        if not shape or 0 in shape:
            raise ValueError(f"slot {index} ({name}) is {format_shape(shape) or 'blank'}, expected a tensor")
    query, key, value, indices, table, _, _, query_rope, key_rope = (
        signature.input(index).shape or () for index in range(9)
    )
    if len(query) == 4:
        return Skip(f"slot 0 (query) is {format_shape(query)}: layout BSND is not replayed, only TND")
    if len(query) != 3 or query[2] != 512:
        raise ValueError(f"slot 0 (query) is {format_shape(query)}, expected T,N,512")
    if query[1] > 128 or query[1] & (query[1] - 1):
        raise ValueError(f"slot 0 (query) is {format_shape(query)}, expected a power of two up to 128 heads")
    if len(key) != 4 or key[2:] != (1, 512) or key[1] % 16 or key[1] > 1024:
        raise ValueError(
            f"slot 1 (key) is {format_shape(key)}, expected blocks of 16 to 1024 tokens of 1 x 512"
        )
    expected = {
        (2, "value"): (value, key),
        (7, "query_rope"): (query_rope, (*query[:2], 64)),
        (8, "key_rope"): (key_rope, (*key[:3], 64)),
        (3, "sparse_indices"): (indices, (query[0], 1, indices[-1])),
        (4, "block_table"): (table, (table[0], table[-1])),
    }
    for (index, name), (found, wanted) in expected.items():
        if found != wanted:
            raise ValueError(
                f"slot {index} ({name}) is {format_shape(found)}, expected {format_shape(wanted)}"
            )
    if signature.output().shape != query:
        found_text = format_shape(signature.output().shape) or "blank"
        raise ValueError(f"output slot 0 (attention_out) is {found_text}, expected {format_shape(query)}")
    return None


def sequence_lengths(row: Row, signature: Signature, seed: int) -> tuple[Lengths, Lengths]:
    """Return the query and cached tokens of each sequence; raises ``ValueError``."""
    query, key, table = (signature.input(index).shape or () for index in (0, 1, 4))
    counts = {(signature.input(index).shape or (0,))[0] for index in (4, 5, 6)}
    if len(counts) > 1:
        raise ValueError(f"slots 4, 5 and 6 have {sorted(counts)} sequences, expected one count")
    pages = Pages(key[0], key[1], table[1])
    try:
        return paged_row_lengths(row, tokens=query[0], count=table[0], pages=pages, seed=seed)
    except ValueError as error:
        raise ValueError(f"slot 1 (key) is {format_shape(key)}: {error}") from None


def find_selection(
    row: Row, signature: Signature, queries: Sequence[int], keys: Sequence[int], assumptions: list[str]
) -> dict[str, object]:
    """Return mask, scale and selection; what is not recorded is added to *assumptions*; raises ``ValueError``."""
    size = integer_column(row, "Runtime sparse_block_size")
    block = (signature.input(1).shape or (1, 1))[1]
    if size is None:
        size = 1
        assumptions.append("sparse_block_size=1 (not recorded: single positions)")
    if size < 1 or size > 128 or size & (size - 1) or block % size:
        raise ValueError(
            f"column 'Runtime sparse_block_size' is {size}, expected a power of two up to 128 that divides the block "
            f"size {block} of slot 1"
        )
    mode = integer_column(row, "Runtime sparse_mode")
    if mode not in (None, 0, 3):
        raise ValueError(f"column 'Runtime sparse_mode' is {mode}, expected 0 or 3")
    pattern = row.get("Runtime sparse_indices_pattern").lower()
    if pattern and pattern not in PATTERNS:
        raise ValueError(
            f"column 'Runtime sparse_indices_pattern' is {pattern!r}, expected {' or '.join(PATTERNS)}"
        )
    if not pattern:
        assumptions.append("sparse_indices_pattern=uniform (not recorded)")
    width = (signature.input(3).shape or (0,))[-1]
    valid = read_integers(row.get("Runtime sparse_indices_valid_count"))
    if len(valid) not in (0, 1, sum(queries)) or max(valid, default=0) > width:
        raise ValueError(
            f"column 'Runtime sparse_indices_valid_count' has {len(valid)} counts up to {max(valid)}, expected one, or "
            f"one for each of {sum(queries)} queries, of at most the {width} of slot 3"
        )
    assumptions.append("scale=192^-0.5 (not recorded, timing-neutral)")
    return {
        "q_lengths": tuple(queries),
        "kv_lengths": tuple(keys),
        "sparse_block_size": size,
        "sparse_mode": 3 if mode is None else mode,
        "pattern": pattern or "uniform",
        "valid": valid,
        "scale": 192**-0.5,
    }


def valid_counts(case: Case) -> list[int]:
    """Return how many positions each query attends to. Worker side: one entry a query."""
    counts: list[int] = []
    for q, kv in zip(*case_lengths(case), strict=True):
        for index in range(q):
            limit = kv - q + index + 1 if case.params["sparse_mode"] == 3 else kv
            counts.append(min(_listed(case, len(counts)), limit))
    return counts


def _listed(case: Case, query: int) -> int:
    """Return how many positions the list of one query names, whether it may see them or not."""
    width = (case.tensors["sparse_indices"].shape or (0,))[-1]
    recorded = cast("tuple[int, ...]", case.params["valid"])
    cap = recorded[min(query, len(recorded) - 1)] if recorded else width
    return min(width, cap) * cast("int", case.params["sparse_block_size"])


def attended_pairs(case: Case) -> tuple[int, int]:
    """Return the (query, key) pairs of one head, and the cache rows read where queries share what they can."""
    pairs = distinct = start = 0
    recorded = cast("tuple[int, ...]", case.params["valid"])
    for q, kv in zip(*case_lengths(case), strict=True):
        first = kv - q + 1 if case.params["sparse_mode"] == 3 else kv
        if len(recorded) > 1:
            limits = (first + index if case.params["sparse_mode"] == 3 else kv for index in range(q))
            own = sum(min(_listed(case, start + index), limit) for index, limit in enumerate(limits))
        else:
            # Without a loop: theory rows and mistakes have billions of queries.
            own = _clipped_sum(first, q, _listed(case, 0), rising=case.params["sparse_mode"] == 3)
        pairs += own
        distinct += min(own, kv)
        start += q
    return pairs, distinct


def _clipped_sum(first: int, count: int, cap: int, *, rising: bool) -> int:
    """Return the sum of ``min(cap, first + i)`` for i < *count*, or of ``min(cap, first)`` where not *rising*."""
    if not rising:
        return count * min(cap, first)
    below = min(count, max(0, cap - first))
    return below * first + below * (below - 1) // 2 + (count - below) * cap
