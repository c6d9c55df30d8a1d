"""Fused attention on Ascend: one call of torch_npu (worker)."""

from __future__ import annotations

from perfcollect_core import Inputs, Kernel, cumulative

from .attention_call import UNBOUNDED, AttentionCall

__all__ = ["bind_ascend", "call_arguments"]

#: Argument names of ``npu_fused_infer_attention_score`` -> of its second version, where they differ.
_SECOND = {
    "actual_seq_lengths": "actual_seq_qlen",
    "actual_seq_lengths_kv": "actual_seq_kvlen",
    "num_heads": "num_query_heads",
    "scale": "softmax_scale",
    "softmax_lse_flag": "return_softmax_lse",
    "key_antiquant_scale": "dequant_scale_key",
    "key_antiquant_offset": "dequant_offset_key",
    "value_antiquant_scale": "dequant_scale_value",
    "value_antiquant_offset": "dequant_offset_value",
    "key_antiquant_mode": "key_quant_mode",
    "value_antiquant_mode": "value_quant_mode",
}


def bind_ascend(call: AttentionCall, inputs: Inputs) -> Kernel:
    """Bind the torch_npu call: the first version, or the second where the row has a sink."""
    import torch_npu

    arguments = call_arguments(call, inputs)
    if "learnable_sink" in arguments:
        arguments = {_SECOND.get(name, name): value for name, value in arguments.items()}
        function = torch_npu.npu_fused_infer_attention_score_v2
    else:
        function = torch_npu.npu_fused_infer_attention_score
    positional = [arguments.pop(name) for name in ("query", "key", "value")]
    lse = call.lse
    return Kernel(
        call=lambda: function(*positional, **arguments),
        outputs=lambda result: (result[0], result[1] if lse else None),  # type: ignore[index]  # (out, lse)
    )


def call_arguments(call: AttentionCall, inputs: Inputs) -> dict[str, object]:
    """Return the arguments of ``npu_fused_infer_attention_score`` by name."""
    import torch

    geometry = call.geometry
    arguments: dict[str, object] = {
        name: tensor.bool()
        if name == "atten_mask" and tensor.dtype not in (torch.bool, torch.int8, torch.uint8)
        else tensor
        for name, tensor in inputs.tensors.items()
    }
    # Packed layouts take running sums of the query; paged caches always take one length a sequence.
    packed, paged = geometry.packed, bool(geometry.cache)
    if packed or call.q_listed or any(q != geometry.queries for q in call.q_lengths):
        arguments["actual_seq_lengths"] = list(cumulative(call.q_lengths) if packed else call.q_lengths)
    if packed or paged or call.kv_listed or any(kv != geometry.keys for kv in call.kv_lengths):
        sums = packed and not paged
        arguments["actual_seq_lengths_kv"] = list(cumulative(call.kv_lengths) if sums else call.kv_lengths)
    if call.prefix:
        arguments["actual_shared_prefix_len"] = [call.prefix]
    arguments |= {
        "num_heads": geometry.heads,
        "num_key_value_heads": geometry.kv_heads,
        "scale": call.scale,
        "input_layout": geometry.layout,
        "sparse_mode": call.sparse_mode,
        "block_size": geometry.block_size,
        "softmax_lse_flag": call.lse,
    }
    for name, value in (("pre_tokens", call.pre_tokens), ("next_tokens", call.next_tokens)):
        if value != UNBOUNDED:
            arguments[name] = value
    if "key_antiquant_scale" in inputs.tensors:
        # Mode 0: per channel, or per tensor with one value.
        arguments |= {"key_antiquant_mode": 0, "value_antiquant_mode": 0}
    return arguments
