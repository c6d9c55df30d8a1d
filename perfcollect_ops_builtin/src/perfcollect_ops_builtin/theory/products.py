"""Theory rows of matrix products: plain, quantised, batched."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from perfcollect_core import Axis, GridRequest, OperatorSpec, Row, Signature
from perfcollect_core.grid.axes import GEMM_TOKENS, HEADS, WIDTHS, dim
from perfcollect_core.grid.projections import gemm_pairs_of, heads_of
from perfcollect_core.grid.rules import tokens_of
from perfcollect_core.grid.theory import Form, Shape, TheoryRow, find_forms, form, models_of
from perfcollect_core.tensors import NZ, nz_storage_shape

GEMM_AXES = (
    Axis("M", dim("O", 0, 0), standard="gemm_tokens"),
    Axis("N", dim("O", 0, 1), standard="width"),
    Axis("K", dim("I", 0, 1), standard="width"),
)
BATCH_AXES = (
    Axis("M", dim("I", 0, 1), standard="gemm_tokens"),
    Axis("batch", dim("I", 0, 0), standard="batch_matmul_nd.batch", high=32),
    Axis("K", dim("I", 0, 2), standard="batch_matmul_nd.K"),
    Axis("N", dim("O", 0, 2), standard="batch_matmul_nd.N"),
)
TRANSPOSED_AXES = (
    Axis("M", dim("O", 0, 0), standard="gemm_tokens"),
    Axis("batch", dim("O", 0, 1), standard="heads"),
    Axis("K", dim("I", 0, 2), standard="transpose_batch_matmul.K", low=128),
    Axis("N", dim("O", 0, 2), standard="transpose_batch_matmul.N", low=128),
)

_PLAIN = form("DT_BF16;DT_BF16", "DT_BF16")
_BIASED = form("DT_BF16;DT_BF16;DT_BF16", "DT_BF16")
_QUANTISED = form("INT8;INT8;FLOAT;INT32", "DT_BF16", f"ND;{NZ};ND;ND")
_BATCHES = (1, 2, 4, 8, 16, 32)
_SIDES = (64, 128, 256, 512, 1024)
#: The kernel takes whole blocks of 128 along K and N.
_TRANSPOSED_K, _TRANSPOSED_N = (128, 256, 512), (128, 256, 512, 1024)


def _pairs(request: GridRequest) -> dict[tuple[int, int], str]:
    """Return the (N, K) to cover with the rule each belongs to: the models' where they are named, else all."""
    if request.targeted:
        return {pair: f"gemm {origin}" for pair, origin in gemm_pairs_of(request).items()}
    return {(n, k): "gemm grid" for n in WIDTHS for k in WIDTHS}


def _matrix_kind(signature: Signature) -> str | None:
    x1, x2 = signature.input(0), signature.input(1)
    fits = len(x1.shape or ()) == 2 and len(signature.output().shape or ()) == 2
    # The blocked storage shape of types other than these two sizes is not known.
    blocked = x2.is_nz_storage and x2.dtype in ("BF16", "FLOAT16", "INT8")
    return "" if fits and (len(x2.shape or ()) == 2 or blocked) else None


def _weight(one: Form, rows: int, columns: int, *, transposed: bool) -> Shape:
    """Return the shape of a weight (rows, columns): in blocks where the form is FRACTAL_NZ, else as it is stored."""
    if one.input_format(1) == NZ:
        return nz_storage_shape((rows, columns), one.input_dtype(1))
    return (columns, rows) if transposed else (rows, columns)


def gemm_rows(spec: OperatorSpec, templates: Sequence[Row], request: GridRequest) -> Iterator[TheoryRow]:
    """Yield M x (N, K): the projections of the models, or the whole grid."""
    tokens = tokens_of(request, GEMM_TOKENS)
    for one in find_forms(templates, _PLAIN, _matrix_kind, likes=(_BIASED,)):
        biased = one.has(2)
        for (n, k), rule in _pairs(request).items():
            weight = _weight(one, k, n, transposed=True)
            rest = (weight, (n,)) if biased else (weight,)
            for m in tokens:
                yield TheoryRow(((m, k), *rest), ((m, n),), one, rule, (m, n, k))


