"""Views of one sequence's tokens as [tokens, heads, dim] in every layout, and of its pages (worker)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .attention_geometry import Geometry

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["output_shape", "page_tokens", "tokens_of"]


def tokens_of(tensor: Tensor, layout: str, heads: int, index: int, start: int, length: int) -> Tensor:
    """Return *length* tokens of sequence *index* as a view [length, heads, dim].

    *start* is the sequence's first token where the layout packs sequences; others start at their batch entry.
    """
    if layout == "TND":
        return tensor[start : start + length]
    if layout == "NTD":
        return tensor[:, start : start + length].transpose(0, 1)
    if layout == "BNSD":
        return tensor[index, :, :length].transpose(0, 1)
    if layout == "NBSD":
        return tensor[:, index, :length].transpose(0, 1)
    if layout == "BSND":
        return tensor[index, :length]
    return tensor[index, :length].unflatten(-1, (heads, -1))


def page_tokens(cache: str, pages: Tensor, kv_heads: int) -> Tensor:
    """Turn gathered *pages* [n, ...] into tokens [n * block_size, kv_heads, dim]."""
    if cache == "BnNBsD":
        pages = pages.transpose(1, 2)
    elif cache == "NZ":
        pages = pages.permute(0, 3, 1, 2, 4)
    return pages.reshape(pages.shape[0] * pages.shape[1], kv_heads, -1)


def output_shape(geometry: Geometry, channels: int) -> tuple[int, ...]:
    """Return the shape of the attention output with *channels* for each head."""
    heads, tokens, batch = geometry.heads, geometry.queries, geometry.batch
    match geometry.layout.rpartition("_")[2]:
        case "TND":
            return tokens, heads, channels
        case "NTD":
            return heads, tokens, channels
        case "BNSD":
            return batch, heads, tokens, channels
        case "NBSD":
            return heads, batch, tokens, channels
        case "BSND":
            return batch, tokens, heads, channels
    return batch, tokens, heads * channels
