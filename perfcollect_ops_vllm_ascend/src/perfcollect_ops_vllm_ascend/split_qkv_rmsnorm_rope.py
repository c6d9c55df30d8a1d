"""Replay of split_qkv_rmsnorm_rope_kernel: split a projection, normalise and rotate its queries and keys."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from perfcollect_core import (
    Case,
    Cost,
    Device,
    Inputs,
    Kernel,
    Need,
    OperatorSpec,
    Reference,
    Row,
    Skip,
    Slot,
    TensorSpec,
    Tolerance,
    ValueMaker,
    default_case,
    example_row,
    parse_signature,
    read_examples,
    rope_cos_sin,
)

from .split_qkv_rows import POSITIONS, check_shapes, find_parameters, find_tensors
from .theory.rows_of_tokens import SPLIT_AXES
from .theory.rows_of_tokens import split_rows as perfcollect_generate_rows  # noqa: F401  # a hook

if TYPE_CHECKING:
    from torch import Tensor

_NAME = "split_qkv_rmsnorm_rope_kernel"
#: Base of Qwen3's rotary angles.
_THETA = 1_000_000.0
_TRITON = "install triton-ascend, vllm and vllm-ascend, or set VLLM_ASCEND_PATH to a checkout"


def perfcollect_operator_spec(operator: str) -> OperatorSpec:
    stock = "torch.split, torch.rsqrt and torch.cat"
    return OperatorSpec(
        name=_NAME,
        summary="split qkv; RMSNorm of each query and key head; half-split rotation of both; values copied",
        api={"ascend": "torch.ops.vllm.qkv_rmsnorm_rope", "cuda": stock, "cpu": stock},
        inputs=(
            Slot("input", "[T,q+2kv]"),
            Slot("cos_sin_cache", "[P,rope], or only [rope] recorded"),
            Slot("positions", "[T]", optional=True),
        ),
        outputs=(Slot("q", "[T,q]"), Slot("k", "[T,kv]"), Slot("v", "[T,kv]", optional=True)),
        aliases=(f"{_NAME}_0",),
        key_columns=(
            "Runtime head_dim",
            "Runtime rope_dim",
            "Runtime max_positions",
            "Runtime qk_bias",
            "Runtime epsilon",
            "Runtime phase",
        ),
        needs=tuple(Need("module", name, _TRITON) for name in ("triton", "vllm", "vllm_ascend")),
        axes=SPLIT_AXES,
        value_policy=(
            "input N(0, 1), norm weights N(1, 0.1), biases N(0, 0.1), real cos and sin (base 1e6); positions: one "
            "length a request (decode), 0, 1, 2, ... (prefill)"
        ),
        assumptions=(
            "head_dim: 128 where it divides queries and keys, else the width of the rotary table",
            f"max_positions={POSITIONS} where the table's length is not recorded",
            "phase: decode up to 256 tokens, else prefill",
            "epsilon=1e-06",
            "no biases",
        ),
        negative=(
            example_row("16,1281;128", "DT_BF16;DT_BF16", "16,1024;16,128;16,128", "DT_BF16;DT_BF16;DT_BF16"),
            example_row("16,1280;96", "DT_BF16;DT_BF16", "16,1000;16,140;16,140", "DT_BF16;DT_BF16;DT_BF16"),
            example_row("16,1280;128", "DT_BF16;DT_BF16", "15,1024;15,128;15,128", "DT_BF16;DT_BF16;DT_BF16"),
            example_row("16,1280;128", "DT_BF16;DT_BF16"),
        ),
        examples=read_examples("perfcollect_ops_vllm_ascend", f"operators/{_NAME}.csv"),
    )


def perfcollect_make_case(spec: OperatorSpec, row: Row) -> Case | Skip:
    assumptions: list[str] = []
    try:
        signature = parse_signature(row.cells)
        widths = check_shapes(signature)
        params = widths | find_parameters(row, signature, widths, assumptions)
        tensors = find_tensors(row, signature, params, assumptions)
    except ValueError as error:
        return Skip.invalid(str(error))
    return default_case(spec, row, tensors=tensors, params=params, assumptions=assumptions)


def perfcollect_estimate_cost(case: Case) -> Cost:
    widths = [
        cast("int", case.params[name]) for name in ("q_hidden_size", "kv_hidden_size", "head_dim", "rope_dim")
    ]
    query, key, head, rope = widths
    tokens = (case.tensors["input"].shape or (0,))[0]
    flops = tokens * (4.0 * (query + key) + 3.0 * rope * (query + key) / head)
    size = case.tensors["cos_sin_cache"].nbytes / case.tensors["cos_sin_cache"].numel
    return Cost(flops, tokens * (2 * (query + 2 * key) * size + rope * size + 8))


def perfcollect_make_inputs(case: Case, device: Device) -> Inputs:
    import torch

    make = ValueMaker(case.seed, device)
    tensors: dict[str, Tensor] = {}
    for name, spec in case.tensors.items():
        if name == "cos_sin_cache":
            rows, rope = spec.shape or (1, 2)
            half = TensorSpec((rows, rope // 2), spec.dtype)
            tensors[name] = torch.cat(rope_cos_sin(make, half, theta=_THETA, layout="single"), -1)
        elif name == "positions":
            tensors[name] = _positions(case, make)
        elif name.endswith(("weight", "bias")):
            tensors[name] = make.normal(spec, scale=0.1, mean=1.0 if name.endswith("weight") else 0.0)
        else:
            tensors[name] = make.by_dtype(spec)
    return Inputs(tensors)


def _positions(case: Case, make: ValueMaker) -> Tensor:
    import torch

    spec, limit = case.tensors["positions"], (case.tensors["cos_sin_cache"].shape or (1,))[0]
    lengths = cast("tuple[int, ...]", case.params["lengths"])
    ends = cast("tuple[int, ...]", case.params["kv_lengths"])
    if ends:
        parts = [torch.arange(end - length, end) for length, end in zip(lengths, ends, strict=True)]
        return make.tensor(torch.cat(parts), spec.dtype)
    if case.params["phase"] == "prefill":
        return make.tensor(torch.cat([torch.arange(length) for length in lengths]), spec.dtype)
    # Requests of a running batch are anywhere in the first quarter of the context a model allows.
    return make.integers(spec, 0, max(1, limit // 4))


def perfcollect_bind_kernel(case: Case, inputs: Inputs, device: Device) -> Kernel:
    if device.family == "ascend":
        return _bind_ascend(case, inputs)
    import torch

    query, key, head = (
        cast("int", case.params[name]) for name in ("q_hidden_size", "kv_hidden_size", "head_dim")
    )
    rope, eps = cast("int", case.params["rope_dim"]), cast("float", case.params["eps"])
    hidden, table, positions = (inputs[name] for name in ("input", "cos_sin_cache", "positions"))

    def normalise(part: Tensor, name: str, cos: Tensor, sin: Tensor) -> Tensor:
        rows = part.unflatten(-1, (-1, head)).float()
        rows = (
            rows * torch.rsqrt(rows.square().mean(-1, keepdim=True) + eps) * inputs[f"{name}_weight"].float()
        )
        if f"{name}_bias" in inputs.tensors:
            rows = rows + inputs[f"{name}_bias"].float()
        rows = rows.to(hidden.dtype)
        first, second, rest = rows.split((rope // 2, rope // 2, head - rope), -1)
        return torch.cat((first * cos - second * sin, second * cos + first * sin, rest), -1).flatten(-2)

    def run() -> tuple[Tensor, ...]:
        q, k, v = hidden.split((query, key, key), -1)
        cos, sin = table.index_select(0, positions).unsqueeze(1).chunk(2, -1)
        return normalise(q, "q", cos, sin), normalise(k, "k", cos, sin), v.contiguous()

    return Kernel(run)


def _bind_ascend(case: Case, inputs: Inputs) -> Kernel:
    import torch
    import vllm_ascend.ops  # type: ignore[import-not-found]  # noqa: F401  # registers the operator
    from vllm_ascend.ops.triton.triton_utils import (  # type: ignore[import-not-found]
        init_device_properties_triton,
    )

    init_device_properties_triton()
    operator = torch.ops.vllm.qkv_rmsnorm_rope
    known = {argument.name for argument in operator.default._schema.arguments}
    arguments = dict(inputs.tensors)
    if "cos_sin_cache" not in known:
        # vllm-ascend 0.13 takes the rows of each token, both halves, instead of table and positions.
        cos, sin = arguments.pop("cos_sin_cache").index_select(0, arguments.pop("positions")).chunk(2, -1)
        arguments |= {"cos": torch.cat((cos, cos), -1), "sin": torch.cat((sin, sin), -1)}
    for name in ("q_hidden_size", "kv_hidden_size", "head_dim", "eps"):
        arguments[name] = case.params[name]
    return Kernel(lambda: operator(**arguments))


def perfcollect_reference(case: Case, inputs: Inputs) -> Reference:
    """Rotate in fp64 as complex numbers; the kernel rounds the normalised rows before it rotates them."""
    import torch

    query, key, head = (
        cast("int", case.params[name]) for name in ("q_hidden_size", "kv_hidden_size", "head_dim")
    )
    half = cast("int", case.params["rope_dim"]) // 2
    hidden = inputs["input"].double().cpu()
    angles = inputs["cos_sin_cache"].cpu()[inputs["positions"].cpu()].double()
    turn = torch.complex(angles[:, :half], angles[:, half:])[:, None]
    outputs = []
    for name, start, stop in (("q", 0, query), ("k", query, query + key)):
        rows = hidden[:, start:stop].reshape(len(hidden), -1, head)
        rows = rows / (rows.pow(2).sum(-1, keepdim=True) / head + cast("float", case.params["eps"])).sqrt()
        rows = rows * inputs[f"{name}_weight"].double().cpu()
        if f"{name}_bias" in inputs.tensors:
            rows = rows + inputs[f"{name}_bias"].double().cpu()
        turned = torch.complex(rows[..., :half], rows[..., half : 2 * half]) * turn
        outputs.append(torch.cat((turned.real, turned.imag, rows[..., 2 * half :]), -1).flatten(1))
    # Three roundings, of products that can cancel: the absolute error is that of the operands, a few at most.
    near = Tolerance.of_dtype(case.tensors["input"].dtype, 4, 0.04)
    return Reference((*outputs, hidden[:, query + key :]), (near, near, Tolerance(0, 0)))
