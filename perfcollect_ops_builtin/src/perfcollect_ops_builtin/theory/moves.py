"""Theory rows of kernels that look up, cut, permute, pad and order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from perfcollect_core import Axis, GridRequest, OperatorSpec, Row, Signature
from perfcollect_core.grid.axes import (
    HEAD_DIMS,
    PAD_TOKENS,
    SAMPLING_BATCHES,
    TOKENS,
    VOCABULARIES,
    WIDTHS,
    dim,
    doubling,
)
from perfcollect_core.grid.projections import hidden_widths, vocabulary_slices
from perfcollect_core.grid.rules import cache_blocks, token_width_axes, tokens_by_width, tokens_of
from perfcollect_core.grid.theory import TheoryRow, find_forms, form, models_of, values_of

_TABLES = (1024, 4096, 8192, 16384, 32000, 65536, 128256, 151936, 152064)
_SORTED = doubling(64, 8192)
_SCATTERED = (*HEAD_DIMS, 512)
_DECODE = 256

GATHER_AXES = (
    Axis("indices", dim("I", 1, 0), standard="elementwise_tokens"),
    Axis("vocabulary", dim("I", 0, 0), standard="gather.vocab"),
    Axis("D", dim("I", 0, 1), standard="width"),
)
#: No more rows can be picked than there are.
INDEX_AXES = (
    Axis("picked", dim("O", 0, 0), standard="elementwise_tokens", own_range=True),
    Axis("rows", dim("I", 0, 0), standard="elementwise_tokens", own_range=True),
    Axis("D", dim("I", 0, 1), standard="width"),
)


def _cuts_columns(row: Row) -> int | None:
    whole, part = dim("I", 0, 0)(row), dim("O", 0, 0)(row)
    return None if whole is None or part is None else int(whole == part)


SLICE_AXES = (
    *token_width_axes(side="I", low=4),
    Axis("cuts columns", _cuts_columns, continuous=False),
)
TRANSPOSE_AXES = token_width_axes(side="I")
PAD_AXES = token_width_axes(side="I", standard="pad_tokens")
SORT_AXES = (
    Axis("tokens", dim("I", 0, 0), standard="elementwise_tokens"),
    Axis("D", dim("I", 0, 1), standard="sort.D"),
)
ARGMAX_AXES = (
    Axis("batch", dim("I", 0, 0), standard="sampling.batch"),
    Axis("vocabulary", dim("I", 0, 1), standard="sampling.vocab"),
)
SCATTER_AXES = (
    Axis("rows", dim("I", 2, 0), standard="elementwise_tokens"),
    Axis("D", dim("I", 2, 1), standard="scatter.D"),
)


def _rank(signature: Signature, rank: int = 2) -> str | None:
    return "" if len(signature.input(0).shape or ()) == rank else None


def gather_rows(spec: OperatorSpec, templates: Sequence[Row], request: GridRequest) -> Iterator[TheoryRow]:
    """Yield look-ups of tokens in an embedding table, whole or one rank's shard."""

    def kind(signature: Signature) -> str | None:
        return _rank(signature) if len(signature.input(1).shape or ()) == 1 else None

    default = form("DT_BF16;INT64;INT64", "DT_BF16")
    tables = values_of(request, _TABLES, vocabulary_slices(request))
    widths = values_of(request, WIDTHS, hidden_widths(request))
    for one in find_forms(templates, default, kind):
        for v in tables:
            for d in widths:
                for t in tokens_of(request, TOKENS):
                    yield TheoryRow(((v, d), (t,), (1,)), ((t, d),), one, "gather", (t, v, d))


def index_rows(spec: OperatorSpec, templates: Sequence[Row], request: GridRequest) -> Iterator[TheoryRow]:
    """Yield picks of rows, never more than there are."""

    def kind(signature: Signature) -> str | None:
        fits = all(len(signature.input(slot).shape or ()) == 1 for slot in (1, 2, 3))
        return _rank(signature) if fits else None

    default = form("DT_BF16;INT64;INT64;INT64", "DT_BF16")
    counts = tokens_of(request, TOKENS)
    widths = values_of(request, WIDTHS, hidden_widths(request))
    for one in find_forms(templates, default, kind):
        for d in widths:
            for s in counts:
                for r in counts:
                    if r <= s:
                        yield TheoryRow(((s, d), (1,), (2,), (r,)), ((r, d),), one, "index", (r, s, d))


