"""The Ascend bindings of matrix and quantisation operators, against stand-ins with torch_npu's signatures.

They prove argument names, order, formats and outputs, not the kernels: those run on hardware or under the emulator.
"""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace

import pytest

pytest.importorskip("torch")

import torch
from torch.nn import functional

from perfcollect_core import Device
from perfcollect_core.checking import difference
from perfcollect_core.loading import load_operator
from perfcollect_core.testing.replay import host_for, make_row
from perfcollect_ops_builtin.int4_packing import pack_int4

pytestmark = pytest.mark.torch

ASCEND = Device("ascend", 0, "cpu")
CALLED: list[str] = []
#: What only CANN's own conversion sets in a packed scale.
ENCODED = 1 << 46


def npu_format_cast(self, acl_format):
    CALLED.append("npu_format_cast")
    assert acl_format == 29
    assert torch.npu.config.allow_internal_format is True
    assert self.is_contiguous()
    return self.clone()


def npu_trans_quant_param(scale, offset=None, round_mode=0):
    CALLED.append("npu_trans_quant_param")
    assert scale.dtype == torch.float32
    assert scale.dim() == 1
    return scale.view(torch.int32).long() | ENCODED


def decoded(scale):
    if scale.is_floating_point():
        return scale.float()
    assert bool((scale & ENCODED).all()), "a packed scale that CANN did not encode"
    return (scale & 0xFFFFFFFF).int().view(torch.float32)


def npu_transpose_batchmatmul(
    x1, weight, *, bias=None, scale=None, perm_x1=None, perm_x2=None, perm_y=None, batch_split_factor=1
):
    CALLED.append("npu_transpose_batchmatmul")
    assert perm_y == [1, 0, 2]
    y = torch.bmm(x1.float().permute(perm_x1), weight.float().permute(perm_x2)).permute(perm_y)
    if scale is not None:
        return (y.flatten(1) * decoded(scale)).round().clamp(-128, 127).to(torch.int8).unsqueeze(1)
    if batch_split_factor > 1:
        y = y.flatten(1).unflatten(1, (batch_split_factor, -1)).transpose(0, 1)
    return y.to(x1.dtype)


def npu_quant_matmul(
    x1, x2, scale, *, offset=None, pertoken_scale=None, bias=None, output_dtype=torch.int8, group_sizes=None
):
    CALLED.append("npu_quant_matmul")
    y = x1.double() @ x2.double()
    if bias is not None and bias.dtype == torch.int32:
        y, bias = y + bias, None
    if output_dtype != torch.int32:
        y = y * decoded(scale)
    if pertoken_scale is not None:
        y = (y.flatten(0, -2) * pertoken_scale[:, None]).reshape(y.shape)
    for addend in (bias, offset):
        y = y if addend is None else y + addend
    return (y.round().clamp(-128, 127) if output_dtype == torch.int8 else y).to(output_dtype)


def starts_of(group_list, list_type):
    if list_type == 2:
        return [(int(g), int(n)) for g, n in group_list]
    counts = (
        group_list if list_type == 1 else torch.diff(group_list, prepend=torch.zeros(1, dtype=torch.int64))
    )
    return [(g, int(n)) for g, n in enumerate(counts)]


def npu_grouped_matmul(
    x, weight, *, bias=None, scale=None, offset=None, antiquant_scale=None, antiquant_offset=None,
    per_token_scale=None, group_list=None, activation_input=None, split_item=0, group_type=None, group_list_type=0,
    act_type=0, output_dtype=None,
):  # fmt: skip
    CALLED.append("npu_grouped_matmul")
    assert (split_item, group_type) == (3, 0)
    (rows,), (w,) = x, weight
    # Rows of no group hold whatever was there before.
    y, row = torch.full((rows.shape[0], w.shape[2]), 77.0, dtype=torch.float64), 0
    for group, count in starts_of(group_list, group_list_type):
        span, matrix = slice(row, row + count), w[group].double()
        if antiquant_scale:
            factors = antiquant_scale[0][group].double().reshape(-1, 1, w.shape[2])
            shifts = antiquant_offset[0][group].double().reshape(-1, 1, w.shape[2])
            matrix = ((matrix.unflatten(0, (len(factors), -1)) + shifts) * factors).flatten(0, 1)
        part = rows[span].double() @ matrix
        if bias:
            part = part + bias[0][group].double()
        if scale:
            part = part * decoded(scale[0][group])
        if per_token_scale:
            part = part * per_token_scale[0][span, None]
        y[span], row = part, row + count
    return [(y.round().clamp(-128, 127) if output_dtype == torch.int8 else y).to(output_dtype)]


