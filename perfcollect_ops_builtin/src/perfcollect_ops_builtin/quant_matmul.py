"""Replay of QuantBatchMatmulV3: an int8 product with dequantisation in its epilogue."""

from __future__ import annotations

import math
from collections.abc import Callable
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
    bytes_moved,
    default_case,
    read_examples,
    torch_dtype,
)
from perfcollect_core.tensors import format_shape

from .integer_products import int8_product
from .matrix_layouts import MatrixLayout, case_sizes, logical_matrix, solve_layout
from .nz_weights import cast_to_nz
from .packed_scales import ascend_scale, pack_scales, unpack_scales
from .precision import product_tolerance, quantised_reference
from .quant_roles import ROLE_COLUMN, QuantRoles, find_roles
from .row_checks import describe, read_signature, refuse_dtypes, row_cells
from .theory.products import GEMM_AXES
from .theory.products import quantised_rows as perfcollect_generate_rows  # noqa: F401  # a hook

if TYPE_CHECKING:
    from torch import Tensor

    from perfcollect_core import ValueMaker

_OUTPUTS = ("BF16", "FLOAT16", "INT8", "INT32")
_I8 = "INT8;INT8;FLOAT"


def perfcollect_operator_spec(operator: str) -> OperatorSpec:
    """Describe the operator."""
    return OperatorSpec(
        name=operator,
        summary="y = (x1_int8 x2_int8 + int32 bias) * scale * pertoken_scale + offset or float bias",
        api={
            "ascend": "torch_npu.npu_quant_matmul",
            "cuda": "torch._int_mm and an epilogue",
            "cpu": "torch._int_mm and an epilogue",
        },
        inputs=(
            Slot("x1", "(..., M,K) INT8"),
            Slot("x2", "(K,N) or (N,K) INT8 as stored; FRACTAL_NZ in blocks or logical"),
            Slot("scale", "(N) or (1): FLOAT, BF16, or packed INT64/UINT64", optional=True),
            Slot("offset", "(N) or (1), INT8 output only", optional=True),
            Slot("bias", "(N): INT32 before scaling, float after", optional=True),
            Slot("pertoken_scale", "(M) FLOAT", optional=True),
        ),
        outputs=(Slot("y", "(..., M,N) BF16, FLOAT16, INT8 or INT32"),),
        key_columns=(ROLE_COLUMN,),
        axes=GEMM_AXES,
        value_policy=(
            "x1, x2 INT8 over [-127, 127]; scale 0.5 to 1.5 times 1/(127 sqrt K), pertoken_scale amax/127 of N(0,1) "
            "activations, INT32 bias within 1024, offset within 8; seeded by row"
        ),
        assumptions=(
            "scale is one per channel where the row records two slots",
            "pertoken_scale is present, too, where 'Quant Type' says dynamic",
            "a fourth slot with holes closed up: INT32 is bias; FLOAT of M elements is pertoken_scale; of N, bias",
            "where M equals N, or of one element, a FLOAT fourth slot is pertoken_scale",
            "x2 is (N,K) in ND and (K,N) in FRACTAL_NZ where both orders fit",
            "scales are not applied to INT32 output, the accumulator",
        ),
        negative=(
            row_cells("16,512;256,500;256", _I8, "16,256", "DT_BF16"),
            row_cells("16,512;256,512;255", _I8, "16,256", "DT_BF16"),
            row_cells("16,512;256,512;256;16;256", f"{_I8};FLOAT;INT32", "16,256", "INT8"),
            row_cells("16,512;256,512;256;;;16", "INT8;INT8;INT64;;;FLOAT", "16,256", "DT_BF16"),
            row_cells("16,512;256,512;256;7", f"{_I8};FLOAT", "16,256", "DT_BF16"),
            row_cells("16,512;256,512;256", _I8, "", ""),
        ),
        examples=read_examples(__package__, "operators/quant_batch_matmul_v3.csv"),
    )


