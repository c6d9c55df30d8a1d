"""Replay of ArgMaxV2: the index of the maximum along one axis."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from perfcollect_core import (
    Case,
    Cost,
    Device,
    Inputs,
    Kernel,
    Reference,
    Skip,
    Slot,
    ValueMaker,
    declare,
    example_row,
    refuse_dtype,
)
from perfcollect_core.tensors import format_shape

from .distinct_floats import ORDERED, distinct_logits, may_tie
from .theory.moves import ARGMAX_AXES, argmax_rows

if TYPE_CHECKING:
    from torch import Tensor


def _check(case: Case) -> Case | Skip:
    x, out = case.tensors["x"], case.signature.output()
    shape = x.shape or ()
    if not shape:
        return Skip.invalid("input slot 0 is a 0-D tensor, expected at least one axis")
    keepdim = out.shape is not None and len(out.shape) == len(shape)
    kept = (1,) if keepdim else ()
    recorded = out.shape if out.shape is not None or len(shape) > 1 else ()
    fitting = [
        axis - len(shape)
        for axis in range(len(shape))
        if recorded in (None, (*shape[:axis], *kept, *shape[axis + 1 :]))
    ]
    if not fitting:
        return Skip.invalid(
            f"output slot 0 has shape {format_shape(out.shape)}, expected x ({format_shape(shape)}) without one axis"
        )
    dim = fitting[-1]
    why = "output not recorded" if out.shape is None else f"axes {', '.join(map(str, fitting))} fit"
    assumptions = [f"dim={dim} ({why})"] if len(fitting) > 1 else []
    if may_tie(x):
        assumptions.append(f"ties ({x.dtype} has fewer values than the axis has elements)")
    refused = refuse_dtype("x", x.dtype, ORDERED)
    if out.dtype not in ("", "INT32", "INT64"):
        refused = Skip.invalid(f"output slot 0 has dtype {out.dtype}, expected INT32 or INT64")
    return refused or attrs.evolve(
        case, params={"dim": dim, "keepdim": keepdim}, assumptions=tuple(assumptions)
    )


def _draw(make: ValueMaker, case: Case) -> Tensor:
    spec, dim = case.tensors["x"], case.integer("dim")
    shape = list(spec.shape or ())
    shape.append(shape.pop(dim))
    values = distinct_logits(make.on_host(), attrs.evolve(spec, shape=tuple(shape)))
    return make.tensor(values.movedim(-1, dim).contiguous(), spec.dtype)


def _call(case: Case, inputs: Inputs, device: Device) -> Kernel:
    import torch

    x, dim, keepdim = inputs["x"], case.integer("dim"), bool(case.params["keepdim"])
    # The kernel writes INT32, which torch hands on as INT64.
    return Kernel(
        call=lambda: torch.argmax(x, dim=dim, keepdim=keepdim),
        outputs=lambda result: (result.int(),),  # type: ignore[attr-defined]  # a tensor
    )


def _maxima(case: Case, inputs: Inputs) -> Reference:
    x, dim, keepdim = inputs["x"], case.integer("dim"), bool(case.params["keepdim"])
    top = x.amax(dim, keepdim=True)

    def compare(actual: tuple[Tensor | None, ...]) -> str | None:
        (got,) = actual
        expected = top.shape if keepdim else top.squeeze(dim).shape
        if got is None or got.shape != expected:
            return f"output 0: expected indices of shape {tuple(expected)}"
        index = (got if keepdim else got.unsqueeze(dim)).long().to(x.device)
        if index.amin() < 0 or index.amax() >= x.shape[dim]:
            return f"output 0: an index is not in 0..{x.shape[dim] - 1}"
        # Of equal maxima any index is right.
        wrong = int((x.gather(dim, index) != top).sum())
        return f"output 0: {wrong} of {got.numel()} indices do not point at a maximum" if wrong else None

    return Reference((None,), (), compare)


argmax = declare(
    "ArgMaxV2",
    summary="index of the maximum along one axis",
    torch="torch.argmax",
    inputs=(Slot("x"), Slot("dimension", "0-D or 1, not built", metadata=True)),
    infer=_check,
    values={"x": _draw},
    call=_call,
    reference=_maxima,
    cost=lambda case: Cost(
        case.tensors["x"].numel,
        case.tensors["x"].nbytes
        + 4.0 * case.tensors["x"].numel / (case.tensors["x"].shape or (1,))[case.integer("dim")],
    ),
    value_policy="logits N(0, 3) in random order, distinct along the axis as far as the dtype allows",
    assumptions=("dim is the last axis whose removal gives the output",),
    negative=(example_row("4,151936;", "FLOAT;INT64", "5", "INT32", "ND;ND"),),
    axes=ARGMAX_AXES,
    rows=argmax_rows,
    examples="operators/arg_max_v2.csv",
)
