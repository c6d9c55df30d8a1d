"""Replay of DynamicQuant: quantisation with scales computed from the values, per token unless the row says else."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, cast

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
    Skip,
    Slot,
    TensorSpec,
    Tolerance,
    bytes_moved,
    default_case,
    read_examples,
)

from .dynamic_quant_modes import find_destination, input_misfit
from .int4_packing import pack_int4
from .precision import PACKED, QUANTISED, quantised_reference
from .row_checks import float_row, read_signature, refuse_dtypes, row_cells
from .theory.rows_of_tokens import TOKEN_AXES
from .theory.rows_of_tokens import dynamic_quant_rows as perfcollect_generate_rows  # noqa: F401  # a hook

if TYPE_CHECKING:
    from torch import Tensor

_SCALES = Tolerance(rtol=1e-5, atol=1e-9)
#: A difference of two numbers near 128 in fp32.
_OFFSETS = Tolerance(rtol=1e-5, atol=1e-4)
_QMAX = {"INT8": 127, "INT4": 7}
_MODES = {"pertoken": (-1,), "perchannel": (-2,)}
_OUT = "INT8;FLOAT"


def perfcollect_operator_spec(operator: str) -> OperatorSpec:
    """Describe the operator."""
    return OperatorSpec(
        name=operator,
        summary="scale = max|x smooth| / 127 per row, q = round(x smooth / scale)",
        api={
            "ascend": "torch_npu.npu_dynamic_quant; npu_dynamic_quant_asymmetric for three outputs",
            "cuda": "amax, div, round",
            "cpu": "amax, div, round",
        },
        inputs=(
            Slot("x", "(..., D) BF16 or FLOAT16, two dimensions at least"),
            Slot("smooth_scales", "(D), or (E,D) with group_index", optional=True),
            Slot("group_index", "(E) INT32, cumulative rows", optional=True),
        ),
        outputs=(
            Slot("y", "like x in INT8; (..., D/8) INT32 or INT4 where packed"),
            Slot("scale", "leading dimensions of x; (1) per tensor; (..., D) per channel"),
            Slot("offset", "like scale, asymmetric form only", optional=True),
        ),
        # npu_dynamic_quant_asymmetric, which a row of three outputs calls, launches this type.
        aliases=("DynamicQuantV2",),
        axes=TOKEN_AXES,
        value_policy=(
            "x N(0,1) with one value in a thousand 20 times larger, smooth_scales 0.5 to 1.5, group_index a random "
            "cumulative count ending at the number of rows; seeded by row"
        ),
        assumptions=(
            "y is INT8 and scales are per token where the output is not recorded",
            "scales are per token where per channel fits, too",
            "INT4 results are packed eight in an INT32, as torch_npu returns them",
        ),
        negative=(
            row_cells("7168", "DT_BF16", "7168;1", _OUT),
            row_cells("16,512", "DT_BF16", "16,500;16", _OUT),
            row_cells("16,512", "DT_BF16", "16,512;15", _OUT),
            row_cells("16,512;500", "DT_BF16;DT_BF16", "16,512;16", _OUT),
            row_cells("16,512;4,512", "DT_BF16;DT_BF16", "16,512;16", _OUT),
            row_cells("16,508", "DT_BF16", "16,63;16", "INT32;FLOAT"),
            float_row("0,512", ""),
        ),
        examples=read_examples(__package__, "operators/dynamic_quant.csv"),
    )


def perfcollect_make_case(spec: OperatorSpec, row: Row) -> Case | Skip:
    """Find destination type, mode and form from the outputs."""
    signature = read_signature(spec, row, needs_output=False)
    if isinstance(signature, Skip):
        return signature
    words = {
        "x": ("BF16", "FLOAT16"),
        "smooth_scales": ("BF16", "FLOAT16", "FLOAT"),
        "group_index": ("INT32",),
        "y": ("INT8", "INT4", "INT32"),
    }
    refused = refuse_dtypes(spec, signature, words)
    if refused:
        return refused
    reason = input_misfit(signature)
    resolved = reason or find_destination(signature)
    if isinstance(resolved, str):
        return Skip.invalid(f"{spec.name}: {resolved}")
    params, assumptions = resolved
    return default_case(spec, row, params=params, assumptions=assumptions)


def perfcollect_estimate_cost(case: Case) -> Cost:
    """Count four operations an element and each tensor once."""
    x = case.tensors["x"]
    unrecorded = 0 if case.outputs else x.numel + 4 * x.numel // (x.shape or (1,))[-1]
    return Cost(4.0 * x.numel, bytes_moved(case) + unrecorded)


def perfcollect_make_inputs(case: Case, device: Device) -> Inputs:
    """Draw activations with outliers, positive smooth scales and cumulative group ends."""
    import torch

    from perfcollect_core import ValueMaker

    # Outliers are mixed in and ends sorted on the host, as every draw is.
    make, spec = ValueMaker(case.seed, attrs.evolve(device, torch_device="cpu")), case.tensors["x"]
    x = make.normal(spec)
    outliers = make.bernoulli(TensorSpec(spec.shape, "BOOL"), 1e-3)
    tensors = {"x": torch.where(outliers, x * 20, x)}
    if "smooth_scales" in case.tensors:
        tensors["smooth_scales"] = make.uniform(case.tensors["smooth_scales"], 0.5, 1.5)
    if "group_index" in case.tensors:
        rows = math.prod((spec.shape or ())[:-1])
        ends = make.integers(case.tensors["group_index"], 0, rows + 1).sort().values
        ends[-1] = rows
        tensors["group_index"] = ends
    return Inputs({name: tensor.to(device.torch_device) for name, tensor in tensors.items()})


def perfcollect_bind_kernel(case: Case, inputs: Inputs, device: Device) -> Kernel:
    """Bind the fused call on Ascend, its steps elsewhere."""
    if device.family == "ascend":
        return Kernel(call=_ascend_call(case, inputs))
    smooth = _row_factors(case, inputs)
    mode, dst = str(case.params["quant_mode"]), str(case.params["dst"])
    shapes = [spec.shape for spec in case.outputs]
    quantise = _asymmetric if case.params["asymmetric"] else _symmetric

    def call() -> tuple[Tensor, ...]:
        x = inputs["x"].float()
        q, *scales = quantise(x if smooth is None else x * smooth, _MODES.get(mode), _QMAX[dst])
        return (pack_int4(q) if dst == "INT4" else q, *scales)

    def outputs(found: object) -> tuple[Tensor, ...]:
        q, *scales = cast("tuple[Tensor, ...]", found)
        placed = [s.reshape(shape or s.shape) for s, shape in zip(scales, shapes[1:], strict=False)]
        return (q, *(placed or [s.squeeze(-1) for s in scales]))

    return Kernel(call=call, outputs=outputs)


def _row_factors(case: Case, inputs: Inputs) -> Tensor | None:
    """Return what multiplies x: nothing, (D), or one row of the smooth scales for each row of x."""
    import torch

    if "smooth_scales" not in case.tensors:
        return None
    smooth = inputs["smooth_scales"].float()
    if smooth.dim() == 1:
        return smooth
    ends = inputs["group_index"].to(torch.int64)
    shape = case.tensors["x"].shape or ()
    rows = torch.arange(math.prod(shape[:-1]), device=smooth.device)
    return smooth[torch.searchsorted(ends, rows, right=True)].reshape(shape)


def _symmetric(x: Tensor, dims: tuple[int, ...] | None, qmax: int) -> tuple[Tensor, ...]:
    import torch

    magnitude = x.abs()
    scale = (magnitude.max() if dims is None else magnitude.amax(dims, keepdim=True)) / qmax
    return (x / scale).round_().clamp_(-qmax - 1, qmax).to(torch.int8), scale


def _asymmetric(x: Tensor, dims: tuple[int, ...] | None, qmax: int) -> tuple[Tensor, ...]:
    import torch

    high, low = (
        (x.max(), x.min()) if dims is None else (x.amax(dims, keepdim=True), x.amin(dims, keepdim=True))
    )
    scale = (high - low) / (2 * qmax + 1)
    offset = qmax - high / scale
    return (x / scale + offset).round_().clamp_(-qmax - 1, qmax).to(torch.int8), scale, offset


def _ascend_call(case: Case, inputs: Inputs) -> Callable[[], object]:
    import torch
    import torch_npu

    name = "npu_dynamic_quant_asymmetric" if case.params["asymmetric"] else "npu_dynamic_quant"
    function = getattr(torch_npu, name)
    keywords = {slot: inputs[slot] for slot in ("smooth_scales", "group_index") if slot in case.tensors}
    keywords["dst_type"] = torch.quint4x2 if case.params["dst"] == "INT4" else torch.int8
    if case.params["quant_mode"] != "pertoken":  # older stacks have no such argument and no other mode
        keywords["quant_mode"] = case.params["quant_mode"]
    return lambda: tuple(function(inputs["x"], **keywords))


def perfcollect_reference(case: Case, inputs: Inputs) -> Reference:
    """Quantise in fp64, each group of rows with its own slice of the smooth scales."""
    import torch

    x = inputs["x"].cpu().double()
    shape, qmax = x.shape, _QMAX[str(case.params["dst"])]
    if "smooth_scales" in case.tensors:
        rows, smooth = x.reshape(-1, shape[-1]), inputs["smooth_scales"].cpu().double()
        ends = inputs["group_index"].tolist() if "group_index" in case.tensors else [len(rows)]
        starts = [0, *ends[:-1]]
        factors = smooth.reshape(-1, shape[-1])
        x = torch.cat([rows[a:b] * f for a, b, f in zip(starts, ends, factors, strict=True)]).reshape(shape)
    axes = {"pertoken": [-1], "perchannel": [-2], "pertensor": list(range(x.dim()))}[
        str(case.params["quant_mode"])
    ]
    high, low = torch.amax(x, axes, keepdim=True), torch.amin(x, axes, keepdim=True)
    if case.params["asymmetric"]:
        scale = (high - low) / (2 * qmax + 1)
        offset = qmax - high / scale
        found = [x / scale + offset, scale, offset]
    else:
        scale = torch.maximum(high, -low) / qmax
        found = [x / scale, scale]
    q = found[0].round().clamp(-qmax - 1, qmax)
    shapes = [spec.shape for spec in case.outputs[1:]] or [shape[:-1]] * 2
    scales = [s.reshape(want or s.shape) for s, want in zip(found[1:], shapes, strict=False)]
    tolerances = (_SCALES, _OFFSETS)[: len(scales)]
    if case.params["dst"] == "INT4":
        return Reference((pack_int4(q), *scales), (PACKED, *tolerances))
    return quantised_reference((q, *scales), (QUANTISED, *tolerances))
