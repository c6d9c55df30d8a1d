"""One decision for all ranks of a case: a collective that one rank calls once more than another never returns."""

from __future__ import annotations

from collections.abc import Callable

from perfcollect_core.environment import Device

__all__ = ["alone", "rank_agreement"]


def alone(value: int) -> int:
    """Return *value*: there is nobody to agree with."""
    return value


def rank_agreement(device: Device) -> Callable[[int], int]:
    """Return what gives every rank the value of rank 0; without a process group each rank stays alone. Worker."""
    if device.ranks == 1:
        return alone
    import torch

    if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
        return alone

    def agree(value: int) -> int:
        shared = torch.tensor([value], dtype=torch.int64, device=device.torch_device)
        torch.distributed.broadcast(shared, 0)
        return int(shared.item())

    return agree
