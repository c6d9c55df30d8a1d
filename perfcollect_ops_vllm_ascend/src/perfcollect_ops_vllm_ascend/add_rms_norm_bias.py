"""Replay of AddRmsNormBias: residual add and root-mean-square norm in one kernel of vllm-ascend."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from perfcollect_core import (
    ABSENT,
    Case,
    Cost,
    Device,
    Inputs,
    Kernel,
    Need,
    OperatorSpec,
    Row,
    Skip,
    Slot,
    Tolerance,
    bytes_moved,
    declare,
    example_row,
    parse_signature,
    refuse_dtype,
    refuse_output,
)
from perfcollect_core.tensors import format_shape

from .theory.rows_of_tokens import ADD_NORM_AXES, add_norm_rows

if TYPE_CHECKING:
    from torch import Tensor

_REAL = ("BF16", "FLOAT16", "FLOAT")
_EPSILON = 1e-6


def _check(case: Case) -> Case | Skip:
    x1, gamma = case.tensors["x1"], case.tensors["gamma"]
    shape, axes = x1.shape or (), gamma.shape or ()
    # Theory rows give beta a shape without a dtype: absent all the same.
    tensors = {name: t for name, t in case.tensors.items() if name != "beta" or (t.shape and t.dtype)}
    if not axes or shape[-len(axes) :] != axes:
        return Skip.invalid(
            f"input 'gamma' has shape {format_shape(axes)}, expected the trailing axes of x1 ({format_shape(shape)})"
        )
    for name, expected in (("x2", shape), ("beta", axes)):
        if name in tensors and tensors[name].shape != expected:
            return Skip.invalid(
                f"input {name!r} has shape {format_shape(tensors[name].shape)}, expected {format_shape(expected)}"
            )
    for name, tensor in tensors.items():
        refused = refuse_dtype(name, tensor.dtype, _REAL if name == "x1" else (x1.dtype,))
        if refused:
            return refused
    leading = shape[: len(shape) - len(axes)] + (1,) * len(axes)
    assumptions = [f"epsilon={_EPSILON} (not recorded, timing-neutral)"]
    if "beta" in case.tensors and "beta" not in tensors:
        assumptions.append("beta=absent (slot 3 has no dtype)")
    return (
        refuse_output(case.signature, 0, shape, x1.dtype, "y, as x1")
        or refuse_output(case.signature, 1, leading, "FLOAT", "one rstd a normalised row")
        or refuse_output(case.signature, 2, shape, x1.dtype, "x, as x1")
        or attrs.evolve(case, tensors=tensors, assumptions=tuple(assumptions))
    )


def _canonical_key(spec: OperatorSpec, row: Row) -> tuple[str, ...] | None:
    try:
        signature = parse_signature(row.cells)
    except ValueError:
        return None
    inputs = tuple(t if t.dtype else ABSENT for t in signature.inputs)
    return (spec.name, *attrs.evolve(signature, inputs=inputs).canonical())


def _call(case: Case, inputs: Inputs, device: Device) -> Kernel:
    import torch

    x1, x2, gamma, beta = inputs["x1"], inputs["x2"], inputs["gamma"], inputs.tensors.get("beta")
    if device.family == "ascend":
        from vllm_ascend.utils import enable_custom_op  # type: ignore[import-not-found]  # found, never required

        enable_custom_op()
        return Kernel(
            call=lambda: torch.ops._C_ascend.npu_add_rms_norm_bias(
                x1=x1, x2=x2, gamma=gamma, beta=beta, epsilon=_EPSILON
            )
        )

    def add_norm() -> tuple[Tensor, None, Tensor]:
        x = x1 + x2
        y = torch.nn.functional.rms_norm(x, gamma.shape, gamma, _EPSILON)
        return y if beta is None else y + beta, None, x

    return Kernel(call=add_norm)


def _normalised(case: Case, inputs: Inputs) -> tuple[Tensor | None, ...]:
    x = inputs["x1"].double() + inputs["x2"].double()
    gamma, beta = inputs["gamma"].double(), inputs.tensors.get("beta")
    axes = tuple(range(-gamma.dim(), 0))
    rstd = 1 / (x.square().mean(axes, keepdim=True) + _EPSILON).sqrt()
    y = x * rstd * gamma
    return y if beta is None else y + beta.double(), rstd, x


def _tolerances(case: Case) -> tuple[Tolerance, ...]:
    dtype = case.tensors["x1"].dtype
    # Off Ascend the sum is rounded before it is normalised, and y before beta is added to it.
    absolute = Tolerance.of_dtype(dtype, 8).rtol
    return (Tolerance.of_dtype(dtype, 6, absolute), Tolerance(1e-5, 0), Tolerance.of_dtype(dtype))


_HINT = "install vllm-ascend with its custom OPP package and source its set_env.bash"

add_rms_norm_bias = declare(
    "AddRmsNormBias",
    summary="x = x1 + x2; y = x / rms(x) * gamma (+ beta); also 1 / rms and x",
    torch={"ascend": "torch.ops._C_ascend.npu_add_rms_norm_bias", "*": "torch.nn.functional.rms_norm"},
    inputs=(
        Slot("x1"),
        Slot("x2"),
        Slot("gamma", "trailing axes of x1"),
        Slot("beta", "as gamma", optional=True),
    ),
    outputs=(Slot("y"), Slot("rstd", "FLOAT, given on Ascend only", optional=True), Slot("x")),
    needs=(
        Need("module", "vllm_ascend", _HINT),
        Need("env", "ASCEND_CUSTOM_OPP_PATH", _HINT),
        Need("schema", "_C_ascend::npu_add_rms_norm_bias", _HINT),
    ),
    infer=_check,
    canonical_key=_canonical_key,
    values={
        "gamma": lambda make, case: make.normal(case.tensors["gamma"], 0.1, 1.0),
        "beta": lambda make, case: make.normal(case.tensors["beta"], 0.1),
    },
    call=_call,
    reference=_normalised,
    tolerances=_tolerances,
    cost=lambda case: Cost(6.0 * case.tensors["x1"].numel, bytes_moved(case)),
    value_policy="x1 and x2 N(0, 1), gamma N(1, 0.1), beta N(0, 0.1) as trained norm weights are",
    assumptions=(f"epsilon is {_EPSILON}", "a beta slot without dtype is absent"),
    negative=(
        example_row(
            "16,64;8,64;64;",
            "DT_BF16;DT_BF16;DT_BF16;DT_UNDEFINED",
            "16,64;16,1;16,64",
            "DT_BF16;FLOAT;DT_BF16",
        ),
        example_row("16,64;16,64;32", "DT_BF16;DT_BF16;DT_BF16", "16,64;16,1;16,64", "DT_BF16;FLOAT;DT_BF16"),
    ),
    axes=ADD_NORM_AXES,
    rows=add_norm_rows,
    examples="operators/add_rms_norm_bias.csv",
)
