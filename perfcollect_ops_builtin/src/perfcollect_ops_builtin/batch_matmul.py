"""Replay of BatchMatMulV2: one product per batch entry."""

from __future__ import annotations

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
    Signature,
    Skip,
    Slot,
    TensorSpec,
    bytes_moved,
    default_case,
    parse_signature,
    read_examples,
)
from perfcollect_core.tensors import NZ

from .matrix_layouts import MatrixLayout, case_sizes, logical_matrix, solve_layout
from .nz_weights import cast_to_nz
from .precision import FLOATS, product_dtypes, product_tolerance
from .row_checks import describe, float_row, read_signature, refuse_dtypes
from .theory.products import BATCH_AXES
from .theory.products import batched_rows as perfcollect_generate_rows  # noqa: F401  # a hook

_FAMILY = ("BatchMatMulV2", "BatchMatMulNd", "BatchMatMulV3")


def perfcollect_operator_spec(operator: str) -> OperatorSpec:
    """Describe the operator."""
    return OperatorSpec(
        name=operator,
        summary="C[b] = A[b] B[b] for every batch entry, fp32 accumulation",
        api=dict.fromkeys(("ascend", "cuda", "cpu"), "torch.bmm"),
        inputs=(
            Slot("x1", "(B,M,K) or (B,K,M); batch may be 1"),
            Slot("x2", "(B,K,N) or (B,N,K); batch may be 1; FRACTAL_NZ in blocks or logical"),
            Slot("bias", "always absent", optional=True, metadata=True),
            Slot("offset_w", "always absent", optional=True, metadata=True),
        ),
        outputs=(Slot("y", "(B,M,N)"),),
        aliases=tuple(name for name in _FAMILY if name != operator),
        axes=BATCH_AXES,
        value_policy="x1 N(0,1), x2 N(0,1/K): results of order one, x1 contiguous; seeded by row",
        assumptions=(
            "x2 is stored as (B,K,N) where both orders fit (N equals K)",
            "x1 is stored as (B,M,K) where both orders fit (M equals K)",
            "rows of two dimensions run as a batch of one, x2 as (N,K) where both orders fit",
            "leading dimensions are flattened to one batch",
            "K of 1 may run as a broadcast Mul kernel on Ascend",
            "FRACTAL_NZ weights may take the BatchMatMul aclop on A2 and A3",
        ),
        negative=(
            float_row("4,2,3;5,3,2", "4,2,2"),
            float_row("4,2,3;4,5,2", "4,2,2"),
            float_row("4,2,3;4,3,2", ""),
            float_row("4,0,3;4,3,2", "4,0,2"),
        ),
        examples=read_examples(__package__, "operators/batch_matmul_v2.csv"),
    )


def perfcollect_make_case(spec: OperatorSpec, row: Row) -> Case | Skip:
    """Bring every recorded rank to one batch and resolve the storage order of both operands."""
    signature = read_signature(spec, row)
    if isinstance(signature, Skip):
        return signature
    refused = refuse_dtypes(spec, signature, dict.fromkeys(("x1", "x2"), FLOATS))
    if refused:
        return refused
    present = [index for index in (2, 3) if not signature.input(index).is_absent]
    if present:
        return Skip(f"{spec.name}: input slot {present[0]} holds a tensor, torch.bmm takes two")
    batched = _batched(signature)
    if isinstance(batched, str):
        return Skip.invalid(f"{spec.name}: {batched}")
    x1, x2, y, notes = batched
    batch, m, n = y.shape or (0, 0, 0)
    two_dimensional = len(signature.output().shape or ()) == 2
    layout = solve_layout(x1, x2, m, n, prefer_transposed_b=two_dimensional)
    if isinstance(layout, str):
        return Skip.invalid(f"{spec.name}: {layout}")
    tensors = _stored(layout, x1, x2)
    dtypes = product_dtypes(x1, x2, y)
    if isinstance(dtypes, str):
        return Skip.invalid(f"{spec.name}: {dtypes}")
    compute, result, promotions = dtypes
    assumptions = [*notes, *layout.assumptions, *promotions]
    if layout.k == 1:
        assumptions.append("kernel may be Mul on Ascend (K is 1)")
    if x2.format == NZ:
        assumptions.append("kernel may be the BatchMatMul aclop on A2 and A3 (x2 is FRACTAL_NZ)")
    params = {
        "batch": batch,
        "m": m,
        "k": layout.k,
        "n": n,
        "transpose_a": layout.transpose_a,
        "transpose_b": layout.transpose_b,
        "compute_dtype": compute,
        "out_dtype": result,
    }
    return default_case(spec, row, tensors=tensors, params=params, assumptions=assumptions)


