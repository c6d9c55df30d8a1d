"""Replay of FusedInferAttentionScore: attention over packed, padded, paged and latent keys."""

from __future__ import annotations

import math

import attrs

from perfcollect_core import (
    ABSENT,
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
from perfcollect_core.lengths import lengths_key, tensor_key

from .attention_call import AttentionCall, resolve_call, visible_pairs
from .attention_geometry import Geometry
from .attention_layout import NotRecorded
from .attention_spec import SPEC
from .attention_variants import refuse_variants
from .theory.attention import ATTENTION_AXES
from .theory.attention import attention_rows as perfcollect_generate_rows  # noqa: F401  # a hook

#: How many blocks a pool has beside the ones in use, and how wide its table is, are allocation choices.
_SPARE_AXES = {"key": (0,), "value": (0,), "key_rope": (0,), "block_table": (1,)}


def perfcollect_operator_spec(operator: str) -> OperatorSpec:
    examples = read_examples("perfcollect_ops_builtin", "operators/fused_infer_attention_score.csv")
    return attrs.evolve(SPEC, examples=examples, axes=ATTENTION_AXES)


def perfcollect_make_case(spec: OperatorSpec, row: Row) -> Case | Skip:
    assumptions: list[str] = []
    try:
        signature = parse_signature(row.cells)
        # No input is 0-D: a dtype beside a blank shape says nothing.
        inputs = tuple(tensor if tensor.shape is not None else ABSENT for tensor in signature.inputs)
        signature = attrs.evolve(signature, inputs=inputs)
        refused = refuse_variants(signature)
        if refused:
            return refused
        call, tensors = resolve_call(spec, row, signature, assumptions)
    except NotRecorded as error:
        return Skip(str(error))
    except ValueError as error:
        return Skip.invalid(str(error))
    params = attrs.asdict(call)
    params |= params.pop("geometry")
    return default_case(spec, row, tensors=tensors, params=params, assumptions=assumptions)


def call_of(case: Case) -> AttentionCall:
    """Return the call a case describes."""
    names = {field.name for field in attrs.fields(Geometry)}
    geometry = {name: value for name, value in case.params.items() if name in names}
    call = {name: value for name, value in case.params.items() if name not in names}
    return AttentionCall(geometry=Geometry(**geometry), **call)  # type: ignore[arg-type]  # what make_case put there


def perfcollect_canonical_key(spec: OperatorSpec, row: Row) -> tuple[str, ...] | None:
    made = perfcollect_make_case(spec, row)
    if isinstance(made, Skip):
        return None
    call = call_of(made)
    tensors = [
        tensor_key(name, tensor, free=_SPARE_AXES.get(name, ()) if call.geometry.cache else ())
        for name, tensor in sorted(made.tensors.items())
    ]
    modes = (
        f"{call.geometry.layout} {call.geometry.cache or 'dense'} sparse={call.sparse_mode} lse={call.lse}"
    )
    bounds = f"window={call.pre_tokens},{call.next_tokens}"
    # Collectors tell ungrouped heads (0) from as many key heads: one work, two rows, and two measurements of it.
    grouping = row.get("Num KV Heads")
    return (spec.name, *tensors, modes, bounds, lengths_key(call.q_lengths, call.kv_lengths), grouping)


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
