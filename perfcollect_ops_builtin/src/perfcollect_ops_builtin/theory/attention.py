"""Theory rows of attention: fused scores of every scene, the indexer of sparse attention, writing the latent cache."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache

from perfcollect_core import Axis, GridRequest, OperatorSpec, Row, Signature
from perfcollect_core.grid.axes import TOKENS, column, dim, has_slot
from perfcollect_core.grid.models import ModelShapes
from perfcollect_core.grid.projections import Heads, heads_of
from perfcollect_core.grid.rules import (
    BLOCK,
    Scene,
    blocks_of,
    cache_blocks,
    paged_cells,
    pool_blocks,
    scenes,
    tokens_of,
)
from perfcollect_core.grid.theory import Form, Shape, TheoryRow, find_forms, form, models_of

_SLOTS = 31
_MASK = (2048, 2048)
_COMPLETE = "shape_grid_scene_generated"
_INDEX_DIM = 128
_DECODE = 256
_LATENT, _ROPE = 512, 64
#: Size of an expanded latent head, and how many heads the kernel takes over a latent cache.
_EXPANDED, _MOST_LATENT_HEADS = 128, 128


def _decodes(row: Row) -> int | None:
    """Return 1 where each sequence has one query token."""
    lengths = [part for part in row.get("Runtime actual_seq_lengths_values").split(",") if part]
    last = lengths[-1].strip() if lengths else ""
    plain = row.get("Runtime input_layout").startswith("BNSD")
    return None if not last.isdecimal() else int(int(last) == (1 if plain else len(lengths)))


def _batch(row: Row) -> int | None:
    text = row.get("Runtime actual_seq_lengths_values")
    return text.count(",") + 1 if text else dim("I", 5, 0)(row)


ATTENTION_AXES = (
    Axis("average length", column("Runtime avg_seq_len"), standard="attention_length", own_range=True),
    Axis("batch", _batch, standard="attention_batch", own_range=True),
    Axis("decode", _decodes, continuous=False),
    Axis("paged", has_slot(14), continuous=False),
    Axis("heads", column("Runtime num_heads"), continuous=False),
    Axis("key heads", column("Runtime num_key_value_heads"), continuous=False),
    Axis("head dim", dim("I", 0, -1), continuous=False),
)
INDEXER_AXES = (
    Axis("average length", column("Runtime avg_seq_len"), standard="attention_length", own_range=True),
    Axis("batch", dim("I", 3, 0), standard="attention_batch", own_range=True),
    Axis("decode", _decodes, continuous=False),
    Axis("heads", dim("I", 0, 1), continuous=False),
    Axis("top k", dim("O", 0, 2), continuous=False),
)
CACHE_AXES = (
    Axis("tokens", dim("I", 0, 0), standard="elementwise_tokens"),
    Axis("d", dim("I", 1, 0), standard="kv_rmsnorm_rope_cache.d", continuous=False),
)


def _slots(tensors: Mapping[int, tuple[Shape, str]]) -> tuple[tuple[Shape, ...], Form]:
    shapes: list[Shape] = [()] * _SLOTS
    for index, (shape, _) in tensors.items():
        shapes[index] = shape
    return tuple(shapes), _form_of(tuple((index, word) for index, (_, word) in tensors.items()))


@lru_cache(maxsize=64)
def _form_of(words: tuple[tuple[int, str], ...]) -> Form:
    """Return one form for all rows that share it: the types of the slots that are there."""
    there = dict(words)
    return Form(
        tuple(there.get(index, "DT_UNDEFINED") for index in range(_SLOTS)),
        tuple("ND" if index in there else "NULL" for index in range(_SLOTS)),
        (there[0],),
        ("ND",),
    )


def _dtypes(templates: Sequence[Row]) -> tuple[str, ...]:
    """Return the float types of the table's rows: caches of other types need scales that no row describes."""
    words: dict[str, str] = {}
    for one in find_forms(templates, form("DT_BF16;DT_BF16;DT_BF16", "DT_BF16"), _float_kind, likes=_LIKES):
        words.setdefault(one.input_dtype(0), one.input_dtypes[0])
    return tuple(words[dtype] for dtype in sorted(words))


def _float_kind(signature: Signature) -> str | None:
    dtypes = {signature.input(slot).dtype for slot in range(3)}
    return "" if len(dtypes) == 1 and dtypes <= {"BF16", "FLOAT16"} else None


