"""Build the inputs of a fused attention case (worker)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perfcollect_core import Case, Device, Inputs, TensorSpec, ValueMaker, block_table

from .attention_call import AttentionCall

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["make_attention_inputs"]

#: Standard deviation of int8 values drawn uniformly over the full range.
_INT8_SPREAD = 73.0


def make_attention_inputs(case: Case, call: AttentionCall, device: Device) -> Inputs:
    """Draw query, keys and values; block tables are shuffled, masks causal, int8 caches scaled to about N(0, 1)."""
    make = ValueMaker(case.seed, device)
    tensors = {name: _draw(name, spec, case, call, make) for name, spec in case.tensors.items()}
    tensors.setdefault("value", tensors["key"])
    return Inputs(tensors)


def _draw(name: str, spec: TensorSpec, case: Case, call: AttentionCall, make: ValueMaker) -> Tensor:
    if name == "atten_mask":
        return _mask(spec, call, make)
    if name == "block_table":
        return block_table(
            make,
            spec,
            blocks=(case.tensors["key"].shape or (0,))[0],
            lengths=call.kv_lengths,
            block_size=call.geometry.block_size,
        )
    if name.endswith("antiquant_scale"):
        return make.uniform(spec, 0.8 / _INT8_SPREAD, 1.2 / _INT8_SPREAD)
    if name.endswith("antiquant_offset"):
        return make.normal(spec, scale=2.0)
    return make.by_dtype(spec)


def _mask(spec: TensorSpec, call: AttentionCall, make: ValueMaker) -> Tensor:
    """Return the compressed triangle, or for an explicit mask each sequence's causal one (1 hides)."""
    import torch

    shape = spec.shape or (1, 1)
    rows, columns = shape[-2:]
    if not call.explicit_mask:
        return make.tensor(torch.ones(rows, columns, dtype=torch.bool).triu(1), spec.dtype)
    batches = shape[0] if len(shape) > 2 else 1
    mask = torch.ones(batches, rows, columns, dtype=torch.bool)
    for one, q, kv in zip(mask, call.q_lengths, call.kv_lengths, strict=False):
        one[:q, :kv] = torch.ones(q, kv, dtype=torch.bool).triu(kv - q + 1)
    return make.tensor(mask.reshape(shape), spec.dtype)
