"""Find the dimensions of a fused attention row: heads, head sizes and how keys are stored."""

from __future__ import annotations

import attrs

from perfcollect_core import Row, Signature, TensorSpec
from perfcollect_core.lengths import integer_column

from .attention_layout import LAYOUTS, SLOT_NAMES, NotRecorded, find_layout, name_slot

__all__ = ["Geometry", "find_geometry"]


@attrs.frozen(kw_only=True)
class Geometry:
    """Dimensions of one call.

    Attributes:
        layout: Layout of the query and, after ``_``, of the output.
        cache: ``""`` for keys without pages, else how a page is stored: ``BnBsH`` [blocks,bs,Nkv*D], ``BnNBsD``
            [blocks,Nkv,bs,D], ``BnBsND`` [blocks,bs,Nkv,D] or ``NZ`` [blocks,Nkv,D/C0,bs,C0].
        batch: Entries of the batch axis, 0 for packed layouts.
        queries: Query tokens: of all sequences in packed layouts, else of the longest one.
        keys: The same of the keys; 0 for a paged cache.
        head_dim: Size of a query head without its rotary part.
    """

    layout: str
    cache: str
    batch: int
    queries: int
    keys: int
    heads: int
    kv_heads: int
    head_dim: int
    value_dim: int
    rope_dim: int
    block_size: int = 0

    @property
    def packed(self) -> bool:
        return self.layout.startswith("TND")

    @property
    def absorbed(self) -> bool:
        """Whether this is MLA after absorption: the value is the latent key itself."""
        return bool(self.rope_dim) and self.head_dim == self.value_dim and self.head_dim > 256


def find_geometry(signature: Signature, row: Row, assumptions: list[str]) -> Geometry:
    """Find the dimensions of a row; what had to be assumed is added to *assumptions*.

    Raises:
        ValueError: The slots contradict each other or the metadata columns.
        NotRecorded: Several calls fit the row.
    """
    heads = integer_column(row, "Runtime num_heads", "Num Heads")
    layout = find_layout(signature, row, heads, assumptions)
    query, out = signature.input(0), signature.output()
    batch, tokens, found_heads, head_dim = _query_axes(layout, query, heads)
    if heads is not None and heads != found_heads:
        raise ValueError(
            f"{name_slot(0, query)}: {found_heads} heads in layout {layout}, expected the recorded {heads}"
        )
    value_dim = (out.shape or (0,))[-1] // (found_heads if layout == "BSH" else 1)
    cache, kv_heads, keys, block_size = _key_axes(layout, signature, row, found_heads, head_dim)
    rope = signature.input(24)
    geometry = Geometry(
        layout=layout,
        cache=cache,
        batch=batch,
        queries=tokens,
        keys=keys,
        heads=found_heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        value_dim=value_dim,
        rope_dim=rope.shape[-1] if rope.shape else 0,
        block_size=block_size,
    )
    _check_heads(geometry, signature, row)
    _check_companions(geometry, signature)
    return geometry


def _query_axes(layout: str, query: TensorSpec, heads: int | None) -> tuple[int, int, int, int]:
    shape = query.shape or ()
    if layout.startswith("TND"):
        return 0, shape[0], shape[1], shape[2]
    if layout.startswith("BNSD"):
        return shape[0], shape[2], shape[1], shape[3]
    if layout.startswith("BSND"):
        return shape[0], shape[1], shape[2], shape[3]
    if not heads:
        raise NotRecorded(f"{name_slot(0, query)}: layout BSH needs 'Runtime num_heads'")
    if shape[2] % heads:
        raise ValueError(f"{name_slot(0, query)}, expected channels that the {heads} heads divide")
    return shape[0], shape[1], heads, shape[2] // heads


def _key_axes(
    layout: str, signature: Signature, row: Row, heads: int, head_dim: int
) -> tuple[str, int, int, int]:
    key = signature.input(1)
    shape = key.shape or ()
    if not signature.input(14).is_absent:
        return _page_axes(signature, row, heads, head_dim)
    if len(shape) != LAYOUTS[layout]:
        raise ValueError(
            f"{name_slot(1, key)}, expected {LAYOUTS[layout]} dimensions as the query (no block table)"
        )
    if layout == "BSH":
        if shape[2] % head_dim:
            raise ValueError(f"{name_slot(1, key)}, expected channels that the head size {head_dim} divides")
        return "", shape[2] // head_dim, shape[1], 0
    if shape[-1] != head_dim:
        raise ValueError(f"{name_slot(1, key)}, expected the head size {head_dim} of slot 0 (query) last")
    if layout.startswith("TND"):
        return "", shape[1], shape[0], 0
    axis = 1 if layout.startswith("BNSD") else 2
    return "", shape[axis], shape[3 - axis], 0