_LIKES = (
    form("DT_BF16;DT_BF16;DT_BF16;;INT8;INT64;INT64", "DT_BF16"),
    form("DT_BF16;DT_BF16;DT_BF16;;INT8;INT64;INT64;;;;;;;;INT32", "DT_BF16"),
    form("DT_BF16;DT_BF16;DT_BF16;;;INT64;INT64;;;;;;;;INT32;;;;;;;;;;DT_BF16;DT_BF16", "DT_BF16"),
    form("DT_BF16;DT_BF16;DT_BF16;;INT8;INT64;INT64;;;;;;;;INT32;;;;;;;;;;DT_BF16;DT_BF16", "DT_BF16"),
)


def attention_rows(spec: OperatorSpec, templates: Sequence[Row], request: GridRequest) -> Iterator[TheoryRow]:
    """Yield prefill and decode of every model, on the heads of one rank; the latent cache has one head on all."""
    seen: set[tuple[object, ...]] = set()
    for word in _dtypes(templates):
        for model in models_of(request):
            for heads in heads_of(model, request):
                for scene in scenes(request):
                    row = (_latent_row if model.latent else _dense_row)(model, heads, scene, word)
                    # Models share heads and latent widths.
                    if row is not None and (key := (word, row.inputs, scene)) not in seen:
                        seen.add(key)
                        yield row


def _cells(model: ModelShapes, heads: Heads, scene: Scene, layout: str, mode: int) -> dict[str, str]:
    family = "mla" if model.latent else "dense"
    key = model.name.split("/")[-1].lower()
    return {
        "Runtime source_profile": f"{key}_{family}_{scene.phase}_heads{heads.query}",
        "Runtime num_heads": str(heads.query),
        "Runtime num_key_value_heads": str(heads.key),
        "Runtime sparse_mode": str(mode),
        "Runtime input_layout": layout,
        "Runtime metadata_completeness": _COMPLETE,
    }


def _unpaged(scene: Scene) -> dict[str, str]:
    """Return the length cells of packed keys: running sums on both sides, no blocks."""
    sums = ",".join(str(scene.keys * i) for i in range(1, scene.batch + 1))
    blank = dict.fromkeys(
        ("Runtime block_table_shape", "Runtime block_table_valid_blocks", "Runtime block_size"), ""
    )
    return {**paged_cells(scene), "Runtime actual_seq_lengths_kv_values": sums, **blank}


def _dense_row(model: ModelShapes, heads: Heads, scene: Scene, word: str) -> TheoryRow:
    d, b = model.head_dim, scene.batch
    decode = scene.phase == "decode"
    query = (scene.tokens, heads.query, d)
    key = (pool_blocks(scene), heads.key, BLOCK, d) if decode else (scene.tokens, heads.key, d)
    tensors = {
        0: (query, word),
        1: (key, word),
        2: (key, word),
        4: (_MASK, "INT8"),
        5: ((b,), "INT64"),
        6: ((b,), "INT64"),
    }
    if decode:
        tensors[14] = ((b, blocks_of(scene.keys)), "INT32")
    inputs, one = _slots(tensors)
    lengths = paged_cells(scene) if decode else _unpaged(scene)
    cells = {**lengths, **_cells(model, heads, scene, "TND", 3)}
    at = (scene.keys, b, int(scene.queries == 1), int(decode), heads.query, heads.key, d)
    return TheoryRow(inputs, (query,), one, f"attention {model.name} {scene.phase}", at, cells)


