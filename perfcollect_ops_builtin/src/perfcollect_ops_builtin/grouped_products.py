"""Grouped products on stock torch, and their reference in fp64 (worker side)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from perfcollect_core import Case, Inputs, torch_dtype

from .integer_products import int8_product
from .packed_scales import unpack_scales

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["bind_groups", "grouped_reference", "row_groups"]

Span = tuple[int, int, int]


def bind_groups(case: Case, inputs: Inputs, spans: Sequence[Span]) -> Callable[[], Tensor]:
    """Return a call that runs one product per group with rows; rows of no group stay zero."""
    import torch

    x, weight = inputs["x"], inputs["weight"]
    out_dtype = torch_dtype(str(case.params["out_dtype"]))
    out = torch.zeros((x.shape[0], int(str(case.params["n"]))), dtype=out_dtype, device=x.device)
    steps = []
    for group, start, end in spans:
        w = weight[group].t() if case.params["transpose_b"] else weight[group]
        one = _int8_group if x.dtype == torch.int8 else _float_group
        steps.append((out[start:end], one(case, inputs, w, group, slice(start, end))))

    def call() -> Tensor:
        for rows, product in steps:
            rows.copy_(product())
        return out

    return call


def _float_group(case: Case, inputs: Inputs, w: Tensor, group: int, rows: slice) -> Callable[[], Tensor]:
    """Bind one float group; an INT8 weight is dequantised in every call, as the kernel does on the fly."""
    import torch

    x = inputs["x"][rows]
    bias = inputs["bias"][group].to(x.dtype) if "bias" in case.tensors else None
    if "antiquant_scale" not in case.tensors:
        if bias is None:
            return lambda: torch.mm(x, w)
        return lambda: torch.addmm(bias, x, w)
    scale = _per_k(inputs["antiquant_scale"][group], w.shape[0])
    has_offset = "antiquant_offset" in case.tensors
    offset = _per_k(inputs["antiquant_offset"][group], w.shape[0]) if has_offset else 0

    def call() -> Tensor:
        y = torch.mm(x, ((w.to(x.dtype) + offset) * scale).to(x.dtype))
        return y if bias is None else y + bias

    return call


def _per_k(factors: Tensor, k: int) -> Tensor:
    """Repeat (G, N) factors over the K rows of their groups; (N) factors broadcast by themselves."""
    return factors if factors.dim() == 1 else factors.repeat_interleave(k // factors.shape[0], dim=0)


def _int8_group(case: Case, inputs: Inputs, w: Tensor, group: int, rows: slice) -> Callable[[], Tensor]:
    import torch

    product = int8_product(inputs["x"][rows], w)
    out_dtype = torch_dtype(str(case.params["out_dtype"]))
    bias = inputs["bias"][group] if "bias" in case.tensors else None
    integer_bias = bias is not None and bias.dtype == torch.int32
    scale = unpack_scales(inputs["scale"][group]) if "scale" in case.tensors else None
    token = inputs["per_token_scale"].flatten()[rows, None] if "per_token_scale" in case.tensors else None

    def call() -> Tensor:
        accumulator = product() + bias if integer_bias else product()
        if scale is None:
            return accumulator
        y = accumulator.float() * scale
        y = y if token is None else y * token
        y = y if bias is None or integer_bias else y + bias.float()
        return y.round().clamp(-128, 127) if out_dtype == torch.int8 else y

    return call


def row_groups(group_list: Tensor, list_type: int, rows: int) -> Tensor:
    """Return the group of each of *rows* rows, -1 for rows of none, straight from a group list of any type."""
    import torch

    values = group_list.cpu()
    groups = torch.arange(values.shape[0])
    if list_type == 2:
        groups, counts = values[:, 0], values[:, 1]
    else:
        counts = torch.diff(values, prepend=values.new_zeros(1)) if list_type == 0 else values
    owners = torch.repeat_interleave(groups, counts)
    return torch.nn.functional.pad(owners, (0, rows - owners.numel()), value=-1)


def grouped_reference(case: Case, inputs: Inputs) -> Tensor:
    """Compute y in fp64: exact for int8, every factor applied before the one rounding."""
    import torch

    x = inputs["x"].cpu().double()
    owners = row_groups(inputs["group_list"], int(str(case.params["group_list_type"])), x.shape[0])
    y = torch.zeros((x.shape[0], int(str(case.params["n"]))), dtype=torch.float64)
    for group in owners.unique().tolist():
        if group < 0:
            continue
        rows = (owners == group).nonzero().flatten()
        w = inputs["weight"][group].cpu().double()
        if case.params["transpose_b"]:
            w = w.t()
        if "antiquant_scale" in case.tensors:
            w = _dequantised(case, inputs, w, group)
        part = torch.einsum("mk,kn->mn", x[rows], w)
        y[rows] = _finished(case, inputs, part, group, rows)
    return y.round().clamp(-128, 127) if case.params["out_dtype"] == "INT8" else y


def _dequantised(case: Case, inputs: Inputs, w: Tensor, group: int) -> Tensor:

    scale = inputs["antiquant_scale"][group].cpu().double()
    blocks = w.reshape(scale.shape[0] if scale.dim() == 2 else 1, -1, w.shape[1])
    if "antiquant_offset" in case.tensors:
        blocks = blocks + inputs["antiquant_offset"][group].cpu().double().reshape(-1, 1, w.shape[1])
    return (blocks * scale.reshape(-1, 1, w.shape[1])).reshape(w.shape)


def _finished(case: Case, inputs: Inputs, part: Tensor, group: int, rows: Tensor) -> Tensor:
    import torch

    bias = inputs["bias"][group].cpu().double() if "bias" in case.tensors else None
    integer_bias = bias is not None and inputs["bias"].dtype == torch.int32
    if bias is not None and integer_bias:
        part = part + bias
    if "scale" in case.tensors:
        part = part * unpack_scales(inputs["scale"][group].cpu()).double()
    if "per_token_scale" in case.tensors:
        part = part * inputs["per_token_scale"].cpu().double().flatten()[rows, None]
    return part + bias if bias is not None and not integer_bias else part
