"""Replay of TensorMove: a device copy of one tensor."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perfcollect_core import (
    Case,
    Cost,
    Device,
    Inputs,
    Kernel,
    Skip,
    Tolerance,
    declare,
    example_row,
    refuse_output,
)

from .theory.rows_of_tokens import MOVE_AXES, move_rows

if TYPE_CHECKING:
    from torch import Tensor

_MEMCPY_BYTES = 400_000


def _check(case: Case) -> Case | Skip:
    x = case.tensors["x"]
    return refuse_output(case.signature, 0, x.shape or (), x.dtype, "as x") or case


def _unavailable(case: Case, family: str) -> Skip | None:
    size = case.tensors["x"].nbytes
    if family != "ascend" or size > _MEMCPY_BYTES:
        return None
    return Skip(
        f"input 'x' has {size} bytes: up to {_MEMCPY_BYTES} an asynchronous memcpy takes the place of the "
        "TensorMove kernel on Ascend, so there is no kernel to measure"
    )


def _call(case: Case, inputs: Inputs, device: Device) -> Kernel:
    import torch

    source = inputs["x"]
    destination = torch.zeros_like(source)
    return Kernel(call=lambda: destination.copy_(source))


def _moved(case: Case, inputs: Inputs) -> tuple[Tensor]:
    import torch

    return (torch.cat([inputs["x"].flatten()]).reshape(inputs["x"].shape),)


tensor_move = declare(
    "TensorMove",
    summary="y = x, a copy on the device",
    torch="torch.Tensor.copy_",
    aliases=("TensorMoveAiCore",),
    infer=_check,
    unavailable=_unavailable,
    call=_call,
    reference=_moved,
    tolerances=(Tolerance(0, 0),),
    cost=lambda case: Cost(0.0, 2.0 * case.tensors["x"].nbytes),
    value_policy="x by dtype: floats N(0, 1), int8 full range, other integers 0..7, never constant",
    assumptions=("the destination is contiguous like x (it is not recorded)",),
    negative=(example_row("4112,5120", "DT_BF16", "4112,5121", "DT_BF16"),),
    axes=MOVE_AXES,
    rows=move_rows,
    examples="operators/tensor_move.csv",
)
