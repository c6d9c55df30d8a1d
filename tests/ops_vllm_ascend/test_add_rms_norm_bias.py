"""AddRmsNormBias: conformance, slot layouts, refusals, values and random rows."""

from __future__ import annotations

import sys
from types import ModuleType

import numpy as np
import pytest

pytest.importorskip("torch")

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from perfcollect_core import Device, Skip, example_row
from perfcollect_core.checking import difference
from perfcollect_core.testing.conformance import OperatorConformance
from perfcollect_core.testing.replay import host_for, make_row, replay
from perfcollect_core.testing.stub_family import StubFamily
from perfcollect_ops_vllm_ascend.add_rms_norm_bias import add_rms_norm_bias

pytestmark = pytest.mark.torch

CPU = StubFamily().device(0)


class TestAddRmsNormBias(OperatorConformance):
    operator = "AddRmsNormBias"


def run(*cells):
    return replay("AddRmsNormBias", add_rms_norm_bias, example_row(*cells))


@pytest.mark.parametrize(
    ("shapes", "dtypes", "formats", "beta"),
    [
        pytest.param("16,64;16,64;64", "DT_BF16;DT_BF16;DT_BF16", "ND;ND;ND", False, id="slot 3 trimmed"),
        pytest.param(
            "16,64;16,64;64;",
            "DT_BF16;DT_BF16;DT_BF16;DT_UNDEFINED",
            "ND;ND;ND;NULL",
            False,
            id="slot 3 undefined",
        ),
        pytest.param("16,64;16,64;64;64", "DT_BF16;DT_BF16;DT_BF16;DT_BF16", "ND;ND;ND;ND", True, id="beta"),
        pytest.param("4,8,64;4,8,64;64;64", "FLOAT;FLOAT;FLOAT;FLOAT", "ND;ND;ND;ND", True, id="3-D"),
        pytest.param("64;64;64", "FLOAT16;FLOAT16;FLOAT16", "ND;ND;ND", False, id="1-D"),
    ],
)
def test_each_slot_layout_replays(shapes, dtypes, formats, beta):
    done = run(shapes, dtypes, "", "", formats)

    assert done.wrong is None
    assert ("beta" in done.inputs.tensors) is beta
    assert done.case.assumptions == ("epsilon=1e-06 (not recorded, timing-neutral)",)


def test_a_beta_shape_without_dtype_is_absent_in_the_case_and_in_the_key():
    shaped = example_row(
        "16,64;16,64;64;64",
        "DT_BF16;DT_BF16;DT_BF16;DT_UNDEFINED",
        "16,64;16,1;16,64",
        "DT_BF16;FLOAT;DT_BF16",
    )
    blank = {**shaped, "Input Shapes": "16,64;16,64;64;"}
    host = host_for("AddRmsNormBias", add_rms_norm_bias)
    spec = host.spec()

    case = host.make_case(spec, make_row("AddRmsNormBias", shaped))

    assert list(case.tensors) == ["x1", "x2", "gamma"]
    assert case.assumptions[1] == "beta=absent (slot 3 has no dtype)"
    assert host.canonical_key(spec, make_row("AddRmsNormBias", shaped)) == host.canonical_key(
        spec, make_row("AddRmsNormBias", blank)
    )


@pytest.mark.parametrize(
    ("cells", "reason"),
    [
        (
            ("16,64;8,64;64;", "DT_BF16;DT_BF16;DT_BF16;DT_UNDEFINED"),
            "input 'x2' has shape 8,64, expected 16,64",
        ),
        (
            ("16,64;16,64;32", "DT_BF16;DT_BF16;DT_BF16"),
            "input 'gamma' has shape 32, expected the trailing axes of x1 (16,64)",
        ),
        (
            ("16,64;16,64;64;32", "DT_BF16;DT_BF16;DT_BF16;DT_BF16"),
            "input 'beta' has shape 32, expected 64",
        ),
        (
            ("16,64;16,64;64", "DT_BF16;DT_BF16;FLOAT"),
            "input 'gamma' has dtype FLOAT, expected BF16",
        ),
        (
            ("16,64;16,64;64", "DT_BF16;DT_BF16;DT_BF16", "16,64;16,1;16,32", "DT_BF16;FLOAT;DT_BF16"),
            "output slot 2 has shape 16,32, expected 16,64 (x, as x1)",
        ),
    ],
)
def test_a_contradictory_row_is_refused(cells, reason):
    assert run(*cells) == Skip.invalid(reason)


