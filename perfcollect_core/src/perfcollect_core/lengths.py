"""Sequence lengths as attention rows record them, and how they are completed where they do not (parent side)."""

from __future__ import annotations

import hashlib
import math
import random
import re
from collections.abc import Sequence
from itertools import pairwise
from typing import cast

import attrs

from .cases import Case, Row
from .tensors import TensorSpec

__all__ = [
    "KEY_LENGTHS_COLUMN",
    "MAX_SEQUENCES",
    "QUERY_LENGTHS_COLUMN",
    "Lengths",
    "Pages",
    "case_lengths",
    "even_lengths",
    "integer_column",
    "jittered_lengths",
    "lengths_key",
    "number_column",
    "page_lengths",
    "paged_row_lengths",
    "query_lengths",
    "read_integers",
    "split_lengths",
    "tensor_key",
]

QUERY_LENGTHS_COLUMN = "Runtime actual_seq_lengths_values"
KEY_LENGTHS_COLUMN = "Runtime actual_seq_lengths_kv_values"
#: More sequences in one call are a mistake in the row; kernels take 4096.
MAX_SEQUENCES = 1 << 16


@attrs.frozen
class Lengths:
    """Tokens of each sequence, and what was assumed to get them (``None``: the row records them)."""

    values: tuple[int, ...]
    assumption: str | None = None


@attrs.frozen
class Pages:
    """A paged cache: physical blocks in the pool, tokens in a block, and columns of the block table."""

    blocks: int
    block_size: int
    columns: int


def read_integers(text: str) -> tuple[int, ...]:
    """Read a list cell of integers (``"1,2,3"``, ``[1; 2]``); a blank cell is empty.

    Raises:
        ValueError: An entry is not a non-negative integer.
    """
    values = []
    for word in re.split(r"[;,\s]+", text.strip(' \t"[]();,')):
        if not word:
            continue
        if not re.fullmatch(r"[0-9]+(\.0+)?", word, re.ASCII):
            raise ValueError(f"list {text!r} has entry {word!r}, expected a non-negative integer")
        values.append(int(word.partition(".")[0]))
    return tuple(values)


def number_column(row: Row, *columns: str) -> float | None:
    """Return the first of *columns* that holds a number.

    Raises:
        ValueError: It holds something else.
    """
    for column in columns:
        text = row.get(column)
        if text:
            try:
                value = float(text)
            except ValueError:
                value = math.nan
            if not math.isfinite(value):
                raise ValueError(f"column {column!r} is {text!r}, expected a number")
            return value
    return None


def integer_column(row: Row, *columns: str) -> int | None:
    """Return the first of *columns* that holds a number, as an integer.

    Raises:
        ValueError: It holds something else.
    """
    value = number_column(row, *columns)
    return None if value is None else int(value)


def split_lengths(values: Sequence[int], total: int) -> tuple[int, ...] | None:
    """Return the tokens of each packed sequence out of cumulative or single lengths that make up *total*.

    ``None`` where the values do neither.
    """
    rising = all(left <= right for left, right in pairwise(values))
    if values and rising and values[-1] == total:
        return tuple(right - left for left, right in pairwise((0, *values)))
    return tuple(values) if sum(values) == total else None


def even_lengths(total: int, count: int) -> tuple[int, ...]:
    """Split *total* tokens into *count* sequences whose lengths differ by one at most, the longer ones first."""
    short, rest = divmod(total, count)
    return tuple(short + (index < rest) for index in range(count))


def jittered_lengths(mean: float, count: int, low: int, high: int, seed: int) -> tuple[int, ...]:
    """Draw *count* log-normal lengths of the given *mean* within [low, high]; their sum is kept where bounds allow.

    Requests in one batch have different ages: equal lengths would hide the load imbalance that kernels see.
    """
    total = min(max(round(mean * count), low * count), high * count)
    draw = random.Random(seed)
    weights = [draw.lognormvariate(0.0, 0.25) for _ in range(count)]
    lengths = [min(max(round(w * total / sum(weights)), low), high) for w in weights]
    spare = total - sum(lengths)
    for index in sorted(range(count), key=lengths.__getitem__, reverse=spare < 0):
        step = min(spare, high - lengths[index]) if spare > 0 else max(spare, low - lengths[index])
        lengths[index] += step
        spare -= step
    return tuple(lengths)


def query_lengths(recorded: Sequence[int], total: int, count: int, column: str) -> Lengths:
    """Return the query tokens of each of *count* packed sequences (0: not known) out of *total*.

    Raises:
        ValueError: The list recorded in *column*, the count and the tokens do not go together.
    """
    if recorded:
        split = split_lengths(recorded, total)
        if split is None or 0 in split:
            raise ValueError(
                f"column {column!r} ends at {recorded[-1]} and sums to {sum(recorded)}, expected {total} query "
                "tokens in sequences of one or more"
            )
        if count and len(split) != count:
            raise ValueError(
                f"column {column!r} has {len(split)} sequences, expected {count} as in the slots"
            )
        return Lengths(split)
    if count > MAX_SEQUENCES:
        raise ValueError(f"{count} sequences, expected at most {MAX_SEQUENCES}")
    if count > total:
        raise ValueError(f"{total} query tokens for {count} sequences, expected at least one each")
    if count == total:
        return Lengths((1,) * total, f"query_lengths=1 x {total} (as many sequences as query tokens: decode)")
    if count <= 1:
        return Lengths(
            (total,), None if count else f"query_lengths={total} (one sequence: count not recorded)"
        )
    return Lengths(
        even_lengths(total, count), f"query_lengths={total} over {count} (not recorded: split evenly)"
    )


