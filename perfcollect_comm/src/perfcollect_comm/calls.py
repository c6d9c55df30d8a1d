"""The torch.distributed calls behind the collectives (rank side)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from .plan import Config

if TYPE_CHECKING:
    from torch import Tensor
    from torch.distributed import ProcessGroup

__all__ = ["bind_call", "zeros"]


def zeros(numel: int, dtype: str, device: str) -> Tensor:
    """Return a zeroed buffer; *dtype* is torch's name of it."""
    import torch

    return torch.zeros(numel, dtype=getattr(torch, dtype), device=device)


def bind_call(config: Config, source: Tensor, target: Tensor, group: ProcessGroup) -> Callable[[], object]:
    """Return the call of *config* on prepared buffers: in place for all_reduce and broadcast."""
    import torch.distributed as dist

    # torch 2.13 renamed the tensor forms; the old names warn there and are the only ones before.
    gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
    scatter = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor
    if config.op == "all_reduce":
        return lambda: dist.all_reduce(source, group=group)
    if config.op == "all_gather":
        return lambda: gather(target, source, group=group)
    if config.op == "reduce_scatter":
        return lambda: scatter(target, source, group=group)
    if config.op == "all_to_all":
        inputs, outputs = list(source.chunk(config.n)), list(target.chunk(config.n))
        return lambda: dist.all_to_all(outputs, inputs, group=group)
    if config.op == "all_to_all_single":
        return lambda: dist.all_to_all_single(target, source, group=group)
    root = dist.get_process_group_ranks(group)[0]
    return lambda: dist.broadcast(source, src=root, group=group)