def _quantised_kind(signature: Signature) -> str | None:
    if _matrix_kind(signature) is None or signature.input(0).dtype != "INT8":
        return None
    n = (signature.output().shape or (0,))[-1]
    scale, third = signature.input(2), signature.input(3)
    if third.dtype == "INT32" or third.is_absent:
        return "scalar" if scale.numel == 1 != n else ""
    return None


def quantised_rows(spec: OperatorSpec, templates: Sequence[Row], request: GridRequest) -> Iterator[TheoryRow]:
    """Yield the same products in INT8: a scale for each channel, an integer bias or a scale for each token."""
    tokens = tokens_of(request, GEMM_TOKENS)
    likes = (form("INT8;INT8;FLOAT", "DT_BF16"), form("INT8;INT8;DT_BF16;;;FLOAT", "DT_BF16"))
    for one in find_forms(templates, _QUANTISED, _quantised_kind, likes=likes):
        biased, by_token, width = one.has(3), one.has(5), len(one.input_dtypes)
        for (n, k), rule in _pairs(request).items():
            channels = (1,) if one.kind == "scalar" else (n,)
            head = (_weight(one, k, n, transposed=True), channels)
            for m in tokens:
                optional: tuple[Shape, ...] = ((n,),) if biased else ((), (), (m,)) if by_token else ()
                slots = ((m, k), *head, *optional)
                yield TheoryRow(slots + ((),) * (width - len(slots)), ((m, n),), one, rule, (m, n, k))


def _absorbed(request: GridRequest) -> Iterator[tuple[int, int, int, str]]:
    """Yield (heads, K, N) of the two products that absorb the latent projections of MLA into attention."""
    found: dict[tuple[int, int, int], str] = {}
    for model in models_of(request):
        for heads in heads_of(model, request) if model.latent else ():
            found.setdefault((heads.query, model.nope, model.kv_lora), f"{model.name} absorbed q")
            found.setdefault((heads.query, model.kv_lora, model.value_dim), f"{model.name} absorbed v")
    for key, origin in sorted(found.items()):
        yield (*key, origin)


def _batches(
    request: GridRequest, batches: Sequence[int], ks: Sequence[int], ns: Sequence[int]
) -> Iterator[tuple[int, int, int, str]]:
    grid = {} if request.workloads else {(b, k, n): "batched grid" for b in batches for k in ks for n in ns}
    if request.targeted:
        grid |= {(b, k, n): f"batched {o}" for b, k, n, o in _absorbed(request) if (b, k, n) not in grid}
    for key, rule in grid.items():
        yield (*key, rule)


def _batched_kind(signature: Signature) -> str | None:
    tensors = (signature.input(0), signature.input(1), signature.output())
    fits = all(len(t.shape or ()) == 3 and not t.is_nz_storage for t in tensors)
    return "" if fits and tensors[0].dtype == tensors[1].dtype else None


def batched_rows(spec: OperatorSpec, templates: Sequence[Row], request: GridRequest) -> Iterator[TheoryRow]:
    """Yield products of a batch; rows of two dimensions would be dispatched to another kernel."""
    tokens = tokens_of(request, GEMM_TOKENS)
    for one in find_forms(templates, _PLAIN, _batched_kind):
        for b, k, n, rule in _batches(request, _BATCHES, _SIDES, _SIDES):
            for m in tokens:
                yield TheoryRow(((b, m, k), (b, k, n)), ((b, m, n),), one, rule, (m, b, k, n))


def transposed_rows(
    spec: OperatorSpec, templates: Sequence[Row], request: GridRequest
) -> Iterator[TheoryRow]:
    """Yield products of heads written token-major."""
    tokens = tokens_of(request, GEMM_TOKENS)
    for one in find_forms(templates, _PLAIN, _batched_kind):
        for b, k, n, rule in _batches(request, HEADS, _TRANSPOSED_K, _TRANSPOSED_N):
            if k % 128 or n % 128:
                continue
            for m in tokens:
                yield TheoryRow(((b, m, k), (b, k, n)), ((m, b, n),), one, rule, (m, b, k, n))
