"""Replay of MatMulV2, MatMulV3 and MatMulCommon: one computation, the member is chosen by CANN."""

from __future__ import annotations

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
)
from perfcollect_core.tensors import DTYPE_BYTES, format_shape

from .matrix_layouts import MatrixLayout, case_sizes, logical_matrix, solve_layout
from .nz_weights import cast_to_nz
from .precision import FLOATS, product_dtypes, product_tolerance
from .row_checks import describe, float_row, read_signature, refuse_dtypes
from .theory.products import GEMM_AXES
from .theory.products import gemm_rows as perfcollect_generate_rows  # noqa: F401  # a hook

if TYPE_CHECKING:
    from torch import Tensor

_FAMILY = ("MatMulV2", "MatMulV3", "MatMulCommon", "GemmV3")
_SUMMARIES = {
    "MatMulV2": "C[M,N] = A[M,K] B[K,N] (+ bias[N]), fp32 accumulation",
    "MatMulV3": "C[M,N] = A[M,K] B[K,N] (+ bias[N]) where CANN's rules pick the V3 kernel (large M, 32-bit output)",
    "MatMulCommon": "C[M,N] = A[M,K] B[K,N] (+ bias[N]) reported under the L0 wrapper of MatMulV2",
}


def perfcollect_operator_spec(operator: str) -> OperatorSpec:
    """Describe one member of the family."""
    return OperatorSpec(
        name=operator,
        summary=_SUMMARIES[operator],
        api=dict.fromkeys(("ascend", "cuda", "cpu"), "torch.mm; torch.addmm with bias"),
        inputs=(
            Slot("x1", "(M,K), or (K,M)"),
            Slot("x2", "(N,K) or (K,N) as stored; FRACTAL_NZ in blocks or logical"),
            Slot("bias", "(N)", optional=True),
            Slot("offset_w", "always absent", optional=True, metadata=True),
        ),
        outputs=(Slot("y", "(M,N)"),),
        aliases=tuple(name for name in _FAMILY if name != operator),
        match_only=True,
        axes=GEMM_AXES,
        value_policy="x1 N(0,1), x2 N(0,1/K), bias N(0,1): results of order one; seeded by row",
        assumptions=(
            "x2 is stored as (N,K) where both orders fit (N equals K)",
            "x1 is stored as (M,K) where both orders fit (M equals K)",
            "x2 is stored as (N,K) where the output is not recorded and both orders fit",
            "mixed dtypes are promoted before the call",
            "FLOAT rows run without HF32 or TF32",
            "K of 1 may run as a Mul kernel on Ascend",
        ),
        negative=(
            float_row("4,8;5,9", "4,5"),
            float_row("4,8;5,8", "7,5"),
            float_row("4,8;8", "4,8"),
            float_row("0,8;5,8", "0,5"),
            float_row("4,8;5,8;6", "4,5"),
        ),
        examples=read_examples(__package__, f"operators/{_EXAMPLES[operator]}.csv"),
    )


_EXAMPLES = {"MatMulV2": "matmul_v2", "MatMulV3": "matmul_v3", "MatMulCommon": "matmul_common"}


def perfcollect_make_case(spec: OperatorSpec, row: Row) -> Case | Skip:
    """Resolve the storage order of both operands from the output."""
    signature = read_signature(spec, row, needs_output=False)
    if isinstance(signature, Skip):
        return signature
    refused = refuse_dtypes(spec, signature, dict.fromkeys(("x1", "x2", "bias"), FLOATS))
    if refused:
        return refused
    layout = _layout(signature)
    if isinstance(layout, str):
        return Skip.invalid(f"{spec.name}: {layout}")
    m, k, n = layout.m, layout.k, layout.n
    x1, x2, bias = (signature.input(slot) for slot in range(3))
    tensors = {
        "x1": logical_matrix(x1, *((k, m) if layout.transpose_a else (m, k))),
        "x2": logical_matrix(x2, *((n, k) if layout.transpose_b else (k, n))),
    }
    if not bias.is_absent:
        if bias.shape not in ((n,), (1, n)):
            return Skip.invalid(f"{spec.name}: input slot 2 'bias' is {describe(bias)}, expected {n} (N)")
        tensors["bias"] = TensorSpec((n,), bias.dtype, "ND")
    dtypes = product_dtypes(x1, x2, signature.output())
    if isinstance(dtypes, str):
        return Skip.invalid(f"{spec.name}: {dtypes}")
    compute, result, promotions = dtypes
    assumptions = [*layout.assumptions, *promotions]
    if k == 1 and bias.is_absent:
        assumptions.append("kernel may be Mul on Ascend (K is 1)")
    params = {
        "m": m,
        "k": k,
        "n": n,
        "transpose_a": layout.transpose_a,
        "transpose_b": layout.transpose_b,
        "compute_dtype": compute,
        "out_dtype": result,
    }
    return default_case(spec, row, tensors=tensors, params=params, assumptions=assumptions)


