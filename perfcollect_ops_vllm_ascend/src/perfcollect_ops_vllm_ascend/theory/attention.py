"""Theory rows of attention kernels outside stock torch_npu: ring prefill, sparse decode, writing a cache."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from perfcollect_core import Axis, GridRequest, OperatorSpec, Row, Signature
from perfcollect_core.grid.axes import HEAD_DIMS, KV_HEADS, TOKENS, column, dim
from perfcollect_core.grid.projections import heads_of
from perfcollect_core.grid.rules import (
    BLOCK,
    blocks_of,
    cache_blocks,
    paged_cells,
    pool_blocks,
    scenes,
    tokens_of,
)
from perfcollect_core.grid.theory import TheoryRow, find_forms, form, models_of

_NOPE, _ROPE, _VALUE, _LATENT = 128, 64, 128, 512
_DECODE = 256
_COMPLETE = "shape_grid_scene_generated"


def _sequences(row: Row) -> int | None:
    text = row.get("Runtime actual_seq_lengths_values")
    return text.count(",") + 1 if text else None


def _longest(row: Row) -> int | None:
    count, tokens = _sequences(row), dim("I", 0, 0)(row)
    return tokens // count if count and tokens else None


RING_AXES = (
    Axis("length", _longest, standard="attention_length", own_range=True, low=64),
    Axis("batch", _sequences, standard="attention_batch", high=8, own_range=True),
    Axis("heads", dim("I", 0, 1), continuous=False),
)
SPARSE_AXES = (
    Axis("average length", column("Runtime avg_seq_len"), standard="attention_length", own_range=True),
    Axis("batch", dim("I", 4, 0), standard="attention_batch", own_range=True),
    Axis("tokens a sequence", _longest, continuous=False),
    Axis("heads", dim("I", 0, 1), continuous=False),
    Axis("top k", dim("I", 3, 2), continuous=False),
)
CACHE_AXES = (
    Axis("tokens", dim("I", 0, 0), standard="elementwise_tokens"),
    Axis("key heads", dim("I", 0, 1), standard="kv_heads"),
    Axis("head dim", dim("I", 0, 2), standard="head_dim"),
)


def ring_rows(spec: OperatorSpec, templates: Sequence[Row], request: GridRequest) -> Iterator[TheoryRow]:
    """Yield the first ring of latent prefill with expanded heads, of the models whose head sizes the kernel takes."""
    words = ("DT_BF16",) * 6 + ("",) * 9
    one = form(";".join(words), "DT_BF16;FLOAT")
    seen: set[int] = set()
    for model in models_of(request):
        if (model.nope, model.rope, model.value_dim) != (_NOPE, _ROPE, _VALUE):
            continue
        for heads in heads_of(model, request):
            n = heads.query
            if n in seen:
                continue
            seen.add(n)
            for scene in scenes(request, decode=False):
                t = scene.tokens
                nope, rope = (t, n, _NOPE), (t, n, _ROPE)
                inputs = (nope, rope, nope, rope, nope, (512, 512), *((),) * 9)
                sums = ",".join(str(scene.queries * i) for i in range(1, scene.batch + 1))
                cells = {
                    "Runtime actual_seq_lengths_values": sums,
                    "Runtime actual_seq_lengths_kv_values": sums,
                    "Runtime mask_type": "mask_type_triu",
                }
                rule = f"ring_mla {model.name} prefill"
                yield TheoryRow(inputs, (nope, (n, t)), one, rule, (scene.queries, scene.batch, n), cells)


def sparse_rows(spec: OperatorSpec, templates: Sequence[Row], request: GridRequest) -> Iterator[TheoryRow]:
    """Yield attention over the positions that an indexer picked, of the models that have one."""
    words = "DT_BF16;DT_BF16;DT_BF16;INT32;INT32;INT32;INT32;DT_BF16;DT_BF16"
    one = form(words, "DT_BF16")
    seen: set[tuple[int, int]] = set()
    for model in models_of(request):
        if not model.index_heads or model.kv_lora != _LATENT or model.rope != _ROPE:
            continue
        for heads in heads_of(model, request):
            n, k = heads.query, model.index_top_k
            if (n, k) in seen or n & (n - 1) or n > 128:
                continue
            seen.add((n, k))
            for scene in scenes(request):
                t, b, pool = scene.tokens, scene.batch, pool_blocks(scene)
                cache, table = (pool, BLOCK, 1, _LATENT), (b, blocks_of(scene.keys))
                query, chosen = (t, n, _LATENT), (t, 1, k)
                ropes = ((t, n, _ROPE), (pool, BLOCK, 1, _ROPE))
                inputs = (query, cache, cache, chosen, table, (b,), (b,), *ropes)
                cells = {
                    **paged_cells(scene),
                    "Runtime phase": scene.phase,
                    "Runtime topk": str(k),
                    "Runtime num_heads": str(n),
                    "Runtime num_key_value_heads": "1",
                    "Runtime sparse_mode": "3",
                    "Runtime sparse_block_size": "1",
                    "Runtime sparse_indices_pattern": "uniform",
                    "Runtime metadata_completeness": _COMPLETE,
                }
                at = (scene.keys, b, scene.queries, n, k)
                yield TheoryRow(inputs, (query,), one, f"sparse {model.name} {scene.phase}", at, cells)


def cache_rows(spec: OperatorSpec, templates: Sequence[Row], request: GridRequest) -> Iterator[TheoryRow]:
    """Yield new tokens of a paged cache: key heads of one rank by head size."""

    def kind(signature: Signature) -> str | None:
        return (
            "" if len(signature.input(2).shape or ()) == 4 and not signature.input(2).is_nz_storage else None
        )

    default = form("DT_BF16;DT_BF16;DT_BF16;DT_BF16;INT32", "DT_BF16;DT_BF16")
    sizes = [(h, d) for h in KV_HEADS for d in HEAD_DIMS]
    if request.workloads:
        asked = {
            (x.key, m.head_dim) for m in models_of(request) if not m.latent for x in heads_of(m, request)
        }
        sizes = sorted(asked)
    for one in find_forms(templates, default, kind):
        for h, d in sizes:
            for t in tokens_of(request, TOKENS):
                cache, new = (cache_blocks(t), BLOCK, h, d), (t, h, d)
                decode = t <= _DECODE
                cells = {"Runtime index_pattern": "decode" if decode else "prefill"}
                if not decode:
                    cells["Runtime actual_seq_lengths_values"] = str(t)
                inputs = (new, new, cache, cache, (t,))
                yield TheoryRow(inputs, (cache, cache), one, "reshape_and_cache", (t, h, d), cells)
