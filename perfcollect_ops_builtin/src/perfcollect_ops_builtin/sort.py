"""Replay of Sort: values and indices along the last axis."""

from __future__ import annotations

import math
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
    declare,
    example_row,
    refuse_dtype,
    refuse_output,
)

from .distinct_floats import ORDERED, distinct_logits, may_tie
from .theory.moves import SORT_AXES, sort_rows

if TYPE_CHECKING:
    from torch import Tensor


def _check(case: Case) -> Case | Skip:
    x = case.tensors["x"]
    descending = case.params.get("descending", "false")
    if descending not in ("true", "false"):
        return Skip.invalid(f"column 'Runtime descending' is {descending!r}, expected true or false")
    if not x.shape:
        return Skip.invalid("input slot 0 is a 0-D tensor, expected at least one axis")
    assumptions = ["dim=-1 (not recorded)"]
    if "descending" not in case.params:
        assumptions.append("descending=False (not recorded; samplers sort ascending)")
    if may_tie(x):
        assumptions.append(f"ties ({x.dtype} has fewer values than the last axis has elements)")
    params = {"descending": descending == "true"}
    refused = refuse_dtype("x", x.dtype, ORDERED) or refuse_output(
        case.signature, 0, x.shape, x.dtype, "as x"
    )
    refused = refused or refuse_output(case.signature, 1, x.shape, "", "as x")
    return refused or attrs.evolve(case, params=params, assumptions=tuple(assumptions))


def _call(case: Case, inputs: Inputs, device: Device) -> Kernel:
    import torch

    x, descending = inputs["x"], bool(case.params["descending"])
    # The kernel writes INT32 indices, which torch hands on as INT64.
    return Kernel(
        call=lambda: torch.sort(x, dim=-1, descending=descending),
        outputs=lambda result: (result.values, result.indices.int()),  # type: ignore[attr-defined]  # torch's named tuple
    )


def _ordered(case: Case, inputs: Inputs) -> Reference:
    import torch

    x = inputs["x"]
    values = x.topk(x.shape[-1], dim=-1, largest=bool(case.params["descending"]), sorted=True).values

    def compare(actual: tuple[Tensor | None, ...]) -> str | None:
        got, indices = actual
        if got is None or indices is None or got.shape != x.shape or indices.shape != x.shape:
            return f"values and indices expected in the shape of x {tuple(x.shape)}"
        got = got.to(x.device)
        if not got.equal(values):
            return "output 0: the values are not in order"
        # Ties may come in any order, but every index once and each where its value is.
        order = indices.long().to(x.device)
        positions = torch.arange(x.shape[-1], device=x.device).expand(x.shape)
        if not order.sort(-1).values.equal(positions):
            return "output 1: the indices are no permutation"
        if not x.gather(-1, order).equal(got):
            return "output 1: the indices do not point at the values"
        return None

    return Reference((values, None), (), compare)


sort = declare(
    "Sort",
    summary="x sorted along the last axis, and the indices that sort it",
    torch="torch.sort",
    outputs=(Slot("values"), Slot("indices", "INT32 in kernel rows")),
    columns={"descending": "Runtime descending"},
    infer=_check,
    values={"x": lambda make, case: distinct_logits(make, case.tensors["x"])},
    call=_call,
    reference=_ordered,
    cost=lambda case: Cost(
        case.tensors["x"].numel * math.log2(max((case.tensors["x"].shape or (2,))[-1], 2)),
        2.0 * case.tensors["x"].nbytes + 4.0 * case.tensors["x"].numel,
    ),
    value_policy="logits N(0, 3) in random order, distinct along the sorted axis as far as the dtype allows",
    assumptions=("dim is -1", "ascending where 'Runtime descending' does not say true"),
    negative=(example_row("4,151936", "FLOAT", "4,151936;4,50", "FLOAT;INT32"),),
    axes=SORT_AXES,
    rows=sort_rows,
    examples="operators/sort.csv",
)