def perfcollect_make_case(spec: OperatorSpec, row: Row) -> Case | Skip:
    """Resolve the weight's order from the output and the roles of the optional inputs."""
    signature = read_signature(spec, row)
    if isinstance(signature, Skip):
        return signature
    refused = refuse_dtypes(spec, signature, {"x1": ("INT8",), "x2": ("INT8",), "y": _OUTPUTS})
    if refused:
        return refused
    resolved = _resolve(signature, row)
    if isinstance(resolved, str):
        return Skip.invalid(f"{spec.name}: {resolved}")
    layout, roles = resolved
    m, k, n = layout.m, layout.k, layout.n
    tensors = {
        "x1": TensorSpec(signature.input(0).shape, "INT8", "ND"),
        "x2": logical_matrix(signature.input(1), *((n, k) if layout.transpose_b else (k, n))),
        **{role: TensorSpec((tensor.numel,), tensor.dtype, "ND") for role, tensor in roles.tensors.items()},
    }
    params = {
        "m": m,
        "k": k,
        "n": n,
        "transpose_b": layout.transpose_b,
        "out_dtype": signature.output().dtype,
    }
    assumptions = [*layout.assumptions, *roles.assumptions]
    if signature.output().dtype == "INT32":
        assumptions.append("scale not applied (INT32 output is the accumulator)")
    return default_case(spec, row, tensors=tensors, params=params, assumptions=assumptions)


def _resolve(signature: Signature, row: Row) -> tuple[MatrixLayout, QuantRoles] | str:
    x1, x2, y = signature.input(0), signature.input(1), signature.output()
    x1_shape, y_shape = x1.shape or (), y.shape or ()
    if len(x1_shape) < 2 or x1.is_nz_storage:
        return f"input slot 0 'x1' is {describe(x1)}, expected (M,K)"
    if len(x2.shape or ()) != (4 if x2.is_nz_storage else 2):
        return f"input slot 1 'x2' is {describe(x2)}, expected one matrix"
    if len(y_shape) < 2 or y_shape[:-1] != x1_shape[:-1]:
        return f"output slot 0 is {describe(y)}, expected the leading dimensions of x1 {describe(x1)} and N"
    m, n = math.prod(y_shape[:-1]), y_shape[-1]
    flat = TensorSpec((m, x1_shape[-1]), x1.dtype, "ND")
    layout = solve_layout(flat, x2, m, n, prefer_transposed_b=not x2.is_nz_storage, may_transpose_a=False)
    if isinstance(layout, str):
        return layout
    dynamic = "dynamic" in row.get("Quant Type").lower()
    roles = find_roles(signature, m, n, stated=row.get(ROLE_COLUMN), dynamic=dynamic)
    return roles if isinstance(roles, str) else (layout, roles)


def perfcollect_canonical_key(spec: OperatorSpec, row: Row) -> tuple[str, ...] | None:
    """Return the operands and the recorded optional inputs by role: compact and positional rows share a key."""
    case = perfcollect_make_case(spec, row)
    if isinstance(case, Skip):
        return None
    x2, y = case.tensors["x2"], case.outputs[0]
    recorded = [note.partition("=")[0] for note in case.assumptions if "not recorded" in note]
    optional = (
        f"{role} {case.tensors[role].dtype} {format_shape(case.tensors[role].shape)}"
        if role in case.tensors and role not in recorded
        else ""
        for role in ("scale", "offset", "bias", "pertoken_scale")
    )
    return (
        spec.name,
        format_shape(case.signature.input(0).shape),
        f"{x2.format} {'(N,K)' if case.params['transpose_b'] else '(K,N)'} {format_shape(x2.shape)}",
        *optional,
        f"{format_shape(y.shape)} {y.dtype}",
    )


def perfcollect_estimate_cost(case: Case) -> Cost:
    """Count 2MNK int8 operations and each tensor once."""
    m, k, n = case_sizes(case)
    return Cost(2.0 * m * n * k, bytes_moved(case))


def perfcollect_make_inputs(case: Case, device: Device) -> Inputs:
    """Draw int8 operands over their range and scales that bring results to order one."""
    from perfcollect_core import ValueMaker

    make = ValueMaker(case.seed, device)
    return Inputs({role: _draw(make, role, tensor, case) for role, tensor in case.tensors.items()})


def _draw(make: ValueMaker, role: str, tensor: TensorSpec, case: Case) -> Tensor:
    if role in ("x1", "x2"):
        return make.integers(tensor, -127, 128)
    if role == "scale":
        unit = 1.0 / (127.0 * case_sizes(case, "k")[0] ** 0.5)
        if tensor.dtype in ("INT64", "UINT64"):
            return pack_scales(make.uniform(TensorSpec(tensor.shape, "FLOAT"), 0.5 * unit, 1.5 * unit))
        return make.uniform(tensor, 0.5 * unit, 1.5 * unit)
    if role == "pertoken_scale":
        return make.uniform(tensor, 2.5 / 127, 4.5 / 127)
    if role == "bias" and tensor.dtype == "INT32":
        return make.integers(tensor, -1024, 1025)
    return make.integers(tensor, -8, 9) if role == "offset" else make.normal(tensor)


