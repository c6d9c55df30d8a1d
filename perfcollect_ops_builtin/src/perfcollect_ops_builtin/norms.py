"""Replay of normalisations along the last axes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from perfcollect_core import (
    Case,
    Cost,
    Device,
    Inputs,
    Kernel,
    Skip,
    Slot,
    Tolerance,
    ValueMaker,
    bytes_moved,
    declare,
    example_row,
    flops_per_output,
    refuse_dtype,
    refuse_output,
)
from perfcollect_core.tensors import format_shape

from .theory.rows_of_tokens import TOKEN_AXES, rms_norm_rows, softmax_rows

if TYPE_CHECKING:
    from torch import Tensor

_REAL = ("BF16", "FLOAT16", "FLOAT")
_EPSILON = 1e-6


def _check_rms_norm(case: Case) -> Case | Skip:
    x, gamma = case.tensors["x"], case.tensors["gamma"]
    shape, axes = x.shape or (), gamma.shape or ()
    if not axes or shape[-len(axes) :] != axes:
        return Skip.invalid(
            f"input 'gamma' has shape {format_shape(axes)}, expected the trailing axes of x ({format_shape(shape)})"
        )
    leading = shape[: len(shape) - len(axes)] + (1,) * len(axes)
    return (
        refuse_dtype("x", x.dtype, _REAL)
        or refuse_dtype("gamma", gamma.dtype, (x.dtype, "FLOAT"))
        or refuse_output(case.signature, 0, shape, x.dtype, "as x")
        or refuse_output(case.signature, 1, leading, "FLOAT", "one rstd a normalised row")
        or attrs.evolve(case, assumptions=(f"epsilon={_EPSILON} (not recorded, timing-neutral)",))
    )


def _call_rms_norm(case: Case, inputs: Inputs, device: Device) -> Kernel:
    x, gamma = inputs["x"], inputs["gamma"]
    if device.family == "ascend":
        import torch_npu

        return Kernel(call=lambda: torch_npu.npu_rms_norm(x, gamma, epsilon=_EPSILON))
    import torch.nn.functional as functional

    # Stock torch has no fused kernel for a gamma of another dtype.
    weight, axes = gamma.to(x.dtype), gamma.shape
    return Kernel(
        call=lambda: functional.rms_norm(x, axes, weight, _EPSILON),
        outputs=lambda y: (y, None),
    )


def _normalised(case: Case, inputs: Inputs) -> tuple[Tensor, Tensor]:
    x, gamma = inputs["x"].double(), inputs["gamma"].double()
    axes = tuple(range(-gamma.dim(), 0))
    rstd = 1 / (x.square().mean(axes, keepdim=True) + _EPSILON).sqrt()
    return x * rstd * gamma, rstd


rms_norm = declare(
    "RmsNorm",
    summary="y = x / rms(x) * gamma over the axes of gamma; also 1 / rms",
    torch={"ascend": "torch_npu.npu_rms_norm", "*": "torch.nn.functional.rms_norm"},
    inputs=(Slot("x"), Slot("gamma", "trailing axes of x")),
    outputs=(Slot("y"), Slot("rstd", "FLOAT, given on Ascend only", optional=True)),
    infer=_check_rms_norm,
    values={"gamma": lambda make, case: make.normal(case.tensors["gamma"], 0.1, 1.0)},
    call=_call_rms_norm,
    reference=_normalised,
    tolerances=lambda case: (Tolerance.of_dtype(case.tensors["x"].dtype, 4, 1e-6), Tolerance(1e-5, 0)),
    cost=lambda case: Cost(4.0 * case.tensors["x"].numel, bytes_moved(case)),
    value_policy="x N(0, 1), gamma N(1, 0.1) as trained norm weights are",
    assumptions=(f"epsilon is {_EPSILON}", "the normalised axes are gamma's"),
    negative=(example_row("136,5120;5000", "DT_BF16;DT_BF16", "136,5120;136,1", "DT_BF16;FLOAT"),),
    axes=TOKEN_AXES,
    rows=rms_norm_rows,
    examples="operators/rms_norm.csv",
)


def _check_softmax(case: Case) -> Case | Skip:
    x, out = case.tensors["x"], case.signature.output()
    assumptions = ["dim=-1 (axes not recorded)"]
    if out.dtype not in ("", x.dtype):
        assumptions.append(
            f"output dtype {x.dtype} (the kernel keeps x's; the recorded {out.dtype} needs a Cast)"
        )
    if not x.shape:
        return Skip.invalid("input slot 0 is a 0-D tensor, expected at least one axis")
    return (
        refuse_dtype("x", x.dtype, (*_REAL, "DOUBLE"))
        or refuse_output(case.signature, 0, x.shape, "", "as x")
        or attrs.evolve(case, params={"dim": -1}, assumptions=tuple(assumptions))
    )


def _logits(make: ValueMaker, case: Case) -> Tensor:
    return make.normal(case.tensors["x"], 3.0)


def _probabilities(case: Case, inputs: Inputs) -> tuple[Tensor]:
    x = inputs["x"].double()
    weights = (x - x.amax(-1, keepdim=True)).exp()
    return (weights / weights.sum(-1, keepdim=True),)


def _softmax_tolerance(case: Case) -> tuple[Tolerance, ...]:
    dtype = case.tensors["x"].dtype
    # exp(x - max) has the relative error that x - max, which reaches 30, has absolutely; 16 bits hide it.
    wide = dtype in ("FLOAT", "DOUBLE")
    return (Tolerance.of_dtype(dtype, 256 if wide else 4, 1e-9 if wide else 1e-6),)


softmax = declare(
    "SoftmaxV2",
    summary="y = exp(x - max) / sum along the last axis",
    torch="torch.softmax",
    infer=_check_softmax,
    values={"x": _logits},
    reference=_probabilities,
    tolerances=_softmax_tolerance,
    cost=flops_per_output(5),
    value_policy="logits N(0, 3), no row fully masked",
    assumptions=("dim is -1", "the output has x's dtype"),
    negative=(example_row("4,151936", "FLOAT", "4,151935", "FLOAT"),),
    axes=TOKEN_AXES,
    rows=softmax_rows,
    examples="operators/softmax_v2.csv",
)
