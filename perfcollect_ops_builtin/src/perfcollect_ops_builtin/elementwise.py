"""Replay of element-wise and activation kernels."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import attrs

from perfcollect_core import (
    Case,
    Device,
    Inputs,
    Kernel,
    Skip,
    Slot,
    TensorSpec,
    ValueMaker,
    broadcast_shape,
    declare,
    example_row,
    flops_per_output,
    refuse_dtype,
    refuse_output,
)
from perfcollect_core.tensors import format_shape

from .theory.rows_of_tokens import TOKEN_AXES, add_rows, swiglu_rows

if TYPE_CHECKING:
    from torch import Tensor

_REAL = ("BF16", "FLOAT16", "FLOAT")
_ADDED = (*_REAL, "DOUBLE", "INT8", "UINT8", "INT16", "INT32", "INT64", "BOOL", "COMPLEX64")


def _check_add(case: Case) -> Case | Skip:
    x = case.tensors["x"]
    if "y" not in case.tensors:
        assumed = f"y=scalar {x.dtype} (slot 1 not recorded)"
        case = attrs.evolve(
            case, tensors={"x": x, "y": TensorSpec(None, x.dtype, "ND")}, assumptions=(assumed,)
        )
    y = case.tensors["y"]
    refused = refuse_dtype("x", x.dtype, _ADDED) or refuse_dtype("y", y.dtype, _ADDED)
    shape = broadcast_shape(x.shape, y.shape)
    if shape is None:
        return Skip.invalid(
            f"input slots 0 and 1 have shapes {format_shape(x.shape)} and {format_shape(y.shape)}, "
            "which do not broadcast"
        )
    # A 0-D operand does not promote; of other dtype mixes only 16 bit with FLOAT is one Add kernel.
    words = {t.dtype for t in (x, y) if not t.is_scalar} or {x.dtype}
    promoted = "FLOAT" if "FLOAT" in words and words <= set(_REAL) else ""
    dtype = words.pop() if len(words) == 1 else promoted
    return refused or refuse_output(case.signature, 0, shape, dtype, "x broadcast with y") or case


def _addend(name: str, make: ValueMaker, case: Case) -> Tensor:
    spec = case.tensors[name]
    if spec.is_scalar:
        return make.tensor(True if spec.dtype == "BOOL" else 3, spec.dtype).cpu()
    # Sums of full-range INT8 would wrap.
    return make.integers(spec, 0, 8) if spec.dtype == "INT8" else make.by_dtype(spec)


def _sum(case: Case, inputs: Inputs) -> tuple[Tensor]:
    x, y = (t.cdouble() if t.is_complex() else t.double() for t in (inputs["x"], inputs["y"]))
    both_bool = case.tensors["x"].dtype == case.tensors["y"].dtype == "BOOL"
    return ((x + y).clamp(max=1) if both_bool else x + y,)


add = declare(
    "Add",
    summary="out = x + y with broadcasting",
    torch="torch.add",
    inputs=(1, 2),
    aliases=("AddAiCore",),
    infer=_check_add,
    values={name: partial(_addend, name) for name in "xy"},
    reference=_sum,
    value_policy="floats N(0, 1), integers 0..7 so that sums do not overflow; a 0-D operand is the host scalar 3",
    assumptions=("y is a scalar of x's dtype where slot 1 is not recorded",),
    negative=(example_row("16,7168;3,1", "DT_BF16;DT_BF16", "16,7168", "DT_BF16"),),
    axes=TOKEN_AXES,
    rows=add_rows,
    examples="operators/add.csv",
)


def _check_swiglu(case: Case) -> Case | Skip:
    x, out = case.tensors["x"], case.signature.output()
    shape = x.shape or ()
    # Halving one axis never looks like halving another: at most one fits.
    halved = [
        axis - len(shape)
        for axis, size in enumerate(shape)
        if size % 2 == 0 and out.shape == (*shape[:axis], size // 2, *shape[axis + 1 :])
    ]
    if out.shape is None and shape and shape[-1] % 2 == 0:
        case = attrs.evolve(case, assumptions=("dim=-1 (output not recorded)",))
    elif not halved:
        recorded = "" if out.shape is None else f" and the output {format_shape(out.shape)}"
        return Skip.invalid(
            f"input 'x' has shape {format_shape(shape)}{recorded}, expected one even axis halved in the output"
        )
    refused = refuse_dtype("x", x.dtype, _REAL)
    if out.shape is not None:
        refused = refused or refuse_output(case.signature, 0, out.shape, x.dtype, "as x")
    return refused or attrs.evolve(case, params={"dim": halved[0] if halved else -1})


def _call_swiglu(case: Case, inputs: Inputs, device: Device) -> Kernel:
    x, dim = inputs["x"], case.integer("dim")
    if device.family == "ascend":
        import torch_npu

        return Kernel(call=lambda: torch_npu.npu_swiglu(x, dim=dim))
    import torch.nn.functional as functional

    first, second = x.chunk(2, dim)
    return Kernel(call=lambda: functional.silu(first) * second)


def _gated(case: Case, inputs: Inputs) -> tuple[Tensor]:
    dim = case.integer("dim")
    gate, up = inputs["x"].double().unflatten(dim, (2, -1)).movedim(dim - 1, 0)
    return (gate * up / (1 + (-gate).exp()),)


swiglu = declare(
    "SwiGlu",
    summary="silu of the first half of x along dim, times the second half",
    torch={"ascend": "torch_npu.npu_swiglu", "*": "torch.nn.functional.silu"},
    inputs=(Slot("x", "gate and up, concatenated along dim"),),
    infer=_check_swiglu,
    call=_call_swiglu,
    reference=_gated,
    cost=flops_per_output(5),
    value_policy="floats N(0, 1), as activations are",
    assumptions=("dim is the axis the output halves, -1 where no output is recorded",),
    negative=(example_row("16,4095", "DT_BF16", "16,2047", "DT_BF16"),),
    axes=TOKEN_AXES,
    rows=swiglu_rows,
    examples="operators/swi_glu.csv",
)
