"""Replay of element-wise and activation kernels."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perfcollect_core import Case, Inputs, declare, flops_per_output

if TYPE_CHECKING:
    from torch import Tensor


def _sum(case: Case, inputs: Inputs) -> tuple[Tensor]:
    return (inputs["x"].double() + inputs["y"].double(),)


add = declare(
    "Add", torch="torch.add", inputs=(2,), scalar_second=True, cost=flops_per_output(1), reference=_sum
)