def npu_grouped_matmul_swiglu_quant(x, weight, group_list, weight_scale, x_scale, *, bias=None, offset=None):
    CALLED.append("npu_grouped_matmul_swiglu_quant")
    q = torch.full((x.shape[0], weight_scale.shape[1] // 2), 77, dtype=torch.int8)
    s, row = torch.full((x.shape[0],), 77.0), 0
    for group, count in starts_of(group_list, 0):
        span = slice(row, row + count)
        c = (x[span].double() @ weight[group].double()) * weight_scale[group] * x_scale[span, None]
        gate, up = c.chunk(2, dim=1)
        activated = functional.silu(gate) * up
        s[span] = (activated.abs().amax(1) / 127).float()
        q[span] = (activated / s[span, None]).round().to(torch.int8)
        row += count
    return q, s, torch.empty(0)


def npu_dynamic_quant(
    x, *, smooth_scales=None, group_index=None, dst_type=None, quant_mode="pertoken", dst_type_max=0.0
):
    CALLED.append("npu_dynamic_quant")
    x = smoothed(x, smooth_scales, group_index)
    top = 7 if dst_type == torch.quint4x2 else 127
    axes = {"pertoken": (-1,), "perchannel": (-2,), "pertensor": None}[quant_mode]
    s = (x.abs().amax(axes, keepdim=True) if axes else x.abs().max().reshape(1)) / top
    q = (x / s).round().to(torch.int8)
    return (pack_int4(q) if top == 7 else q), (s.squeeze(axes[0]) if axes else s).float()


def npu_dynamic_quant_asymmetric(x, *, smooth_scales=None, group_index=None, dst_type=None):
    CALLED.append("npu_dynamic_quant_asymmetric")
    x = smoothed(x, smooth_scales, group_index)
    s = (x.amax(-1) - x.amin(-1)) / 255
    offset = 127 - x.amax(-1) / s
    return (x / s[..., None] + offset[..., None]).round().to(torch.int8), s.float(), offset.float()


def smoothed(x, smooth_scales, group_index):
    if smooth_scales is None:
        return x.double()
    if group_index is not None:
        counts = torch.diff(group_index.long(), prepend=torch.zeros(1, dtype=torch.int64))
        smooth_scales = torch.repeat_interleave(smooth_scales, counts, dim=0)
    return x.double() * smooth_scales.double()


def npu_quantize(self, scales, zero_points, dtype, axis=1, div_mode=True):
    CALLED.append("npu_quantize")
    assert div_mode is False
    low, high = (-8, 7) if dtype == torch.quint4x2 else (-128, 127)

    def along(factors):
        return factors[:, None] if axis == -2 and factors.dim() == 1 else factors

    y = self.double() * along(scales).double()
    y = y if zero_points is None else y + along(zero_points).double()
    q = y.round().clamp(low, high).to(torch.int8)
    return pack_int4(q) if dtype == torch.quint4x2 else q


@pytest.fixture(autouse=True)
def torch_npu(monkeypatch):
    module = ModuleType("torch_npu")
    for call in (
        npu_format_cast,
        npu_trans_quant_param,
        npu_transpose_batchmatmul,
        npu_quant_matmul,
        npu_grouped_matmul,
        npu_grouped_matmul_swiglu_quant,
        npu_dynamic_quant,
        npu_dynamic_quant_asymmetric,
        npu_quantize,
    ):
        setattr(module, call.__name__, call)
    settings = SimpleNamespace(
        config=SimpleNamespace(allow_internal_format=False), matmul=SimpleNamespace(allow_hf32=True)
    )
    monkeypatch.setitem(sys.modules, "torch_npu", module)
    monkeypatch.setattr(torch, "npu", settings, raising=False)
    CALLED.clear()


OPERATORS = (
    "MatMulV2",
    "MatMulV3",
    "MatMulCommon",
    "BatchMatMulV2",
    "TransposeBatchMatMul",
    "QuantBatchMatmulV3",
    "GroupedMatmul",
    "GroupedMatmulSwigluQuant",
    "DynamicQuant",
    "AscendQuantV2",
)


#: Calls that torch_npu makes and stock torch on the CPU does not: a wider output, a bias of another dtype, a
#: weight whose batch CANN broadcasts.
BEYOND_THE_CPU = ("512,448;32,448", "256,512;384,512;384", "8,16,64;1,64,96")


def example_rows():
    for operator in OPERATORS:
        for index, cells in enumerate(
            load_operator(operator).plugin.perfcollect_operator_spec(operator).examples
        ):
            if cells["Input Shapes"].strip('"') not in BEYOND_THE_CPU:
                yield pytest.param(operator, cells, id=f"{operator}-{index}")


@pytest.mark.parametrize(("operator", "cells"), list(example_rows()))
def test_the_ascend_binding_of_every_example_gives_what_the_reference_says(operator, cells):
    host = host_for(operator, load_operator(operator).plugin)
    case = host.make_case(host.spec(), make_row(operator, cells))
    inputs = host.make_inputs(case, ASCEND)
    reference = host.reference(case, inputs, ASCEND)

    kernel = host.bind_kernel(case, inputs, ASCEND)
    before = list(CALLED)
    outputs = kernel.outputs(kernel.call())
    during = CALLED[len(before) :]

    api = host.spec().api["ascend"]
    assert during == [] if api.startswith("torch.") else len(during) == 1
    assert all(name in api for name in during)
    assert ("npu_format_cast" in before) == any(t.format == "FRACTAL_NZ" for t in case.tensors.values())
    assert difference(outputs, reference) is None


def test_fp32_products_switch_hf32_off():
    host = host_for("MatMulV2", load_operator("MatMulV2").plugin)
    cells = next(row for row in host.spec().examples if "FLOAT;FLOAT" in row["Input Data Types"])
    case = host.make_case(host.spec(), make_row("MatMulV2", cells))

    host.bind_kernel(case, host.make_inputs(case, ASCEND), ASCEND)

    assert torch.npu.matmul.allow_hf32 is False
