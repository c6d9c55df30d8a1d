"""Rule parts that several operators share: tokens by width, and the scenes of attention."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache

import attrs

from perfcollect_core.specs import Axis, GridRequest

from .axes import ATTENTION_BATCHES, ATTENTION_LENGTHS, TOKENS, WIDTHS, dim
from .theory import Form, Shape, TheoryRow, values_of

__all__ = [
    "BLOCK", "Scene", "blocks_of", "cache_blocks", "paged_cells", "pool_blocks", "scenes", "token_width_axes", "tokens_by_width", "tokens_of",
]  # fmt: skip

#: Tokens in one block of a paged cache.
BLOCK = 128
_LEAST_BLOCKS, _MOST_BLOCKS = 16, 4096
_PREFILL_BATCHES = (1, 2, 4, 8)
_PREFILL_LENGTHS = ATTENTION_LENGTHS[3:]

#: Lengths the built-in scenes of the predecessor add around the context sizes of two models.
_SCENE_PREFILL = (3072, 3592, 4099, 4112, 4608, 5120, 6144)
_SCENE_DECODE = (3072, 3593, 4100, 4224, 4352, 4608, 4864, 5120, 5376, 5632)


def tokens_of(request: GridRequest, grid: Sequence[int]) -> tuple[int, ...]:
    """Return the token counts of a request: the *grid*, or those of the workloads asked exactly."""
    if not request.workloads:
        return tuple(grid)
    return tuple(sorted({n for load in request.workloads for n in (load.batch * load.seq, load.batch)}))


def token_width_axes(
    tokens: Callable[[object], int | None] | None = None,
    *,
    side: str = "O",
    standard: str = "elementwise_tokens",
    **ends: int | bool,
) -> tuple[Axis, ...]:
    """Return the two axes of rows of tokens by width, read off slot 0 of *side*."""
    return (
        Axis("tokens", dim(side, 0, 0), standard=standard, **ends),  # type: ignore[arg-type]  # ends are low, high, own_range
        Axis("D", dim(side, 0, 1), standard="width", own_range=bool(ends.get("own_range"))),
    )


def tokens_by_width(
    request: GridRequest,
    forms: Iterable[Form],
    shapes: Callable[[int, int, Form], tuple[tuple[Shape, ...], tuple[Shape, ...]]],
    *,
    rule: str,
    asked: Iterable[int],
    tokens: Sequence[int] = TOKENS,
    widths: Sequence[int] = WIDTHS,
    keep: Callable[[int, int, Form], bool] | None = None,
) -> Iterator[TheoryRow]:
    """Yield a row for each form, token count and width; *asked* are the widths of the models."""
    counts, grid = tokens_of(request, tokens), frozenset(widths)
    every = values_of(request, widths, asked)
    names = {
        width: f"{rule} grid" if width in grid and not request.workloads else f"{rule} model width"
        for width in every
    }
    for one in forms:
        for count in counts:
            for width in every:
                if keep is None or keep(count, width, one):
                    inputs, outputs = shapes(count, width, one)
                    yield TheoryRow(inputs, outputs, one, names[width], (count, width))


@attrs.frozen
class Scene:
    """One attention call: *batch* sequences of *queries* new tokens over *keys* cached ones each."""

    phase: str
    batch: int
    queries: int
    keys: int

    @property
    def tokens(self) -> int:
        return self.batch * self.queries


def scenes(request: GridRequest, *, prefill: bool = True, decode: bool = True) -> tuple[Scene, ...]:
    """Return the attention scenes of a request; lengths reach as far as the density standard asks."""
    found: dict[Scene, None] = {}
    if request.workloads:
        for load in request.workloads:
            if prefill:
                found[Scene("prefill", load.batch, load.seq, load.seq)] = None
            if decode:
                found[Scene("decode", load.batch, 1, load.seq)] = None
        return tuple(found)
    extra = request.targeted
    if prefill:
        lengths = sorted({*_PREFILL_LENGTHS, *(_SCENE_PREFILL if extra else ())})
        found |= {Scene("prefill", b, s, s): None for b in _PREFILL_BATCHES for s in lengths}
    if decode:
        lengths = sorted({*ATTENTION_LENGTHS, *(_SCENE_DECODE if extra else ())})
        batches = sorted({*ATTENTION_BATCHES, *((12, 24) if extra else ())})
        found |= {Scene("decode", b, 1, length): None for b in batches for length in lengths}
    return tuple(found)


def blocks_of(keys: int) -> int:
    """Return the blocks that *keys* tokens of one sequence need."""
    return max(1, -(-keys // BLOCK))


def cache_blocks(tokens: int) -> int:
    """Return the size of a pool in blocks where *tokens* rows are written into it."""
    return min(_MOST_BLOCKS, max(_LEAST_BLOCKS, 8 * tokens, blocks_of(tokens)))


def pool_blocks(scene: Scene) -> int:
    """Return the size of the pool that a scene reads from."""
    return max(_LEAST_BLOCKS, scene.batch * blocks_of(scene.keys))


@lru_cache(maxsize=2048)
def paged_cells(scene: Scene, *, cumulative_queries: bool = True) -> Mapping[str, str]:
    """Return the metadata cells of a scene over a paged cache: lengths, blocks, average."""
    steps = range(1, scene.batch + 1)
    queries = [scene.queries * i for i in steps] if cumulative_queries else [scene.queries] * scene.batch
    blocks = blocks_of(scene.keys)
    return {
        "Runtime actual_seq_lengths_shape": str(scene.batch),
        "Runtime actual_seq_lengths_values": ",".join(map(str, queries)),
        "Runtime actual_seq_lengths_kv_shape": str(scene.batch),
        "Runtime actual_seq_lengths_kv_values": ",".join([str(scene.keys)] * scene.batch),
        "Runtime avg_seq_len": f"{scene.keys:.6f}",
        "Runtime block_table_shape": f"{scene.batch},{blocks}",
        "Runtime block_table_valid_blocks": ",".join([str(blocks)] * scene.batch),
        "Runtime block_size": str(BLOCK),
    }
