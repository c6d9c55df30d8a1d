"""Refuse fused attention rows of variants that are not replayed, judging by which slots they fill."""

from __future__ import annotations

from perfcollect_core import Signature, Skip

__all__ = ["refuse_variants"]

#: Slots of variants that no binding replays.
_NOT_REPLAYED = {
    3: "pse_shift", 7: "dequant_scale1", 8: "quant_scale1", 9: "dequant_scale2", 10: "quant_scale2",
    11: "quant_offset2", 12: "antiquant_scale", 13: "antiquant_offset", 15: "query_padding_size",
    16: "kv_padding_size", 26: "key_rope_antiquant_scale", 27: "dequant_scale_query", 29: "q_start_idx",
    30: "kv_start_idx",
}  # fmt: skip


def refuse_variants(signature: Signature) -> Skip | None:
    """Return why a row cannot be replayed judging by which slots it fills, ``None`` where it can."""
    key, table, padding = signature.input(1), signature.input(14), signature.input(15)
    if table.is_absent and padding.shape is not None and len(padding.shape) == 2:
        shape = ",".join(map(str, padding.shape))
        return Skip.invalid(
            f"slot 15 (query_padding_size) holds {shape}, the block table that belongs in slot 14: the recorded slots "
            "are shifted by one"
        )
    for index, name in _NOT_REPLAYED.items():
        tensor = signature.input(index)
        if not tensor.is_absent:
            shape = ",".join(map(str, tensor.shape or ()))
            return Skip(f"slot {index} ({name}) holds {shape or 'a scalar'}: that variant is not replayed")
    for index, name in ((0, "query"), (1, "key"), (2, "value")):
        if signature.input(index).shape is None:
            return Skip.invalid(f"slot {index} ({name}) is blank, expected a tensor")
    if signature.output().shape is None:
        return Skip.invalid("output slot 0 (attention_out) is blank, expected its shape")
    if any(0 in (tensor.shape or ()) for tensor in signature.inputs):
        index = next(i for i, tensor in enumerate(signature.inputs) if 0 in (tensor.shape or ()))
        return Skip.invalid(f"slot {index} has shape {signature.input(index).shape} with no element")
    if not signature.input(24).is_absent and signature.input(25).is_absent:
        return Skip.invalid(f"slot 25 (key_rope) is blank beside slot 24 (query_rope) and key {key.shape}")
    return None