def perfcollect_bind_kernel(case: Case, inputs: Inputs, device: Device) -> Kernel:
    """Bind the fused call on Ascend, an exact int8 product and its epilogue elsewhere."""
    recorded = case.outputs[0].shape

    def outputs(y: object) -> tuple[Tensor]:
        return (y.reshape(recorded),)  # type: ignore[attr-defined]  # what call returned

    if device.family == "ascend":
        return Kernel(call=_ascend_call(case, inputs, device), outputs=outputs)
    weight = inputs["x2"].t() if case.params["transpose_b"] else inputs["x2"]
    product = int8_product(inputs["x1"].flatten(0, -2), weight)
    epilogue = _epilogue(case, inputs)
    return Kernel(call=lambda: epilogue(product()), outputs=outputs)


def _epilogue(case: Case, inputs: Inputs) -> Callable[[Tensor], Tensor]:
    import torch

    out_dtype = torch_dtype(str(case.params["out_dtype"]))
    optional = {role: inputs[role] for role in ("bias", "offset", "pertoken_scale") if role in case.tensors}
    scale, bias = unpack_scales(inputs["scale"]), optional.get("bias")
    offset, pertoken = optional.get("offset"), optional.get("pertoken_scale")
    integer_bias = bias is not None and bias.dtype == torch.int32

    def apply(accumulator: Tensor) -> Tensor:
        if integer_bias:
            accumulator = accumulator + bias
        if out_dtype == torch.int32:
            return accumulator
        y = accumulator.float() * scale
        if pertoken is not None:
            y = y * pertoken[:, None]
        if bias is not None and not integer_bias:
            y = y + bias.float()
        if offset is not None:
            y = y + offset
        return y.round().clamp(-128, 127).to(out_dtype) if out_dtype == torch.int8 else y.to(out_dtype)

    return apply


def _ascend_call(case: Case, inputs: Inputs, device: Device) -> Callable[[], Tensor]:
    import torch_npu

    weight = cast_to_nz(inputs["x2"], case.tensors["x2"], device)
    weight = weight.t() if case.params["transpose_b"] else weight
    out_dtype = str(case.params["out_dtype"])
    scale, optional = (
        inputs["scale"],
        {r: inputs[r] for r in ("offset", "bias", "pertoken_scale") if r in case.tensors},
    )
    # op-plugin would convert a float scale itself, with one more kernel in every call.
    float_in_kernel = scale.is_floating_point() and (
        out_dtype in ("BF16", "INT32") or "pertoken_scale" in optional
    )
    scale = scale if float_in_kernel else ascend_scale(scale)
    return lambda: torch_npu.npu_quant_matmul(
        inputs["x1"], weight, scale, output_dtype=torch_dtype(out_dtype), **optional
    )


def perfcollect_reference(case: Case, inputs: Inputs) -> Reference:
    """Multiply in fp64, exact for int8, scale both sides' factors there and round once."""
    import torch

    a = inputs["x1"].cpu().double().flatten(0, -2)
    b = inputs["x2"].cpu().double()
    out_dtype = str(case.params["out_dtype"])
    y = torch.einsum("mk,nk->mn" if case.params["transpose_b"] else "mk,kn->mn", a, b)
    factors = unpack_scales(inputs["scale"].cpu()).double().expand(y.shape[1])
    if "pertoken_scale" in case.tensors:
        factors = torch.outer(inputs["pertoken_scale"].cpu().double(), factors)
    if out_dtype == "INT32":
        factors = torch.ones_like(factors)
    if "bias" in case.tensors:
        bias = inputs["bias"].cpu().double()
        y = (y + bias) * factors if inputs["bias"].dtype == torch.int32 else y * factors + bias
    else:
        y = y * factors
    if "offset" in case.tensors:
        y = y + inputs["offset"].cpu().double()
    if out_dtype == "INT8":
        y = y.round().clamp(-128, 127)
    return quantised_reference((y.reshape(case.outputs[0].shape),), (product_tolerance(out_dtype),))
