"""Replay of TransposeBatchMatMul: a batched product whose result is written token-major."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

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
    read_examples,
)

from .matrix_layouts import case_sizes, logical_matrix, stores
from .nz_weights import cast_to_nz
from .packed_scales import ascend_scale, pack_scales, unpack_scales
from .precision import FLOATS, product_tolerance, quantised_reference
from .row_checks import describe, float_row, read_signature, refuse_dtypes
from .theory.products import TRANSPOSED_AXES
from .theory.products import transposed_rows as perfcollect_generate_rows  # noqa: F401  # a hook

if TYPE_CHECKING:
    from torch import Tensor

_SIZE_LIMIT = 65536
_PERMS = {False: "[0,1,2]", True: "[1,0,2]"}


def perfcollect_operator_spec(operator: str) -> OperatorSpec:
    """Describe the operator."""
    return OperatorSpec(
        name=operator,
        summary="Y[M,B,N] = x1[B,M,K] x2[B,K,N] written token-major, optionally scaled to INT8",
        api={
            "ascend": "torch_npu.npu_transpose_batchmatmul",
            "cuda": "torch.bmm, transpose, contiguous",
            "cpu": "torch.bmm, transpose, contiguous",
        },
        inputs=(
            Slot("x1", "(B,M,K), or (M,B,K) with perm_x1 [1,0,2]"),
            Slot("x2", "(B,K,N), or (B,N,K) on Ascend 950; FRACTAL_NZ in blocks or logical"),
            Slot("bias", "not supported by the kernel", optional=True, metadata=True),
            Slot("scale", "(B*N), INT8 output only", optional=True),
        ),
        outputs=(Slot("y", "(M,B,N); (M,1,B*N) with scale; (S,M,B*N/S) with batch_split_factor S"),),
        axes=TRANSPOSED_AXES,
        value_policy="x1 N(0,1), x2 N(0,1/K), scales 20 to 40 so that INT8 results span the range; seeded by row",
        assumptions=(
            "perm_x1 is [0,1,2] where both orders of x1 fit (M equals B)",
            "x2 is (B,K,N) where both orders fit (K equals N)",
            "batch_split_factor is 1 where the output fits without a split",
            "K or N that is no multiple of 16 may be refused by CANN",
        ),
        negative=(
            float_row("16,4,512;16,500,128", "4,16,128"),
            float_row("15,4,512;16,512,128", "4,15,128"),
            float_row("16,4,512;16,512,128", "5,16,128"),
            float_row("16,4,512;16,512,128;128", "4,16,128"),
            float_row("16,4,512;16,512,128", "3,4,682"),
            float_row("16,4,512;16,512,128", ""),
        ),
        examples=read_examples(__package__, "operators/transpose_batch_matmul.csv"),
    )


@attrs.frozen
class _Layout:
    m: int
    k: int
    n: int
    x1_token_major: bool
    x2_transposed: bool
    split: int


def perfcollect_make_case(spec: OperatorSpec, row: Row) -> Case | Skip:
    """Resolve perm_x1, the order of x2 and the split factor from the output."""
    signature = read_signature(spec, row)
    if isinstance(signature, Skip):
        return signature
    scaled = not signature.input(3).is_absent
    floats = ("FLOAT16",) if scaled else FLOATS
    words = {"x1": floats, "x2": floats, "scale": ("INT64", "UINT64"), "y": ("INT8",) if scaled else FLOATS}
    refused = refuse_dtypes(spec, signature, words)
    if refused:
        return refused
    fits = _fits(signature)
    if isinstance(fits, str):
        return Skip.invalid(f"{spec.name}: {fits}")
    layout, batch = fits[0], (signature.input(1).shape or (0,))[0]
    m, k, n = layout.m, layout.k, layout.n
    x1, x2 = signature.input(0), signature.input(1)
    if x1.dtype != x2.dtype or (not scaled and signature.output().dtype not in ("", x1.dtype)):
        return Skip.invalid(
            f"{spec.name}: x1 is {x1.dtype}, x2 {x2.dtype} and the output {signature.output().dtype}, expected one dtype"
        )
    tensors = {
        "x1": TensorSpec((m, batch, k) if layout.x1_token_major else (batch, m, k), x1.dtype, "ND"),
        "x2": logical_matrix(x2, *((n, k) if layout.x2_transposed else (k, n))),
    }
    if scaled:
        tensors["scale"] = TensorSpec((batch * n,), signature.input(3).dtype, "ND")
    params = {
        "batch": batch,
        "m": m,
        "k": k,
        "n": n,
        "x1_token_major": layout.x1_token_major,
        "x2_transposed": layout.x2_transposed,
        "batch_split_factor": layout.split,
    }
    return default_case(spec, row, tensors=tensors, params=params, assumptions=_assumptions(layout, fits))


def _fits(signature: Signature) -> list[_Layout] | str:
    """Return every layout the shapes allow, the preferred one first, or why there is none."""
    x1, x2, bias, scale = (signature.input(slot) for slot in range(4))
    y = signature.output()
    if not bias.is_absent:
        return f"input slot 2 'bias' is {describe(bias)}, the kernel takes none"
    if len(x1.shape or ()) != 3:
        return f"input slot 0 'x1' is {describe(x1)}, expected three dimensions"
    if len(x2.shape or ()) != (5 if x2.is_nz_storage else 3):
        return f"input slot 1 'x2' is {describe(x2)}, expected (B,K,N)"
    if len(y.shape or ()) != 3:
        return f"output slot 0 is {describe(y)}, expected three dimensions"
    batch, found = (x2.shape or (0,))[0], []
    tokens: set[int] = set()
    for token_major in (False, True):
        first, second, k = x1.shape or (0, 0, 0)
        m, x1_batch = (first, second) if token_major else (second, first)
        if x1_batch != batch:
            continue
        tokens.add(m)
        for n, split in _columns(y.shape or (), m, batch, scaled=not scale.is_absent):
            for transposed in (False, True):
                if stores(x2, *((n, k) if transposed else (k, n))):
                    found.append(_Layout(m, k, n, token_major, transposed, split))
    if not tokens:
        return f"input slot 0 'x1' is {describe(x1)}, expected (B,M,K) or (M,B,K) with B={batch} of x2 {describe(x2)}"
    if not x2.is_nz_storage and (x1.shape or ())[2] not in (x2.shape or ())[1:]:
        return f"input slot 1 'x2' is {describe(x2)}, expected (B,K,N) with K={(x1.shape or ())[2]} of x1 {describe(x1)}"
    if not found:
        return (
            f"output slot 0 is {describe(y)}, expected (M,B,N) or a split of it for x1 {describe(x1)}, "
            f"x2 {describe(x2)} and M={' or '.join(map(str, sorted(tokens)))}"
        )
    if max(batch, found[0].n) >= _SIZE_LIMIT:
        return f"B={batch}, N={found[0].n}: both must stay below {_SIZE_LIMIT}"
    if not scale.is_absent and scale.numel != batch * found[0].n:
        return f"input slot 3 'scale' is {describe(scale)}, expected {batch * found[0].n} (B*N)"
    return sorted(found, key=lambda fit: fit.split > 1)


def _columns(y: tuple[int, ...], m: int, batch: int, *, scaled: bool) -> list[tuple[int, int]]:
    """Return the (N, split factor) an output shape allows for M tokens and B batch entries."""
    if scaled:
        return [(y[2] // batch, 1)] if y[:2] == (m, 1) and y[2] % batch == 0 else []
    found = [(y[2], 1)] if y[:2] == (m, batch) else []
    split = y[0]
    if y[1] == m and split > 1 and batch % split == 0 and (y[2] * split) % batch == 0:
        found.append((y[2] * split // batch, split))
    return found


def _assumptions(layout: _Layout, fits: list[_Layout]) -> tuple[str, ...]:
    notes = []
    if any(fit.x1_token_major != layout.x1_token_major for fit in fits):
        notes.append(f"perm_x1={_PERMS[layout.x1_token_major]} (x1 fits as (B,M,K) and as (M,B,K))")
    if any(fit.x2_transposed != layout.x2_transposed for fit in fits):
        notes.append("perm_x2=[0,1,2] (x2 fits both orders, taken as (B,K,N))")
    if any(fit.split != layout.split for fit in fits):
        notes.append(f"batch_split_factor={layout.split} (the output fits a split, too)")
    if layout.k % 16 or layout.n % 16:
        notes.append(f"K={layout.k} or N={layout.n} is no multiple of 16 (CANN may refuse it)")
    return tuple(notes)


def perfcollect_estimate_cost(case: Case) -> Cost:
    """Count 2BMNK operations and each tensor once."""
    batch, m, k, n = case_sizes(case, "batch", "m", "k", "n")
    return Cost(2.0 * batch * m * n * k, bytes_moved(case))


def perfcollect_make_inputs(case: Case, device: Device) -> Inputs:
    """Draw operands whose products are of order one, and packed scales where the row has them."""
    from perfcollect_core import ValueMaker

    make = ValueMaker(case.seed, device)
    tensors = {
        "x1": make.normal(case.tensors["x1"]),
        "x2": make.normal(case.tensors["x2"], case_sizes(case, "k")[0] ** -0.5),
    }
    if "scale" in case.tensors:
        shape = case.tensors["scale"].shape
        tensors["scale"] = pack_scales(make.uniform(TensorSpec(shape, "FLOAT"), 20.0, 40.0))
    return Inputs(tensors)


def perfcollect_bind_kernel(case: Case, inputs: Inputs, device: Device) -> Kernel:
    """Bind the fused call on Ascend, its unfused equivalent elsewhere."""
    if device.family == "ascend":
        return Kernel(call=_ascend_call(case, inputs, device))
    x1, x2 = inputs["x1"], inputs["x2"]
    if case.params["x1_token_major"]:
        x1 = x1.transpose(0, 1)
    if case.params["x2_transposed"]:
        x2 = x2.transpose(1, 2)
    scale = None
    if "scale" in case.tensors:
        # The kernel scales its fp32 accumulator; a product rounded to fp16 would round twice.
        x1, x2, scale = x1.float(), x2.float(), unpack_scales(inputs["scale"])
    m, split = case_sizes(case, "m", "batch_split_factor")
    return Kernel(call=lambda: _token_major(x1, x2, scale, m, split))


def _token_major(x1: Tensor, x2: Tensor, scale: Tensor | None, m: int, split: int) -> Tensor:
    import torch

    y = torch.bmm(x1, x2).transpose(0, 1)
    if scale is not None:
        scaled = y.reshape(m, 1, -1) * scale
        return scaled.round_().clamp_(-128, 127).to(torch.int8)
    if split > 1:
        return y.reshape(m, split, -1).transpose(0, 1).contiguous()
    return y.contiguous()


def _ascend_call(case: Case, inputs: Inputs, device: Device) -> Callable[[], Tensor]:
    import torch_npu

    weight = cast_to_nz(inputs["x2"], case.tensors["x2"], device)
    scale = ascend_scale(inputs["scale"]) if "scale" in case.tensors else None
    perm_x1 = [1, 0, 2] if case.params["x1_token_major"] else [0, 1, 2]
    perm_x2 = [0, 2, 1] if case.params["x2_transposed"] else [0, 1, 2]
    (split,) = case_sizes(case, "batch_split_factor")
    return lambda: torch_npu.npu_transpose_batchmatmul(
        inputs["x1"],
        weight,
        scale=scale,
        perm_x1=perm_x1,
        perm_x2=perm_x2,
        perm_y=[1, 0, 2],
        batch_split_factor=split,
    )


def perfcollect_reference(case: Case, inputs: Inputs) -> Reference:
    """Contract in fp64 straight into token-major order, entry by entry of the named axes."""
    import torch

    a, b = (inputs[name].cpu().double() for name in ("x1", "x2"))
    left = "mbk" if case.params["x1_token_major"] else "bmk"
    right = "bnk" if case.params["x2_transposed"] else "bkn"
    y = torch.einsum(f"{left},{right}->mbn", a, b)
    (split,) = case_sizes(case, "batch_split_factor")
    dtype = case.outputs[0].dtype or case.tensors["x1"].dtype
    if "scale" in case.tensors:
        scale = unpack_scales(inputs["scale"].cpu()).double()
        y = (y.flatten(1) * scale).round().clamp(-128, 127).unsqueeze(1)
    elif split > 1:
        y = torch.stack(y.flatten(1).chunk(split, dim=1))
    return quantised_reference((y,), (product_tolerance(dtype),))
