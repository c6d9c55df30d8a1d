"""Replay of GroupedMatmulSwigluQuant: grouped int8 product, dequantisation, SwiGLU, requantisation per row."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from perfcollect_core import (
    Case,
    Cost,
    Device,
    Inputs,
    Kernel,
    OperatorSpec,
    Reference,
    Row,
    Signature,
    Skip,
    Slot,
    TensorSpec,
    Tolerance,
    default_case,
    read_examples,
)
from perfcollect_core.tensors import NZ

from .group_lists import GROUP_COLUMNS, GroupPolicy, busy_groups, group_spans, make_group_list, read_policy
from .grouped_products import row_groups
from .grouped_weights import GroupedShape, solve_grouped
from .integer_products import int8_product
from .matrix_layouts import case_sizes, logical_matrix
from .nz_weights import cast_to_nz
from .precision import QUANTISED, quantised_reference
from .row_checks import describe, read_signature, refuse_dtypes, row_cells
from .theory.experts import GROUPED_AXES
from .theory.experts import swiglu_quant_rows as perfcollect_generate_rows  # noqa: F401  # a hook

if TYPE_CHECKING:
    from torch import Tensor

_N_LIMIT, _K_LIMIT = 10240, 65536
_SCALE_TOLERANCE = Tolerance(rtol=1e-4, atol=1e-9)
#: Divisor of a row whose activations are all zero.
_TINY = 1e-30
_DTYPES = "INT8;INT8;FLOAT;FLOAT;INT64"


def perfcollect_operator_spec(operator: str) -> OperatorSpec:
    """Describe the operator."""
    return OperatorSpec(
        name=operator,
        summary="per group: C = (x W) x_scale weight_scale; S = silu(C_left) C_right; q = round(127 S / max|S|) per row",
        api={
            "ascend": "torch_npu.npu_grouped_matmul_swiglu_quant",
            "cuda": "torch._int_mm per group, silu, round",
            "cpu": "torch._int_mm per group, silu, round",
        },
        inputs=(
            Slot("x", "(M,K) INT8"),
            Slot("weight", "(E,K,N) INT8, FRACTAL_NZ in blocks or logical"),
            Slot("weight_scale", "(E,N) FLOAT, BF16 or FLOAT16"),
            Slot("x_scale", "(M) FLOAT"),
            Slot("group_list", "(E) INT64, cumulative"),
        ),
        outputs=(Slot("y", "(M,N/2) INT8"), Slot("y_scale", "(M) FLOAT")),
        key_columns=GROUP_COLUMNS,
        axes=GROUPED_AXES,
        value_policy=(
            "x, weight INT8 over [-127, 127], weight_scale 0.5 to 1.5 times 1/(127 sqrt K), x_scale amax/127 of N(0,1) "
            "activations; group list drawn multinomially over M rows unless the row names uniform or zipf; seeded by row"
        ),
        assumptions=(
            "group_distribution is multinomial unless recorded",
            "every row is in a group unless 'Runtime active_rows' says fewer",
            "the weight is cast to FRACTAL_NZ on Ascend though the row records ND: the kernel takes nothing else",
        ),
        negative=(
            row_cells("64,256;8,256,384;8,380;64;8", _DTYPES, "64,192;64", "INT8;FLOAT"),
            row_cells("64,256;8,256,384;8,384;63;8", _DTYPES, "64,192;64", "INT8;FLOAT"),
            row_cells("64,256;8,256,384;8,384;64;7", _DTYPES, "64,192;64", "INT8;FLOAT"),
            row_cells("64,256;8,250,384;8,384;64;8", _DTYPES, "64,192;64", "INT8;FLOAT"),
            row_cells("64,256;8,256,384;8,384;64;8", _DTYPES, "64,384;64", "INT8;FLOAT"),
            row_cells("64,256;8,256,384;8,384;64;8", _DTYPES, "", ""),
            row_cells(
                "64,256;8,256,384;8,384;64;8", _DTYPES, "64,192;64", "INT8;FLOAT", Runtime_active_rows="65"
            ),
            row_cells(
                "64,256;8,256,384;8,384;64;8", _DTYPES, "64,192;64", "INT8;FLOAT", Runtime_group_list_type="1"
            ),
        ),
        examples=read_examples(__package__, "operators/grouped_matmul_swiglu_quant.csv"),
    )


def perfcollect_make_case(spec: OperatorSpec, row: Row) -> Case | Skip:
    """Resolve the weight's true size and check every shape against it."""
    signature = read_signature(spec, row)
    if isinstance(signature, Skip):
        return signature
    words = {
        "x": ("INT8",),
        "weight": ("INT8",),
        "weight_scale": ("FLOAT", "BF16", "FLOAT16"),
        "x_scale": ("FLOAT",),
        "group_list": ("INT64",),
        "y": ("INT8",),
    }
    refused = refuse_dtypes(spec, signature, words)
    if refused:
        return refused
    resolved = _resolve(signature, row)
    if isinstance(resolved, str):
        return Skip.invalid(f"{spec.name}: {resolved}")
    shape, policy = resolved
    layout = shape.layout
    m, k, n = layout.m, layout.k, layout.n
    recorded = signature.input(1)
    weight = logical_matrix(recorded, *((n, k) if layout.transpose_b else (k, n)))
    assumptions = [*layout.assumptions, *policy.assumptions]
    if weight.format != NZ:
        assumptions.append("weight format=FRACTAL_NZ on Ascend (recorded ND, the kernel takes nothing else)")
        weight = TensorSpec(weight.shape, weight.dtype, NZ)
    tensors = {
        "x": signature.input(0),
        "weight": weight,
        "weight_scale": signature.input(2),
        "x_scale": signature.input(3),
        "group_list": signature.input(4),
    }
    params = {"m": m, "k": k, "n": n, "transpose_b": layout.transpose_b, **policy.params()}
    return default_case(spec, row, tensors=tensors, params=params, assumptions=assumptions)