def _latent_row(model: ModelShapes, heads: Heads, scene: Scene, word: str) -> TheoryRow | None:
    """Return decode over the latent cache, or prefill with expanded heads; ``None`` past the kernel's head sizes."""
    b, h = scene.batch, heads.query
    rule = f"attention {model.name} {scene.phase}"
    if scene.phase == "prefill":
        if (model.nope, model.value_dim) != (_EXPANDED, _EXPANDED):
            return None
        nope, rope = (scene.tokens, h, _EXPANDED), (scene.tokens, h, model.rope)
        tensors = {
            **dict.fromkeys(range(3), (nope, word)),
            4: (_MASK, "INT8"),
            5: ((b,), "INT64"),
            6: ((b,), "INT64"),
            24: (rope, word),
            25: (rope, word),
        }
        inputs, one = _slots(tensors)
        cells = {**_unpaged(scene), **_cells(model, Heads(h, h), scene, "TND", 3)}
        return TheoryRow(
            inputs, (nope,), one, rule, (scene.keys, b, int(scene.queries == 1), 0, h, h, _EXPANDED), cells
        )
    if h & (h - 1) or h > _MOST_LATENT_HEADS:
        return None
    pool = pool_blocks(scene)
    cache = (pool, 1, BLOCK, model.kv_lora)
    inputs, one = _slots(
        {
            0: ((b, h, 1, model.kv_lora), word),
            1: (cache, word),
            2: (cache, word),
            5: ((b,), "INT64"),
            6: ((b,), "INT64"),
            14: ((b, blocks_of(scene.keys)), "INT32"),
            24: ((b, h, 1, model.rope), word),
            25: ((pool, 1, BLOCK, model.rope), word),
        }
    )
    lengths = paged_cells(scene, cumulative_queries=False)
    cells = {**lengths, **_cells(model, heads, scene, "BNSD_NBSD", 0)}
    at = (scene.keys, b, 1, 1, h, 1, model.kv_lora)
    return TheoryRow(inputs, ((h, b, 1, model.kv_lora),), one, rule, at, cells)


def indexer_rows(spec: OperatorSpec, templates: Sequence[Row], request: GridRequest) -> Iterator[TheoryRow]:
    """Yield the choice of keys of the models that have an indexer; it is not sharded."""
    seen: set[tuple[int, int]] = set()
    one = form("DT_BF16;DT_BF16;DT_BF16;INT32;INT32;INT32", "INT32;DT_BF16")
    for model in models_of(request):
        kind = (model.index_heads, model.index_top_k)
        if not model.index_heads or model.index_dim != _INDEX_DIM or kind in seen:
            continue
        seen.add(kind)
        for scene in scenes(request):
            t, n, b = scene.tokens, model.index_heads, scene.batch
            inputs = (
                (t, n, _INDEX_DIM),
                (pool_blocks(scene), BLOCK, 1, _INDEX_DIM),
                (t, n),
                (b,),
                (b,),
                (b, blocks_of(scene.keys)),
            )
            outputs = ((t, 1, model.index_top_k), (0,))
            cells = {
                **paged_cells(scene),
                "Runtime num_heads": str(n),
                "Runtime num_key_value_heads": "1",
                "Runtime sparse_mode": "3",
                "Runtime input_layout": "TND",
                "Runtime cache_layout": "PA_BSND",
                "Runtime phase": scene.phase,
                "Runtime topk": str(model.index_top_k),
                "Runtime metadata_completeness": _COMPLETE,
            }
            at = (scene.keys, b, int(scene.queries == 1), n, model.index_top_k)
            yield TheoryRow(inputs, outputs, one, f"indexer {model.name} {scene.phase}", at, cells)


def cache_rows(spec: OperatorSpec, templates: Sequence[Row], request: GridRequest) -> Iterator[TheoryRow]:
    """Yield new tokens of a latent cache: decode writes single slots, prefill runs of them."""
    default = form(
        "DT_BF16;DT_BF16;DT_BF16;DT_BF16;INT64;DT_BF16;DT_BF16;;;;;", "DT_BF16;DT_BF16;DT_BF16;DT_BF16"
    )

    def kind(signature: Signature) -> str | None:
        kv, index = signature.input(0).shape or (), signature.input(4).shape or ()
        floats = signature.input(5).dtype == signature.input(0).dtype
        return "" if len(kv) == 4 and kv[1:3] == (1, 1) and len(index) == 1 and floats else None

    for one in find_forms(templates, default, kind):
        blank = ((),) * (len(one.input_dtypes) - 7)
        for t in tokens_of(request, TOKENS):
            blocks = cache_blocks(t)
            rope, latent = (blocks, BLOCK, 1, _ROPE), (blocks, BLOCK, 1, _LATENT)
            angle = (t, 1, 1, _ROPE)
            inputs = ((t, 1, 1, _LATENT + _ROPE), (_LATENT,), angle, angle, (t,), rope, latent, *blank)
            decode = t <= _DECODE
            cells = {
                "Runtime index_pattern": "decode" if decode else "prefill",
                "Runtime is_output_kv": "false" if decode else "true",
                "Runtime epsilon": "1e-06",
            }
            outputs = (rope, latent, angle, (t, 1, 1, _LATENT))
            yield TheoryRow(inputs, outputs, one, "kv_rmsnorm_rope_cache", (t, _LATENT), cells)
