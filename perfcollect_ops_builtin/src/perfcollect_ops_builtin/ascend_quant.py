"""Replay of AscendQuantV2: quantisation with given scales and offsets."""

from __future__ import annotations

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
)
from perfcollect_core.cases import Param

from .int4_packing import PER_WORD, pack_int4
from .matrix_layouts import logical_matrix, stores
from .nz_weights import cast_to_nz
from .precision import FLOATS, PACKED, QUANTISED, quantised_reference
from .row_checks import describe, float_row, read_signature, refuse_dtypes, row_cells
from .theory.rows_of_tokens import TOKEN_AXES
from .theory.rows_of_tokens import quantise_rows as perfcollect_generate_rows  # noqa: F401  # a hook

if TYPE_CHECKING:
    from torch import Tensor

_BF16_3 = "DT_BF16;DT_BF16;DT_BF16"
_RANGES = {"INT8": (-128, 127), "INT4": (-8, 7)}


def perfcollect_operator_spec(operator: str) -> OperatorSpec:
    """Describe the operator."""
    return OperatorSpec(
        name=operator,
        summary="y = round(x scale + offset) saturated to INT8 or INT4, per channel or per tensor",
        api={
            "ascend": "torch_npu.npu_quantize with div_mode=False",
            "cuda": "mul, add, round, clamp",
            "cpu": "mul, add, round, clamp",
        },
        inputs=(
            Slot("x", "(..., D), one to eight dimensions; a weight to pack may be FRACTAL_NZ"),
            Slot("scale", "(D), (1), the next to last dimension, or the rank of x with ones; dtype of x"),
            Slot("offset", "like scale", optional=True),
        ),
        outputs=(Slot("y", "like x in INT8; (..., D/8) INT32 or INT4 where packed"),),
        aliases=("AscendQuantV2Aicore",),
        axes=TOKEN_AXES,
        value_policy="x N(0,1), scale 25 to 40 so that results span the range (1.5 to 2.5 for INT4), offset -4 to 4; seeded by row",
        assumptions=(
            "axis is -1 where the scale fits the last two dimensions alike",
            "the rounding mode is round to nearest even, sqrt_mode is off",
            "INT4 results are packed eight in an INT32, as torch_npu returns them",
        ),
        negative=(
            float_row("16,512;500", "16,512") | {"Output Data Types": "INT8"},
            row_cells("16,512;512;500", _BF16_3, "16,512", "INT8"),
            row_cells("16,512;512;512", _BF16_3, "16,500", "INT8"),
            row_cells("16,512;512;512", "DT_BF16;FLOAT;FLOAT", "16,512", "INT8"),
            row_cells("16,508;508", "DT_BF16;DT_BF16", "16,63", "INT32"),
            row_cells("16,512;512", "DT_BF16;DT_BF16", "16,512", "INT32"),
            row_cells("16,512;512", "DT_BF16;DT_BF16", "", ""),
        ),
        examples=read_examples(__package__, "operators/ascend_quant_v2.csv"),
    )


def perfcollect_make_case(spec: OperatorSpec, row: Row) -> Case | Skip:
    """Find the destination type from the output and the axis from the scale."""
    signature = read_signature(spec, row)
    if isinstance(signature, Skip):
        return signature
    floats = dict.fromkeys(("x", "scale", "offset"), FLOATS)
    refused = refuse_dtypes(spec, signature, {**floats, "y": ("INT8", "INT4", "INT32")})
    if refused:
        return refused
    resolved = _resolve(signature)
    if isinstance(resolved, str):
        return Skip.invalid(f"{spec.name}: {resolved}")
    x, params, assumptions = resolved
    tensors = {"x": x, "scale": signature.input(1)}
    if not signature.input(2).is_absent:
        tensors["offset"] = signature.input(2)
    return default_case(spec, row, tensors=tensors, params=params, assumptions=assumptions)


def _resolve(signature: Signature) -> tuple[TensorSpec, dict[str, Param], list[str]] | str:
    x, scale, offset = (signature.input(slot) for slot in range(3))
    y = signature.output()
    packed = y.dtype in ("INT4", "INT32")
    unpacked = (*(y.shape or ())[:-1], (y.shape or (0,))[-1] * (PER_WORD if y.dtype == "INT32" else 1))
    if x.is_nz_storage and len(unpacked) > 1 and stores(x, *unpacked[-2:]):
        x = logical_matrix(x, *unpacked[-2:])
    shape = x.shape or ()
    if len(shape) > 8:
        return f"input slot 0 'x' is {describe(x)}, expected one to eight dimensions"
    if unpacked != shape:
        return f"output slot 0 is {describe(y)} {y.dtype}, expected {describe(x)}, or D/8 packed in INT32"
    if packed and shape[-1] % PER_WORD:
        return f"input slot 0 'x' is {describe(x)}, expected D in multiples of {PER_WORD} for INT4"
    axis = _axis(shape, scale)
    if isinstance(axis, str):
        return axis
    if not offset.is_absent and offset.shape != scale.shape:
        return f"input slot 2 'offset' is {describe(offset)}, expected {describe(scale)} like the scale"
    for index, (name, tensor) in enumerate((("scale", scale), ("offset", offset)), start=1):
        if not tensor.is_absent and tensor.dtype != x.dtype:
            return f"input slot {index} {name!r} is {tensor.dtype}, expected {x.dtype} like x"
    notes = []
    if len(shape) > 1 and scale.shape == shape[-1:] and shape[-2] == shape[-1] > 1:
        notes.append("axis=-1 (the scale fits the last two dimensions)")
    return x, {"dst": "INT4" if packed else "INT8", "axis": axis}, notes


