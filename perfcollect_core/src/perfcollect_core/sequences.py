"""Values with the structure of sequences: lengths, rotary tables, paged caches (worker side)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Literal

from .errors import CaseError
from .tensors import TensorSpec
from .values import torch_dtype

if TYPE_CHECKING:
    from torch import Tensor

    from .values import ValueMaker

__all__ = ["block_table", "cumulative", "rope_cos_sin", "sequence_lengths", "slot_mapping"]


def sequence_lengths(
    make: ValueMaker, count: int, total: int, *, jitter: float = 0.0, maximum: int | None = None
) -> tuple[int, ...]:
    """Split *total* tokens over *count* sequences, each at least 1, their sum exact.

    Args:
        make: Source of the case's randomness.
        count: Sequences.
        total: Tokens of all together.
        jitter: Relative spread: lengths before rounding lie within ``mean * (1 - jitter)`` and ``mean * (1 + jitter)``.
        maximum: Longest sequence allowed.

    Raises:
        CaseError: *total* cannot be split so.
    """
    if count < 1 or total < count or (maximum is not None and total > count * maximum):
        limit = "" if maximum is None else f" of at most {maximum}"
        raise CaseError(f"{total} tokens cannot be split over {count} sequences{limit}, each at least 1")
    import torch

    mean = total / count
    spread = (torch.rand(count, generator=make.generator, dtype=torch.float64) * 2 - 1) * jitter * mean
    wanted = (spread - spread.mean() + mean).tolist()
    ceiling = maximum if maximum is not None else total
    lengths = [min(ceiling, max(1, math.floor(length))) for length in wanted]
    rest = total - sum(lengths)
    step = 1 if rest > 0 else -1
    index = 0
    while rest:
        # Rounding left a remainder: one token a sequence, in turn, where it fits.
        if 1 <= lengths[index] + step <= ceiling:
            lengths[index] += step
            rest -= step
        index = (index + 1) % count
    return tuple(lengths)


def cumulative(lengths: Sequence[int], *, leading_zero: bool = False) -> tuple[int, ...]:
    """Return running sums of *lengths*, as ``actual_seq_lengths`` (or, with the zero, ``cu_seqlens``) wants them."""
    return tuple(accumulate(lengths, initial=0)) if leading_zero else tuple(accumulate(lengths))


def rope_cos_sin(
    make: ValueMaker,
    spec: TensorSpec,
    *,
    positions: Tensor | None = None,
    theta: float = 10_000.0,
    layout: Literal["half", "interleaved", "single"] = "half",
) -> tuple[Tensor, Tensor]:
    """Return the rotary tables (cos, sin) of *spec*, angle ``p / theta ** (2 i / dim)`` for pair *i* of position *p*.

    Args:
        make: Places the tables on the case's device.
        spec: Shape ``(..., dim)`` and dtype of each table; all leading dimensions together count positions.
        positions: One position for each leading element; without it 0, 1, 2, ...
        theta: Base of the angles.
        layout: ``half`` repeats the angles as (a0 a1 .. a0 a1 ..), ``interleaved`` as (a0 a0 a1 a1 ..); ``single``
            takes ``dim`` as the number of pairs and repeats nothing.
    """
    import torch

    shape = spec.shape or (1,)
    dim = shape[-1] * (2 if layout == "single" else 1)
    if dim % 2:
        raise CaseError(f"rotary table of shape {shape} has an odd last dimension, expected pairs")
    count = math.prod(shape[:-1])
    where = torch.arange(count) if positions is None else positions.flatten().cpu()
    rate = theta ** (-torch.arange(0, dim, 2, dtype=torch.float64) / dim)
    angles = where.to(torch.float64)[:, None] * rate[None, :]
    if layout == "half":
        angles = torch.cat((angles, angles), dim=-1)
    elif layout == "interleaved":
        angles = angles.repeat_interleave(2, dim=-1)
    dtype = torch_dtype(spec.dtype)
    cos, sin = (table.to(dtype).reshape(shape) for table in (angles.cos(), angles.sin()))
    return make.place(cos), make.place(sin)


def block_table(
    make: ValueMaker,
    spec: TensorSpec,
    *,
    blocks: int,
    lengths: Sequence[int] | None = None,
    block_size: int = 128,
    fill: int = 0,
) -> Tensor:
    """Return a paged cache's table ``(sequences, entries)`` of shuffled block numbers, no block used twice.

    Args:
        make: Source of the case's randomness.
        spec: Shape and dtype of the table.
        blocks: Blocks of the pool.
        lengths: Cached tokens of each sequence; entries past ``ceil(length / block_size)`` hold *fill*. Without it
            every entry is used.
        block_size: Tokens of a block.
        fill: Value of unused entries (a valid block number, as engines leave there).

    Raises:
        CaseError: The pool has fewer blocks than entries used, or a sequence is longer than the table is wide.
    """
    import torch

    sequences, width = spec.shape if spec.shape and len(spec.shape) == 2 else (0, 0)
    used = [width] * sequences if lengths is None else [-(-length // block_size) for length in lengths]
    if len(used) != sequences or max(used, default=0) > width:
        raise CaseError(
            f"block table of shape {spec.shape} cannot hold {len(used)} sequences of up to "
            f"{max(used, default=0)} blocks"
        )
    numbers = make.distinct(TensorSpec((sum(used),), "INT64"), blocks).cpu()
    table = torch.full((sequences, width), fill, dtype=torch.int64)
    start = 0
    for row, count in enumerate(used):
        table[row, :count] = numbers[start : start + count]
        start += count
    return make.place(table.to(torch_dtype(spec.dtype)))


def slot_mapping(
    make: ValueMaker,
    spec: TensorSpec,
    *,
    blocks: int,
    block_size: int,
    lengths: Sequence[int] | None = None,
) -> Tensor:
    """Return cache slots for new tokens: distinct, consecutive inside a block, blocks shuffled over the pool.

    Args:
        make: Source of the case's randomness.
        spec: Shape (its elements are tokens) and dtype.
        blocks, block_size: Geometry of the pool.
        lengths: Tokens of each sequence, a sequence starting a block of its own; without it every token is a
            sequence of its own at a random place of its block (decoding).

    Raises:
        CaseError: The pool is too small, or *lengths* do not add up to the tokens.
    """
    import torch

    tokens = math.prod(spec.shape or ())
    if lengths is None:
        if tokens > blocks:
            # More tokens than blocks: only slots can be kept apart.
            return make.distinct(spec, blocks * block_size)
        numbers = make.distinct(TensorSpec((tokens,), "INT64"), blocks).cpu()
        places = torch.randint(0, block_size, (tokens,), generator=make.generator)
        slots = numbers * block_size + places
    else:
        if sum(lengths) != tokens:
            raise CaseError(f"sequence lengths add up to {sum(lengths)}, expected {tokens} tokens")
        needed = [-(-length // block_size) for length in lengths]
        numbers = make.distinct(TensorSpec((sum(needed),), "INT64"), blocks).cpu()
        parts, start = [], 0
        for length, count in zip(lengths, needed, strict=True):
            own = numbers[start : start + count, None] * block_size + torch.arange(block_size)
            parts.append(own.flatten()[:length])
            start += count
        slots = torch.cat(parts) if parts else torch.empty(0, dtype=torch.int64)
    return make.place(slots.reshape(spec.shape or ()).to(torch_dtype(spec.dtype)))
