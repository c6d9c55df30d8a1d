"""Destination type, mode and form of a DynamicQuant row, found from its outputs (parent side)."""

from __future__ import annotations

from perfcollect_core import Signature, TensorSpec
from perfcollect_core.cases import Param

from .int4_packing import PER_WORD
from .row_checks import describe

__all__ = ["find_destination", "input_misfit"]


def input_misfit(signature: Signature) -> str | None:
    """Say which input of a row does not fit the others."""
    x, smooth, index = (signature.input(slot) for slot in range(3))
    shape = x.shape or ()
    if len(shape) < 2:
        return f"input slot 0 'x' is {describe(x)}, expected two dimensions at least"
    if not smooth.is_absent and (
        len(smooth.shape or ()) not in (1, 2) or (smooth.shape or (0,))[-1] != shape[-1]
    ):
        return f"input slot 1 'smooth_scales' is {describe(smooth)}, expected {shape[-1]} (D) or E,{shape[-1]} (E,D)"
    grouped = len(smooth.shape or ()) == 2
    if grouped and index.shape != (smooth.shape or ())[:1]:
        return f"input slot 2 'group_index' is {describe(index)}, expected {(smooth.shape or (0,))[0]} (E)"
    if not grouped and not index.is_absent:
        return f"input slot 2 'group_index' is {describe(index)}, it goes with smooth_scales (E,D) only"
    return None


def find_destination(signature: Signature) -> tuple[dict[str, Param], list[str]] | str:
    """Return destination type, mode and form with what was assumed, or why the outputs fit none."""
    x, y, scale = signature.input(0), signature.output(0), signature.output(1)
    shape, notes = x.shape or (), []
    if y.is_absent:
        notes.append("y=INT8 (not recorded)")
    packed = y.dtype in ("INT4", "INT32")
    unpacked = (*(y.shape or ())[:-1], (y.shape or (0,))[-1] * (PER_WORD if y.dtype == "INT32" else 1))
    if not y.is_absent and unpacked != shape:
        return f"output slot 0 is {describe(y)} {y.dtype}, expected {describe(x)}, or D/8 packed in INT32"
    if packed and shape[-1] % PER_WORD:
        return f"input slot 0 'x' is {describe(x)}, expected D in multiples of {PER_WORD} for INT4"
    modes = _fitting_modes(shape, scale)
    if not modes:
        wanted = ",".join(map(str, shape[:-1]))
        return f"output slot 1 is {describe(scale)}, expected {wanted} per token, 1 per tensor or one per channel"
    if len(modes) > 1:
        notes.append(f"quant_mode={modes[0]} (scale fits {' and '.join(modes)})")
    if scale.is_absent:
        notes.append("quant_mode=pertoken (scale not recorded)")
    asymmetric = not signature.output(2).is_absent
    params: dict[str, Param] = {
        "dst": "INT4" if packed else "INT8",
        "quant_mode": modes[0],
        "asymmetric": asymmetric,
    }
    return params, notes


def _fitting_modes(shape: tuple[int, ...], scale: TensorSpec) -> list[str]:
    if scale.is_absent or scale.shape in (shape[:-1], (*shape[:-1], 1)):
        per_channel = scale.shape == (*shape[:-2], shape[-1])
        return ["pertoken", "perchannel"] if per_channel else ["pertoken"]
    if scale.shape == (1,):
        return ["pertensor"]
    return ["perchannel"] if scale.shape in ((*shape[:-2], shape[-1]), (*shape[:-2], 1, shape[-1])) else []