def page_lengths(
    recorded: Sequence[int],
    average: float | None,
    valid_blocks: Sequence[int],
    *,
    queries: Sequence[int],
    pages: Pages,
    seed: int,
    column: str,
) -> Lengths:
    """Return the cached tokens of each sequence: as recorded, else by average, valid blocks or the pool's share.

    Raises:
        ValueError: The lengths do not fit the queries, the block table or the pool.
    """
    count, size = len(queries), pages.block_size
    share = min(pages.columns, pages.blocks // count) * size
    if recorded:
        found = Lengths(tuple(recorded) * (count if len(recorded) == 1 else 1))
    elif average:
        found = _around(average, queries, share, seed)
    elif valid_blocks:
        values = tuple(n * size for n in valid_blocks)
        found = Lengths(values, f"kv_lengths={min(values)}..{max(values)} (valid blocks, each one full)")
    else:
        found = Lengths(
            (share,) * count,
            f"kv_lengths={share} x {count} "
            "(not recorded: min(block table columns, blocks / sequences) x block size)",
        )
    _check_pages(found.values, queries, pages, column)
    return found


def _around(average: float, queries: Sequence[int], share: int, seed: int) -> Lengths:
    low = max(queries)
    if len(queries) == 1 or not low <= average <= share:
        length = round(average)
        return Lengths(
            (length,) * len(queries), f"kv_lengths={length} x {len(queries)} (the recorded average)"
        )
    values = jittered_lengths(average, len(queries), low, share, seed)
    return Lengths(
        values,
        f"kv_lengths={min(values)}..{max(values)} (log-normal, sigma 0.25, around the recorded average {average:g})",
    )


def _check_pages(lengths: Sequence[int], queries: Sequence[int], pages: Pages, column: str) -> None:
    if len(lengths) != len(queries):
        raise ValueError(f"column {column!r} has {len(lengths)} sequences, expected {len(queries)}")
    for index, (kv, q) in enumerate(zip(lengths, queries, strict=True)):
        if kv < q:
            raise ValueError(
                f"sequence {index} has {kv} cached tokens for {q} query tokens, expected as many or more"
            )
        if math.ceil(kv / pages.block_size) > pages.columns:
            raise ValueError(
                f"sequence {index} has {kv} cached tokens, expected at most the {pages.columns} blocks of "
                f"{pages.block_size} that its block table row holds"
            )
    needed = sum(math.ceil(kv / pages.block_size) for kv in lengths)
    if needed > pages.blocks:
        raise ValueError(f"{needed} cache blocks are needed, expected at most the {pages.blocks} of the pool")


def paged_row_lengths(
    row: Row, *, tokens: int, count: int, pages: Pages, seed: int
) -> tuple[Lengths, Lengths]:
    """Return the query and cached tokens of each sequence of a packed row with a paged cache, by its metadata.

    Raises:
        ValueError: What is recorded does not go together.
    """
    queries = query_lengths(read_integers(row.get(QUERY_LENGTHS_COLUMN)), tokens, count, QUERY_LENGTHS_COLUMN)
    keys = page_lengths(
        read_integers(row.get(KEY_LENGTHS_COLUMN)),
        number_column(row, "Runtime avg_seq_len"),
        read_integers(row.get("Runtime block_table_valid_blocks")),
        queries=queries.values,
        pages=pages,
        seed=seed,
        column=KEY_LENGTHS_COLUMN,
    )
    return queries, keys


def case_lengths(case: Case) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the query and key tokens of each sequence, from the parameters ``q_lengths`` and ``kv_lengths``."""
    queries, keys = (cast("Sequence[int]", case.params[name]) for name in ("q_lengths", "kv_lengths"))
    return tuple(queries), tuple(keys)


def lengths_key(*lengths: Sequence[int]) -> str:
    """Return a short text that equal lengths share, for canonical keys."""
    return hashlib.blake2b(repr([tuple(part) for part in lengths]).encode(), digest_size=8).hexdigest()


def tensor_key(name: str, tensor: TensorSpec, free: Sequence[int] = ()) -> str:
    """Write a tensor for a canonical key; the sizes of *free* axes (spare cache blocks) do not count."""
    dims = ",".join("*" if axis in free else str(dim) for axis, dim in enumerate(tensor.shape or ()))
    return f"{name}={tensor.dtype}[{dims}]"
