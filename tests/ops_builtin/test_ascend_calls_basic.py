"""The Ascend bindings of the basic operators, against stand-ins with torch_npu's signatures.

They prove argument names, order and outputs, not the kernels: those run on hardware or under the emulator.
"""

from __future__ import annotations

import sys
from types import ModuleType

import pytest

pytest.importorskip("torch")

import torch
from torch.nn import functional

from perfcollect_core import Device, example_row
from perfcollect_core.checking import difference
from perfcollect_core.loading import load_operator
from perfcollect_core.testing.replay import host_for, make_row

pytestmark = pytest.mark.torch

ASCEND = Device("ascend", 0, "cpu")
CALLED = []


def npu_rms_norm(self, gamma, epsilon=1e-06):
    CALLED.append("npu_rms_norm")
    axes = tuple(range(-gamma.dim(), 0))
    rstd = torch.rsqrt(self.float().pow(2).mean(axes, keepdim=True) + epsilon)
    return (self.float() * rstd).to(self.dtype) * gamma.to(self.dtype), rstd


def npu_swiglu(self, dim=-1):
    CALLED.append("npu_swiglu")
    gate, up = self.chunk(2, dim)
    return functional.silu(gate) * up


def npu_scatter_nd_update_(self, indices, updates):
    CALLED.append("npu_scatter_nd_update_")
    self[tuple(indices.long().unbind(-1))] = updates
    return self


def npu_moe_token_permute(tokens, indices, num_out_tokens=None, padded_mode=False):
    CALLED.append("npu_moe_token_permute")
    assert padded_mode is False
    top_k = indices.shape[1] if indices.dim() == 2 else 1
    order = indices.flatten().argsort(stable=True)
    return tokens[order[:num_out_tokens] // top_k], order.argsort().int()


def npu_moe_token_unpermute(
    permuted_tokens, sorted_indices, probs=None, padded_mode=False, restore_shape=None
):
    CALLED.append("npu_moe_token_unpermute")
    rows = permuted_tokens[sorted_indices.long()]
    if probs is None:
        return rows
    return torch.einsum("tkh,tk->th", rows.unflatten(0, probs.shape).float(), probs.float()).to(rows.dtype)


def npu_interleave_rope(x, cos, sin):
    CALLED.append("npu_interleave_rope")
    q = torch.cat((x[..., 0::2], x[..., 1::2]), -1)
    return q * cos + torch.cat((-q[..., 32:], q[..., :32]), -1) * sin


def npu_slice(self, offsets, size):
    CALLED.append("npu_slice")
    for axis, (start, length) in enumerate(zip(offsets, size, strict=True)):
        self = self.narrow(axis, start, length)
    return self.clone()


@pytest.fixture(autouse=True)
def torch_npu(monkeypatch):
    module = ModuleType("torch_npu")
    for call in (
        npu_rms_norm,
        npu_swiglu,
        npu_scatter_nd_update_,
        npu_moe_token_permute,
        npu_moe_token_unpermute,
        npu_interleave_rope,
        npu_slice,
    ):
        setattr(module, call.__name__, call)
    monkeypatch.setitem(sys.modules, "torch_npu", module)
    CALLED.clear()


ROWS = [
    ("Add", ("16;", "INT32;INT32", "16", "INT32", "ND;ND"), []),
    ("ArgMaxV2", ("4,512;", "FLOAT;INT64", "4", "INT32", "ND;ND"), []),
    ("GatherV2", ("96,64;13;1", "DT_BF16;INT64;INT64", "13,64", "DT_BF16"), []),
    ("Index", ("64,32;1;2;16", "DT_BF16;INT64;INT64;INT64", "16,32", "DT_BF16"), []),
    ("InterleaveRope", ("4,16,1,64;4,1,1,64;4,1,1,64", "DT_BF16;DT_BF16;DT_BF16"), ["npu_interleave_rope"]),
    ("MaskedFill", ("16,64;16,1;", "DT_BF16;BOOL;DT_BF16", "16,64", "DT_BF16", "ND;ND;ND"), []),
    (
        "MoeTokenPermute",
        ("64,16;64,8", "DT_BF16;INT32", "400,16;512", "DT_BF16;INT32"),
        ["npu_moe_token_permute"],
    ),
    ("MoeTokenPermute", ("19,1;19", "FLOAT;INT32", "19,1;19", "FLOAT;INT32"), ["npu_moe_token_permute"]),
    ("MoeTokenUnpermute", ("32,64;32;4,8", "DT_BF16;INT32;DT_BF16"), ["npu_moe_token_unpermute"]),
    ("MoeTokenUnpermute", ("128,64;128", "DT_BF16;INT32"), ["npu_moe_token_unpermute"]),
    ("PadV3", ("25,64;4", "DT_BF16;INT64", "32,64", "DT_BF16"), []),
    ("RmsNorm", ("136,512;512", "DT_BF16;DT_BF16", "136,512;136,1", "DT_BF16;FLOAT"), ["npu_rms_norm"]),
    ("ScatterNdUpdate", ("64,32,16;100,2;100,16", "DT_BF16;INT32;DT_BF16"), ["npu_scatter_nd_update_"]),
    ("Slice", ("16,64;2;2", "DT_BF16;INT64;INT64", "16,32", "DT_BF16"), []),
    ("Slice", ("16,64;2;2", "DT_BF16;INT64;INT64", "8,64", "DT_BF16"), ["npu_slice"]),
    ("SoftmaxV2", ("4,512", "FLOAT"), []),
    ("Sort", ("4,512", "FLOAT", "4,512;4,512", "FLOAT;INT32"), []),
    ("SwiGlu", ("8,32,64", "DT_BF16", "8,16,64", "DT_BF16"), ["npu_swiglu"]),
    ("TensorMove", ("411,5120", "DT_BF16"), []),
    ("Transpose", ("2,3,4;3", "FLOAT;INT64", "4,2,3", "FLOAT"), []),
]


@pytest.mark.parametrize(("operator", "cells", "called"), ROWS)
def test_the_ascend_binding_calls_torch_npu_and_gives_every_recorded_output(operator, cells, called):
    host = host_for(operator, load_operator(operator).plugin)
    case = host.make_case(host.spec(), make_row(operator, example_row(*cells)))
    inputs = host.make_inputs(case, ASCEND)
    reference = host.reference(case, inputs, ASCEND)

    kernel = host.bind_kernel(case, inputs, ASCEND)
    outputs = kernel.outputs(kernel.call())

    assert called == CALLED
    assert None not in outputs
    assert len(outputs) == len(host.spec().outputs)
    assert difference(outputs, reference) is None


def test_every_operator_with_a_call_of_torch_npu_names_it_in_its_spec():
    for operator, _, called in ROWS:
        api = host_for(operator, load_operator(operator).plugin).spec().api["ascend"]
        if called and operator != "Slice":
            assert api == f"torch_npu.{called[0]}"