def slice_rows(spec: OperatorSpec, templates: Sequence[Row], request: GridRequest) -> Iterator[TheoryRow]:
    """Yield the first half of the tokens, and the parts of a fused latent projection."""
    default = form("DT_BF16;INT64;INT64", "DT_BF16")
    forms = find_forms(templates, default, _rank)
    if not request.workloads:
        for row in tokens_by_width(
            request,
            forms,
            lambda t, d, one: (((t, d), (2,), (2,)), ((t // 2, d),)),
            rule="slice",
            asked=hidden_widths(request),
            tokens=TOKENS[1:],
        ):
            yield row._replace(at=(*row.at, 0))
    if not request.targeted:
        return
    cuts: dict[tuple[int, int], str] = {}
    for model in models_of(request):
        if model.latent and model.q_lora:
            rest = model.kv_lora + model.rope
            for part in (model.q_lora, rest):
                cuts.setdefault((model.q_lora + rest, part), f"slice {model.name} fused_q_a_kv_a")
    for one in forms:
        for (whole, part), rule in sorted(cuts.items()):
            for t in tokens_of(request, TOKENS):
                yield TheoryRow(((t, whole), (2,), (2,)), ((t, part),), one, rule, (t, whole, 1))


def transpose_rows(spec: OperatorSpec, templates: Sequence[Row], request: GridRequest) -> Iterator[TheoryRow]:
    """Yield transposed matrices."""

    def kind(signature: Signature) -> str | None:
        return _rank(signature) if len(signature.output().shape or ()) == 2 else None

    yield from tokens_by_width(
        request,
        find_forms(templates, form("DT_BF16;INT64", "DT_BF16"), kind),
        lambda t, d, one: (((t, d), (2,)), ((d, t),)),
        rule="transpose",
        asked=hidden_widths(request),
    )


def pad_rows(spec: OperatorSpec, templates: Sequence[Row], request: GridRequest) -> Iterator[TheoryRow]:
    """Yield tokens padded to the next multiple of 8."""

    def kind(signature: Signature) -> str | None:
        return _rank(signature) if signature.input(2).shape in (None, (1,)) else None

    yield from tokens_by_width(
        request,
        find_forms(templates, form("DT_BF16;INT64;DT_BF16", "DT_BF16"), kind),
        lambda t, d, one: (((t, d), (4,), ()), ((-(-t // 8) * 8, d),)),
        rule="pad",
        asked=hidden_widths(request),
        tokens=PAD_TOKENS,
        keep=lambda t, d, one: t % 8 != 0,
    )


def sort_rows(spec: OperatorSpec, templates: Sequence[Row], request: GridRequest) -> Iterator[TheoryRow]:
    """Yield rows to order, and logits of a rank's vocabulary."""
    yield from tokens_by_width(
        request,
        find_forms(templates, form("FLOAT", "FLOAT;INT32"), _rank),
        lambda t, d, one: (((t, d),), ((t, d), (t, d))),
        rule="sort",
        asked=vocabulary_slices(request),
        widths=_SORTED,
        # Logits are ordered for one token of each sequence.
        keep=lambda t, d, one: d <= _SORTED[-1] or t <= SAMPLING_BATCHES[-1],
    )


def argmax_rows(spec: OperatorSpec, templates: Sequence[Row], request: GridRequest) -> Iterator[TheoryRow]:
    """Yield greedy sampling: logits of each sequence, over the vocabulary or one rank's part of it."""

    def kind(signature: Signature) -> str | None:
        return _rank(signature) if len(signature.output().shape or ()) == 1 else None

    vocabularies = values_of(request, VOCABULARIES, vocabulary_slices(request))
    batches = sorted({load.batch for load in request.workloads}) or SAMPLING_BATCHES
    for one in find_forms(templates, form("FLOAT;INT64", "INT32"), kind):
        for v in vocabularies:
            for b in batches:
                if b < v:
                    yield TheoryRow(((b, v), ()), ((b,),), one, "argmax", (b, v))


def scatter_rows(spec: OperatorSpec, templates: Sequence[Row], request: GridRequest) -> Iterator[TheoryRow]:
    """Yield writes of new tokens' rows into a cache of blocks."""

    def kind(signature: Signature) -> str | None:
        return _rank(signature) if (signature.input(1).shape or (0,))[-1] == 1 else None

    default = form("DT_BF16;INT32;DT_BF16", "DT_BF16")
    for one in find_forms(templates, default, kind):
        for d in _SCATTERED:
            for t in tokens_of(request, TOKENS):
                cache = (cache_blocks(t) * 128, d)
                pattern = {"Runtime index_pattern": "decode" if t <= _DECODE else "prefill"}
                yield TheoryRow((cache, (t, 1), (t, d)), (cache,), one, "scatter", (t, d), pattern)