def _batched(signature: Signature) -> tuple[TensorSpec, TensorSpec, TensorSpec, tuple[str, ...]] | str:
    """Return x1, x2 and y with exactly one batch dimension, or why they have none in common."""
    tensors = [signature.input(0), signature.input(1), signature.output()]
    names = ("input slot 0 'x1'", "input slot 1 'x2'", "output slot 0")
    leading, flat = [], []
    for name, tensor in zip(names, tensors, strict=True):
        shape = tensor.shape or ()
        inner = 4 if tensor.is_nz_storage else 2
        if len(shape) < inner:
            return f"{name} is {describe(tensor)}, expected a batch of matrices"
        leading.append(shape[:-inner])
        flat.append(attrs.evolve(tensor, shape=(math.prod(shape[:-inner]), *shape[-inner:])))
    batch = leading[2]
    for name, tensor, dims in zip(names[:2], tensors[:2], leading[:2], strict=True):
        if dims != batch and math.prod(dims) != 1:
            return f"{name} is {describe(tensor)}, expected batch {batch} of the output, or 1"
    if math.prod(batch) != max(math.prod(leading[0]), math.prod(leading[1])):
        return f"{names[2]} is {describe(tensors[2])}, expected the batch of x1 and x2"
    notes: tuple[str, ...] = ()
    if not batch:
        notes = ("batch=1 (rows of two dimensions run as a batch of one)",)
    elif len(batch) > 1:
        notes = (f"batch={math.prod(batch)} (leading dimensions {batch} flattened)",)
    return flat[0], flat[1], flat[2], notes


def _stored(layout: MatrixLayout, x1: TensorSpec, x2: TensorSpec) -> dict[str, TensorSpec]:
    m, k, n = layout.m, layout.k, layout.n
    return {
        "x1": logical_matrix(x1, *((k, m) if layout.transpose_a else (m, k))),
        "x2": logical_matrix(x2, *((n, k) if layout.transpose_b else (k, n))),
    }


def perfcollect_canonical_key(row: Row) -> tuple[str, ...] | None:
    """Return the normalised signature; the family shares keys, storage orders stay apart."""
    try:
        return ("BatchMatMul", *parse_signature(row.cells).canonical())
    except ValueError:
        return None


def perfcollect_estimate_cost(case: Case) -> Cost:
    """Count 2BMNK operations; a broadcast operand is read once."""
    batch, m, k, n = case_sizes(case, "batch", "m", "k", "n")
    return Cost(2.0 * batch * m * n * k, bytes_moved(case))


def perfcollect_make_inputs(case: Case, device: Device) -> Inputs:
    """Draw operands whose products are of order one."""
    from perfcollect_core import ValueMaker

    make = ValueMaker(case.seed, device)
    scale = case_sizes(case, "k")[0] ** -0.5
    return Inputs(
        {
            "x1": make.normal(case.tensors["x1"]),
            "x2": make.normal(case.tensors["x2"], scale),
        }
    )


def perfcollect_bind_kernel(case: Case, inputs: Inputs, device: Device) -> Kernel:
    """Bind one bmm; dtype promotion, format casts and broadcast views happen here, outside the timed call."""
    import torch

    from perfcollect_core import torch_dtype

    compute, result = (torch_dtype(str(case.params[name])) for name in ("compute_dtype", "out_dtype"))
    a, b = (cast_to_nz(inputs[name], case.tensors[name], device) for name in ("x1", "x2"))
    keywords = {"out_dtype": result} if result != compute else {}
    if device.family == "ascend":
        torch.npu.matmul.allow_hf32 = False
    else:
        if device.family == "cpu":
            # The CPU has no product with a wider output: operands are widened once, here.
            compute, keywords = result, {}
        a, b = a.to(compute), b.to(compute)
    a = a.transpose(1, 2) if case.params["transpose_a"] else a
    b = b.transpose(1, 2) if case.params["transpose_b"] else b
    (batch,) = case_sizes(case, "batch")
    a = a.expand(batch, -1, -1) if a.shape[0] != batch else a
    # CANN broadcasts a weight of batch 1 itself; stock torch needs the view.
    b = b.expand(batch, -1, -1) if b.shape[0] != batch and device.family != "ascend" else b
    recorded = case.outputs[0].shape
    return Kernel(
        call=lambda: torch.bmm(a, b, **keywords),
        outputs=lambda y: (y.reshape(recorded),),  # type: ignore[attr-defined]  # what call returned
    )


def perfcollect_reference(case: Case, inputs: Inputs) -> Reference:
    """Contract in fp64 over named axes of the tensors as they are stored."""
    import torch

    (batch,) = case_sizes(case, "batch")
    a, b = (inputs[name].cpu().double().expand(batch, -1, -1) for name in ("x1", "x2"))
    left = "bkm" if case.params["transpose_a"] else "bmk"
    right = "bnk" if case.params["transpose_b"] else "bkn"
    product = torch.einsum(f"{left},{right}->bmn", a, b).reshape(case.outputs[0].shape)
    return Reference((product,), (product_tolerance(str(case.params["out_dtype"])),))