def _axis(shape: tuple[int, ...], scale: TensorSpec) -> int | str:
    """Return the axis a scale runs along, -1 where it is one number, or why it fits none."""
    found = scale.shape or ()
    if scale.numel == 1 or found == shape[-1:]:
        return -1
    if len(shape) > 1 and found == shape[-2:-1]:
        return -2
    if len(found) == len(shape):
        wide = [axis for axis in (-1, -2) if found[axis] == shape[axis] and scale.numel == shape[axis]]
        if wide:
            return wide[0]
    return f"input slot 1 'scale' is {','.join(map(str, found))}, expected {shape[-1]}, 1, or one along an axis of x"


def perfcollect_estimate_cost(case: Case) -> Cost:
    """Count a multiplication, a rounding and, with offset, an addition an element; each tensor once."""
    return Cost((3.0 if "offset" in case.tensors else 2.0) * case.tensors["x"].numel, bytes_moved(case))


def perfcollect_make_inputs(case: Case, device: Device) -> Inputs:
    """Draw activations, and scales that spread them over the destination's range."""
    from perfcollect_core import ValueMaker

    make = ValueMaker(case.seed, device)
    low, high = (25.0, 40.0) if case.params["dst"] == "INT8" else (1.5, 2.5)
    tensors = {"x": make.normal(case.tensors["x"]), "scale": make.uniform(case.tensors["scale"], low, high)}
    if "offset" in case.tensors:
        tensors["offset"] = make.integers(case.tensors["offset"], -4, 5)
    return Inputs(tensors)


def perfcollect_bind_kernel(case: Case, inputs: Inputs, device: Device) -> Kernel:
    """Bind the fused call on Ascend, its steps elsewhere."""
    import torch

    if device.family == "ascend":
        return Kernel(call=_ascend_call(case, inputs, device))
    low, high = _RANGES[str(case.params["dst"])]
    scale = _along_axis(inputs["scale"], case)
    offset = _along_axis(inputs["offset"], case) if "offset" in case.tensors else None
    packed = case.params["dst"] == "INT4"

    def call() -> Tensor:
        y = inputs["x"].float() * scale
        if offset is not None:
            y += offset
        q = y.round_().clamp_(low, high).to(torch.int8)
        return pack_int4(q) if packed else q

    return Kernel(call=call)


def _along_axis(factors: Tensor, case: Case) -> Tensor:
    """Give a 1-D factor along the next to last dimension the dimension it lacks."""
    factors = factors.float()
    return factors[:, None] if case.params["axis"] == -2 and factors.dim() == 1 else factors


def _ascend_call(case: Case, inputs: Inputs, device: Device) -> Callable[[], Tensor]:
    import torch
    import torch_npu

    dtype = torch.quint4x2 if case.params["dst"] == "INT4" else torch.qint8
    x = cast_to_nz(inputs["x"], case.tensors["x"], device)
    offset = inputs["offset"] if "offset" in case.tensors else None
    # div_mode=True would be another kernel, Quantize.
    return lambda: torch_npu.npu_quantize(
        x, inputs["scale"], offset, dtype, axis=case.params["axis"], div_mode=False
    )


def perfcollect_reference(case: Case, inputs: Inputs) -> Reference:
    """Multiply and add in fp64 over the moved axis, round to nearest even."""
    import torch

    x = inputs["x"].cpu().double()
    axis = int(str(case.params["axis"]))
    moved = x.movedim(axis, -1)
    factors = inputs["scale"].cpu().double().flatten().expand(moved.shape[-1])
    y = torch.einsum("...d,d->...d", moved, factors)
    if "offset" in case.tensors:
        y = torch.add(y, inputs["offset"].cpu().double().flatten())
    low, high = _RANGES[str(case.params["dst"])]
    q = y.round().clamp(low, high).movedim(-1, axis)
    if case.params["dst"] == "INT4":
        return Reference((pack_int4(q),), (PACKED,))
    return quantised_reference((q,), (QUANTISED,))