def _resolve(signature: Signature, row: Row) -> tuple[GroupedShape, GroupPolicy] | str:
    x, weight, scale, x_scale, listed = (signature.input(slot) for slot in range(5))
    y, y_scale = signature.output(0), signature.output(1)
    if len(scale.shape or ()) != 2:
        return f"input slot 2 'weight_scale' is {describe(scale)}, expected (E,N)"
    groups, n = scale.shape or (0, 0)
    m = (x.shape or (0,))[0]
    shape = solve_grouped(x, weight, m, n, what="weight_scale")
    if isinstance(shape, str):
        return shape
    if shape.groups != groups:
        return f"input slot 2 'weight_scale' is {describe(scale)}, expected {shape.groups},{n} for the weight"
    if x_scale.numel != m:
        return f"input slot 3 'x_scale' is {describe(x_scale)}, expected {m} (M)"
    if listed.shape != (groups,):
        return f"input slot 4 'group_list' is {describe(listed)}, expected {groups} (E)"
    if n % 2 or y.shape != (m, n // 2):
        return f"output slot 0 is {describe(y)}, expected {m},{n / 2:g} (M,N/2)"
    if not y_scale.is_absent and y_scale.numel != m:
        return f"output slot 1 is {describe(y_scale)}, expected {m} (M)"
    if n > _N_LIMIT or shape.layout.k >= _K_LIMIT:
        return f"N={n}, K={shape.layout.k}: the kernel takes N up to {_N_LIMIT} and K below {_K_LIMIT}"
    if row.get("Runtime group_list_type") not in ("", "0"):
        return f"column 'Runtime group_list_type' is {row.get('Runtime group_list_type')}, expected 0 (cumulative)"
    policy = read_policy(row, groups=groups, rows=m, list_type=0)
    return policy if isinstance(policy, str) else (shape, policy)


def perfcollect_estimate_cost(case: Case) -> Cost:
    """Count 2MNK and a dozen operations per activated element, and the weights of groups expected to have rows."""
    k, n, rows, groups = case_sizes(case, "k", "n", "active_rows", "groups")
    share = busy_groups(case) / groups
    nbytes = sum(
        tensor.nbytes * (share if name in ("weight", "weight_scale") else 1.0)
        for name, tensor in case.tensors.items()
    ) + sum(tensor.nbytes for tensor in case.outputs)
    return Cost(2.0 * rows * n * k + 12.0 * rows * n / 2, nbytes)


def perfcollect_make_inputs(case: Case, device: Device) -> Inputs:
    """Draw int8 operands, scales that bring C to order one, and a cumulative group list."""
    from perfcollect_core import ValueMaker

    make, unit = ValueMaker(case.seed, device), case_sizes(case, "k")[0] ** -0.5 / 127
    return Inputs(
        {
            "x": make.integers(case.tensors["x"], -127, 128),
            "weight": make.integers(case.tensors["weight"], -127, 128),
            "weight_scale": make.uniform(case.tensors["weight_scale"], 0.5 * unit, 1.5 * unit),
            "x_scale": make.uniform(case.tensors["x_scale"], 2.5 / 127, 4.5 / 127),
            "group_list": make_group_list(case, device),
        }
    )


def perfcollect_bind_kernel(case: Case, inputs: Inputs, device: Device) -> Kernel:
    """Bind the fused call on Ascend, its steps per group elsewhere."""
    if device.family == "ascend":
        return _ascend_kernel(case, inputs, device)
    return Kernel(call=_grouped_call(case, inputs, group_spans(inputs["group_list"], 0)))


def _grouped_call(
    case: Case, inputs: Inputs, spans: Sequence[tuple[int, int, int]]
) -> Callable[[], tuple[Tensor, ...]]:
    import torch

    x, weight, tokens = inputs["x"], inputs["weight"], inputs["x_scale"].flatten()
    m, n = case_sizes(case, "m", "n")
    quantised = torch.zeros((m, n // 2), dtype=torch.int8, device=x.device)
    scales = torch.zeros(m, dtype=torch.float32, device=x.device)
    steps = []
    for group, start, end in spans:
        w = weight[group].t() if case.params["transpose_b"] else weight[group]
        factors = tokens[start:end, None], inputs["weight_scale"][group].float()
        steps.append((slice(start, end), int8_product(x[start:end], w), factors))

    def call() -> tuple[Tensor, ...]:
        for rows, product, (token, channel) in steps:
            gate, up = (product().float() * token * channel).chunk(2, dim=1)
            activated = torch.nn.functional.silu(gate) * up
            scale = activated.abs().amax(dim=1) / 127
            scales[rows] = scale
            quantised[rows] = (activated / scale[:, None].clamp_min(_TINY)).round().to(torch.int8)
        return quantised, scales

    return call


def _ascend_kernel(case: Case, inputs: Inputs, device: Device) -> Kernel:
    import torch_npu

    weight = cast_to_nz(inputs["weight"], case.tensors["weight"], device)
    weight = weight.transpose(1, 2) if case.params["transpose_b"] else weight
    (rows,) = case_sizes(case, "active_rows")

    def outputs(result: object) -> tuple[Tensor, ...]:
        # The kernel leaves rows past the last group as they were; its third result is a dummy.
        found = tuple(tensor.clone() for tensor in result[:2])  # type: ignore[index]  # a tuple of tensors
        for tensor in found:
            tensor[rows:] = 0
        return found

    return Kernel(
        call=lambda: torch_npu.npu_grouped_matmul_swiglu_quant(
            x=inputs["x"],
            weight=weight,
            group_list=inputs["group_list"],
            weight_scale=inputs["weight_scale"],
            x_scale=inputs["x_scale"],
        ),
        outputs=outputs,
    )


def perfcollect_reference(case: Case, inputs: Inputs) -> Reference:
    """Follow the definition in fp64, each row with the weight of its own group."""
    import torch

    m, n = case_sizes(case, "m", "n")
    owners = row_groups(inputs["group_list"], 0, m)
    x, tokens = (inputs[name].cpu().double() for name in ("x", "x_scale"))
    activated = torch.zeros((m, n // 2), dtype=torch.float64)
    order = "mk,nk->mn" if case.params["transpose_b"] else "mk,kn->mn"
    for group in owners.unique().tolist():
        if group < 0:
            continue
        rows = (owners == group).nonzero().flatten()
        weight, channel = (inputs[name][group].cpu().double() for name in ("weight", "weight_scale"))
        c = torch.einsum(order, x[rows], weight) * torch.outer(tokens.flatten()[rows], channel)
        activated[rows] = c[:, : n // 2] * torch.sigmoid(c[:, : n // 2]) * c[:, n // 2 :]
    scales = activated.abs().amax(dim=1) / 127
    quantised = torch.where(scales[:, None] == 0, 0.0, activated / scales[:, None]).round()
    return quantised_reference((quantised, scales), (QUANTISED, _SCALE_TOLERANCE))