def _page_axes(signature: Signature, row: Row, heads: int, head_dim: int) -> tuple[str, int, int, int]:
    key = signature.input(1)
    shape = key.shape or ()
    size = integer_column(row, "Runtime block_size")
    kv_heads = integer_column(row, "Runtime num_key_value_heads")
    options: list[tuple[str, int, int]] = []
    if len(shape) == 3 and shape[2] % head_dim == 0:
        options = [("BnBsH", shape[2] // head_dim, shape[1])]
    elif len(shape) == 4 and shape[3] == head_dim:
        options = [("BnNBsD", shape[1], shape[2]), ("BnBsND", shape[2], shape[1])]
    elif len(shape) == 5 and shape[2] * shape[4] == head_dim:
        options = [("NZ", shape[1], shape[3])]
    fitting = [
        (name, count, block)
        for name, count, block in options
        if block % 16 == 0 and 0 < block <= 1024 and count and heads % count == 0
    ]
    if len(fitting) > 1 and (size or kv_heads):
        fitting = [f for f in fitting if f[2] == (size or f[2]) and f[1] == (kv_heads or f[1])] or fitting
    if not fitting:
        raise ValueError(
            f"{name_slot(1, key)}, expected pages of 16 to 1024 tokens (a multiple of 16) with heads of {head_dim} whose "
            f"count divides {heads}"
        )
    if len(fitting) > 1:
        raise NotRecorded(f"{name_slot(1, key)}: both axes can be the block size, set 'Runtime block_size'")
    name, count, block = fitting[0]
    if size and size != block:
        raise ValueError(f"{name_slot(1, key)}: blocks of {block}, expected the recorded block size {size}")
    return name, count, 0, block


def _check_heads(geometry: Geometry, signature: Signature, row: Row) -> None:
    recorded = integer_column(row, "Runtime num_key_value_heads", "Num KV Heads")
    # Collectors write 0 for "as many as query heads".
    if recorded is not None and (recorded or geometry.heads) != geometry.kv_heads:
        raise ValueError(
            f"{name_slot(1, signature.input(1))}: {geometry.kv_heads} key heads, expected the recorded "
            f"{recorded or geometry.heads}"
        )
    if not geometry.kv_heads or geometry.heads % geometry.kv_heads:
        raise ValueError(
            f"{name_slot(1, signature.input(1))}: {geometry.kv_heads} key heads, expected a divisor of the "
            f"{geometry.heads} heads of slot 0 (query)"
        )
    size = integer_column(row, "Head Size")
    if size and size != geometry.head_dim:
        raise ValueError(
            f"{name_slot(0, signature.input(0))}: head size {geometry.head_dim}, expected the recorded {size}"
        )
    if geometry.absorbed and geometry.kv_heads != 1:
        raise ValueError(
            f"{name_slot(1, signature.input(1))}: {geometry.kv_heads} heads, expected 1 for a latent MLA cache"
        )
    if geometry.layout == "BNSD_NBSD" and geometry.queries > 16:
        raise ValueError(
            f"{name_slot(0, signature.input(0))}: {geometry.queries} query tokens a sequence, expected at most 16 for "
            "layout BNSD_NBSD"
        )


def _check_companions(geometry: Geometry, signature: Signature) -> None:
    query, key, value = (signature.input(index) for index in (0, 1, 2))
    if value.shape is None or key.shape is None or value.shape[:-1] != key.shape[:-1]:
        raise ValueError(
            f"{name_slot(2, value)}, expected the shape of slot 1 (key) up to its last dimension"
        )
    if not geometry.cache and geometry.layout != "BSH" and value.shape[-1] != geometry.value_dim:
        raise ValueError(f"{name_slot(2, value)}, expected {geometry.value_dim} last as in the output")
    if not geometry.rope_dim:
        return
    for index, tensor, base in ((24, signature.input(24), query), (25, signature.input(25), key)):
        if geometry.cache == "NZ" and index == 25:
            continue
        if tensor.shape is None or base.shape is None or tensor.shape[:-1] != base.shape[:-1]:
            raise ValueError(
                f"{name_slot(index, tensor)}, expected the shape of {SLOT_NAMES[index - 24]} but for its last"
            )