def _layout(signature: Signature) -> MatrixLayout | str:
    x1, x2, bias, y = signature.input(0), signature.input(1), signature.input(2), signature.output()
    for index, (name, tensor) in enumerate((("x1", x1), ("x2", x2))):
        if len(tensor.shape or ()) != (4 if tensor.is_nz_storage else 2):
            return f"input slot {index} {name!r} is {describe(tensor)}, expected two dimensions"
    if y.shape is not None:
        if len(y.shape) != 2:
            return f"output slot 0 is {describe(y)}, expected M,N"
        return solve_layout(x1, x2, *y.shape, prefer_transposed_b=True)
    if x1.is_nz_storage or (x2.is_nz_storage and not bias.shape):
        return "output slot 0 is blank and block counts do not tell the true M and N"
    m, k = x1.shape or (0, 0)
    if x2.is_nz_storage:
        n = (bias.shape or (0,))[-1]
    else:
        first, second = x2.shape or (0, 0)
        n = first if second == k else second
    solved = solve_layout(x1, x2, m, n, prefer_transposed_b=True, may_transpose_a=False)
    if isinstance(solved, str):
        return solved
    note = f"output={m},{n} (not recorded, x1 taken as (M,K))"
    return MatrixLayout(m, solved.k, n, False, solved.transpose_b, (note, *solved.assumptions))


def perfcollect_canonical_key(spec: OperatorSpec, row: Row) -> tuple[str, ...] | None:
    """Return M,K;N,K with dtypes, formats and output; weight storage and bias stand beside it.

    The family shares keys, so that a sample of one member finds rows of another.
    """
    case = perfcollect_make_case(spec, row)
    if isinstance(case, Skip):
        return None
    m, k, n = case_sizes(case)
    x1, x2, bias = case.tensors["x1"], case.tensors["x2"], case.tensors.get("bias")
    return (
        "MatMul",
        f"{m},{k};{n},{k}",
        f"{x1.dtype};{x2.dtype}",
        f"{x1.format};{x2.format}",
        f"{m},{n}",
        str(case.params["out_dtype"]),
        "x1 (K,M)" if case.params["transpose_a"] else "x1 (M,K)",
        "x2 (N,K)" if case.params["transpose_b"] else "x2 (K,N)",
        f"bias {bias.dtype} {format_shape(bias.shape)}" if bias else "",
    )


def perfcollect_estimate_cost(case: Case) -> Cost:
    """Count 2MNK operations (and the bias) and each matrix once."""
    m, k, n = case_sizes(case)
    flops = 2.0 * m * n * k + (m * n if "bias" in case.tensors else 0)
    unrecorded = 0 if case.outputs else m * n * DTYPE_BYTES[str(case.params["out_dtype"])]
    return Cost(flops, bytes_moved(case) + unrecorded)


def perfcollect_make_inputs(case: Case, device: Device) -> Inputs:
    """Draw operands whose product is of order one."""
    from perfcollect_core import ValueMaker

    make = ValueMaker(case.seed, device)
    scales = {"x2": case_sizes(case, "k")[0] ** -0.5}
    return Inputs({name: make.normal(spec, scales.get(name, 1.0)) for name, spec in case.tensors.items()})


def perfcollect_bind_kernel(case: Case, inputs: Inputs, device: Device) -> Kernel:
    """Bind one mm or addmm; dtype promotion and format casts happen here, outside the timed call."""
    import torch

    from perfcollect_core import torch_dtype

    compute, result = (torch_dtype(str(case.params[name])) for name in ("compute_dtype", "out_dtype"))
    a, b = (cast_to_nz(inputs[name], case.tensors[name], device) for name in ("x1", "x2"))
    bias = inputs["bias"] if "bias" in case.tensors else None
    keywords = {"out_dtype": result} if result != compute else {}
    if device.family == "ascend":
        torch.npu.matmul.allow_hf32 = False
    elif device.family == "cpu":
        # The CPU has no product with a wider output: operands are widened once, here.
        compute, keywords = result, {}
    if device.family != "ascend":  # CANN promotes by itself
        a, b = a.to(compute), b.to(compute)
    # A FLOAT bias beside narrower operands is what CANN makes of one of theirs; given as such it widens the output.
    bias = None if bias is None else bias.to(result)
    a = a.t() if case.params["transpose_a"] else a
    b = b.t() if case.params["transpose_b"] else b
    if bias is None:
        return Kernel(call=lambda: torch.mm(a, b, **keywords))
    return Kernel(call=lambda: torch.addmm(bias, a, b, **keywords))


def perfcollect_reference(case: Case, inputs: Inputs) -> Reference:
    """Contract in fp64 over named axes of the tensors as they are stored."""
    import torch

    a, b = (inputs[name].cpu().double() for name in ("x1", "x2"))
    left = "km" if case.params["transpose_a"] else "mk"
    right = "nk" if case.params["transpose_b"] else "kn"
    product: Tensor = torch.einsum(f"{left},{right}->mn", a, b)
    if "bias" in case.tensors:
        product = product + inputs["bias"].cpu().double()
    tolerance = product_tolerance(str(case.params["out_dtype"]), rounded_twice="bias" in case.tensors)
    return Reference((product,), (tolerance,))