def test_weights_are_near_one_and_biases_small():
    done = run("8,4096;8,4096;4096;4096", "FLOAT;FLOAT;FLOAT;FLOAT")

    assert done.inputs["gamma"].mean() == pytest.approx(1, abs=0.02)
    assert done.inputs["beta"].std() == pytest.approx(0.1, abs=0.02)
    assert done.inputs["x1"].std() == pytest.approx(1, abs=0.05)


def test_the_machine_needs_vllm_ascend_only_on_ascend():
    needs = host_for("AddRmsNormBias", add_rms_norm_bias).spec().needs

    assert [(need.kind, need.name) for need in needs] == [
        ("module", "vllm_ascend"),
        ("env", "ASCEND_CUSTOM_OPP_PATH"),
        ("schema", "_C_ascend::npu_add_rms_norm_bias"),
    ]
    assert {need.families for need in needs} == {("ascend",)}


def test_reference_agrees_with_numpy():
    done = run("3,4;3,4;4;4", "FLOAT;FLOAT;FLOAT;FLOAT")
    x1, x2, gamma, beta = (done.inputs[n].double().numpy() for n in ("x1", "x2", "gamma", "beta"))
    x = x1 + x2

    reference = host_for("AddRmsNormBias", add_rms_norm_bias).reference(done.case, done.inputs, CPU)

    rows = [row / np.sqrt(np.mean(row * row) + 1e-6) * gamma + beta for row in x]
    assert reference.outputs[0].numpy() == pytest.approx(np.array(rows))
    assert reference.outputs[1] is None
    assert reference.outputs[2].numpy() == pytest.approx(x)


@settings(max_examples=25, deadline=None)
@given(
    shape=st.lists(st.integers(1, 9), min_size=1, max_size=4),
    axes=st.integers(1, 4),
    beta=st.booleans(),
    dtype=st.sampled_from(["FLOAT", "FLOAT16", "DT_BF16"]),
)
def test_any_valid_row_replays(shape, axes, beta, dtype):
    x, gamma = ",".join(map(str, shape)), ",".join(map(str, shape[-min(axes, len(shape)) :]))
    slots = [x, x, gamma, gamma] if beta else [x, x, gamma]

    done = run(";".join(slots), ";".join([dtype] * len(slots)))

    assert done.wrong is None


@pytest.mark.parametrize("beta", [True, False])
def test_the_ascend_binding_calls_the_custom_operator_by_its_schema(beta, monkeypatch):
    """A stand-in with vllm-ascend's schema: proves names, order and outputs, not the kernel."""
    enabled = []
    utils = ModuleType("vllm_ascend.utils")
    utils.enable_custom_op = lambda: enabled.append(True)
    monkeypatch.setitem(sys.modules, "vllm_ascend", ModuleType("vllm_ascend"))
    monkeypatch.setitem(sys.modules, "vllm_ascend.utils", utils)
    library = torch.library.Library("_C_ascend", "FRAGMENT")
    library.define(
        "npu_add_rms_norm_bias(Tensor x1, Tensor x2, Tensor gamma, Tensor? beta=None, float epsilon=1e-6)"
        " -> (Tensor y, Tensor rstd, Tensor x)"
    )

    def kernel(x1, x2, gamma, beta=None, epsilon=1e-6):
        x = x1 + x2
        rstd = torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + epsilon)
        y = x * rstd * gamma
        return y if beta is None else y + beta, rstd, x

    library.impl("npu_add_rms_norm_bias", kernel, "CPU")
    slots = 4 if beta else 3
    cells = example_row(
        ";".join(["16,64", "16,64", "64", "64"][:slots]),
        ";".join(["FLOAT"] * slots),
        "16,64;16,1;16,64",
        "FLOAT;FLOAT;FLOAT",
    )
    ascend = Device("ascend", 0, "cpu")
    host = host_for("AddRmsNormBias", add_rms_norm_bias)
    case = host.make_case(host.spec(), make_row("AddRmsNormBias", cells))
    inputs = host.make_inputs(case, ascend)
    reference = host.reference(case, inputs, ascend)

    bound = host.bind_kernel(case, inputs, ascend)
    outputs = bound.outputs(bound.call())

    assert enabled == [True]
    assert difference(outputs, reference) is None
    assert outputs[1].shape == (16, 1)
    library._destroy()
