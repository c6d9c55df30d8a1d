"""Replay of FusedInferAttentionScore: attention over packed, padded, paged and latent keys."""

from __future__ import annotations

import hashlib
import math

import attrs

from perfcollect_core import (
    Case,
    Cost,
    Device,
    Inputs,
    Kernel,
    OperatorSpec,
    Reference,
    Row,
    Skip,
    default_case,
    parse_signature,
    read_examples,
)

from .attention_call import AttentionCall, resolve_call, visible_pairs
from .attention_layout import NotRecorded
from .attention_spec import SPEC
from .attention_variants import refuse_variants


def perfcollect_operator_spec(operator: str) -> OperatorSpec:
    examples = read_examples("perfcollect_ops_builtin", "operators/fused_infer_attention_score.csv")
    return attrs.evolve(SPEC, examples=examples)


def perfcollect_make_case(spec: OperatorSpec, row: Row) -> Case | Skip:
    assumptions: list[str] = []
    try:
        signature = parse_signature(row.cells)
        refused = refuse_variants(signature)
        if refused:
            return refused
        call, tensors = resolve_call(spec, row, signature, assumptions)
    except NotRecorded as error:
        return Skip(str(error))
    except ValueError as error:
        return Skip.invalid(str(error))
    return default_case(spec, row, tensors=tensors, params=attrs.asdict(call), assumptions=assumptions)


def call_of(case: Case) -> AttentionCall:
    """Return the call a case describes."""
    return AttentionCall(**case.params)  # type: ignore[arg-type]  # the fields of AttentionCall by construction


def perfcollect_canonical_key(spec: OperatorSpec, row: Row) -> tuple[str, ...] | None:
    made = perfcollect_make_case(spec, row)
    if isinstance(made, Skip):
        return None
    # How many blocks the pool has beside the ones in use is an allocation choice.
    call = call_of(made)
    paged = bool(call.geometry.cache)
    tensors = []
    for name, tensor in sorted(made.tensors.items()):
        dims = list(map(str, tensor.shape or ()))
        if paged and name in ("key", "value", "key_rope"):
            dims[0] = "*"
        elif name == "block_table":
            dims[1] = "*"
        tensors.append(f"{name}={tensor.dtype}[{','.join(dims)}]")
    lengths = hashlib.blake2b(repr((call.q_lengths, call.kv_lengths)).encode(), digest_size=8).hexdigest()
    modes = (
        f"{call.geometry.layout} {call.geometry.cache or 'dense'} sparse={call.sparse_mode} lse={call.lse}"
    )
    # Collectors tell ungrouped heads (0) from as many key heads: one work, two rows, and two measurements of it.
    grouping = row.get("Num KV Heads")
    return (
        spec.name,
        *tensors,
        modes,
        f"{call.pre_tokens} {call.next_tokens}",
        f"lengths={lengths}",
        grouping,
    )


def perfcollect_estimate_cost(case: Case) -> Cost:
    call = call_of(case)
    shape = call.geometry
    width = 2 if case.tensors["query"].dtype != "FLOAT" else 4
    key_width = 1 if case.tensors["key"].dtype == "INT8" else width
    flops = 2.0 * shape.heads * visible_pairs(call) * (shape.head_dim + shape.rope_dim + shape.value_dim)
    keys = sum(call.kv_lengths) + call.prefix
    channels = shape.head_dim + (0 if shape.absorbed else shape.value_dim)
    nbytes = shape.heads * sum(call.q_lengths) * (shape.head_dim + shape.rope_dim + shape.value_dim) * width
    nbytes += keys * shape.kv_heads * (channels * key_width + shape.rope_dim * width)
    if shape.block_size:
        nbytes += 4 * sum(math.ceil(kv / shape.block_size) for kv in call.kv_lengths)
    if "atten_mask" in case.tensors:
        nbytes += case.tensors["atten_mask"].nbytes
    return Cost(flops, float(nbytes))


def perfcollect_make_inputs(case: Case, device: Device) -> Inputs:
    from .attention_inputs import make_attention_inputs

    return make_attention_inputs(case, call_of(case), device)


def perfcollect_bind_kernel(case: Case, inputs: Inputs, device: Device) -> Kernel:
    if device.family == "ascend":
        from .attention_ascend import bind_ascend

        return bind_ascend(call_of(case), inputs)
    from .attention_torch import bind_torch

    return bind_torch(call_of(case), inputs)


def perfcollect_reference(case: Case, inputs: Inputs, device: Device) -> Reference:
    from .attention_reference import attention_reference

    return attention_reference(call_of(case), inputs)
