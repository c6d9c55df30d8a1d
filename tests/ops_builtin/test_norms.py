"""RmsNorm and SoftmaxV2: slot layouts, refusals, values, references and random rows."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("torch")

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from perfcollect_core import Skip, example_row
from perfcollect_core.testing.replay import host_for, replay
from perfcollect_core.testing.stub_family import StubFamily
from perfcollect_ops_builtin.norms import rms_norm, softmax

pytestmark = pytest.mark.torch

CPU = StubFamily().device(0)

PLUGINS = {"RmsNorm": rms_norm, "SoftmaxV2": softmax}


@pytest.mark.parametrize("operator", PLUGINS)
def test_every_example_row_replays_and_agrees_with_its_reference(operator):
    for cells in host_for(operator, PLUGINS[operator]).spec().examples:
        done = replay(operator, PLUGINS[operator], cells)

        assert done.checked
        assert done.wrong is None


@pytest.mark.parametrize(
    ("shapes", "dtypes", "rstd"),
    [
        pytest.param("13,512;512", "DT_BF16;DT_BF16", "13,1", id="2-D"),
        pytest.param("13,4,128;128", "FLOAT16;FLOAT16", "13,4,1", id="3-D"),
        pytest.param("13,4,128;4,128", "FLOAT;FLOAT", "13,1,1", id="two axes"),
        pytest.param("128;128", "FLOAT;FLOAT", "1", id="1-D"),
        pytest.param("13,512;512", "DT_BF16;FLOAT", "13,1", id="FLOAT gamma"),
    ],
)
def test_rms_norm_replays_each_slot_layout(shapes, dtypes, rstd):
    x, dtype = shapes.split(";")[0], dtypes.split(";")[0]

    done = replay("RmsNorm", rms_norm, example_row(shapes, dtypes, f"{x};{rstd}", f"{dtype};FLOAT"))

    assert done.wrong is None
    assert done.outputs[0].dtype == done.inputs["x"].dtype
    assert done.case.assumptions == ("epsilon=1e-06 (not recorded, timing-neutral)",)


@pytest.mark.parametrize(
    ("cells", "reason"),
    [
        (
            example_row("136,5120;5000", "DT_BF16;DT_BF16", "136,5120;136,1", "DT_BF16;FLOAT"),
            "input 'gamma' has shape 5000, expected the trailing axes of x (136,5120)",
        ),
        (
            example_row("136,5120;5120", "FLOAT;DT_BF16", "136,5120;136,1", "FLOAT;FLOAT"),
            "input 'gamma' has dtype BF16, expected FLOAT",
        ),
        (
            example_row("136,5120;5120", "DT_BF16;DT_BF16", "136,5120;5120", "DT_BF16;FLOAT"),
            "output slot 1 has shape 5120, expected 136,1 (one rstd a normalised row)",
        ),
        (
            example_row("136,5120;", "DT_BF16;DT_UNDEFINED", "136,5120;136,1", "DT_BF16;FLOAT"),
            "input slot 'gamma' of RmsNorm is blank, expected a tensor",
        ),
        (
            example_row("136,0;0", "DT_BF16;DT_BF16", "136,0;136,1", "DT_BF16;FLOAT"),
            "input 'x' has shape (136, 0) with no element",
        ),
    ],
)
def test_rms_norm_refuses_a_contradictory_row(cells, reason):
    assert replay("RmsNorm", rms_norm, cells) == Skip.invalid(reason)


def test_rms_norm_weights_are_near_one_and_activations_standard_normal():
    done = replay("RmsNorm", rms_norm, example_row("64,5120;5120", "FLOAT;FLOAT"))

    assert done.inputs["gamma"].mean() == pytest.approx(1, abs=0.01)
    assert done.inputs["gamma"].std() == pytest.approx(0.1, abs=0.01)
    assert done.inputs["x"].std() == pytest.approx(1, abs=0.01)


def test_softmax_logits_are_spread_and_finite():
    done = replay("SoftmaxV2", softmax, example_row("4,15193", "FLOAT", "4,15193", "FLOAT"))

    assert done.inputs["x"].std() == pytest.approx(3, abs=0.1)
    assert done.inputs["x"].isfinite().all()


@pytest.mark.parametrize("operator", PLUGINS)
def test_inputs_repeat_for_one_row_and_differ_between_rows(operator):
    one, other = host_for(operator, PLUGINS[operator]).spec().examples[:2]
    first = replay(operator, PLUGINS[operator], one)
    again = replay(operator, PLUGINS[operator], one)
    different = replay(operator, PLUGINS[operator], other)

    assert torch.equal(first.inputs["x"], again.inputs["x"])
    assert not torch.equal(first.inputs["x"].flatten()[:16], different.inputs["x"].flatten()[:16])


def test_softmax_keeps_the_dtype_of_x_and_says_so_where_the_row_records_another():
    done = replay("SoftmaxV2", softmax, example_row("4,64", "DT_BF16", "4,64", "FLOAT"))

    assert done.wrong is None
    assert done.outputs[0].dtype == torch.bfloat16
    assert done.case.assumptions == (
        "dim=-1 (axes not recorded)",
        "output dtype BF16 (the kernel keeps x's; the recorded FLOAT needs a Cast)",
    )


@pytest.mark.parametrize(
    ("cells", "reason"),
    [
        (
            example_row("4,151936", "FLOAT", "4,151935", "FLOAT"),
            "output slot 0 has shape 4,151935, expected 4,151936 (as x)",
        ),
        (
            example_row("4,64", "INT32", "4,64", "INT32"),
            "input 'x' has dtype INT32, expected BF16 or FLOAT16 or FLOAT or DOUBLE",
        ),
        (
            example_row("", "FLOAT", "", "FLOAT", "ND"),
            "input slot 0 is a 0-D tensor, expected at least one axis",
        ),
    ],
)
def test_softmax_refuses_a_contradictory_row(cells, reason):
    assert replay("SoftmaxV2", softmax, cells) == Skip.invalid(reason)


def test_references_agree_with_numpy():
    normed = replay("RmsNorm", rms_norm, example_row("3,4;4", "FLOAT;FLOAT"))
    x, gamma = normed.inputs["x"].double().numpy(), normed.inputs["gamma"].double().numpy()
    probable = replay("SoftmaxV2", softmax, example_row("3,4", "FLOAT"))
    logits = probable.inputs["x"].double().numpy()

    y = host_for("RmsNorm", rms_norm).reference(normed.case, normed.inputs, CPU).outputs[0]
    p = host_for("SoftmaxV2", softmax).reference(probable.case, probable.inputs, CPU).outputs[0]

    rows = [row / np.sqrt(sum(v * v for v in row) / 4 + 1e-6) * gamma for row in x]
    assert y.numpy() == pytest.approx(np.array(rows))
    assert p.numpy() == pytest.approx(np.array([np.exp(row) / np.exp(row).sum() for row in logits]))


@settings(max_examples=25, deadline=None)
@given(
    shape=st.lists(st.integers(1, 9), min_size=1, max_size=4),
    axes=st.integers(1, 4),
    dtype=st.sampled_from(["FLOAT", "FLOAT16", "DT_BF16"]),
)
def test_rms_norm_replays_any_trailing_axes(shape, axes, dtype):
    x, gamma = ",".join(map(str, shape)), ",".join(map(str, shape[-min(axes, len(shape)) :]))

    done = replay("RmsNorm", rms_norm, example_row(f"{x};{gamma}", f"{dtype};{dtype}", x, dtype))

    assert done.wrong is None


@settings(max_examples=25, deadline=None)
@given(
    shape=st.lists(st.integers(1, 9), min_size=1, max_size=4),
    dtype=st.sampled_from(["FLOAT", "FLOAT16", "DT_BF16", "DOUBLE"]),
)
def test_softmax_replays_any_shape(shape, dtype):
    x = ",".join(map(str, shape))

    assert replay("SoftmaxV2", softmax, example_row(x, dtype, x, dtype)).wrong is None


def test_a_dtype_torch_does_not_know_is_a_skip_and_the_row_is_fine():
    row = example_row("136,512;512", "FLOAT8_E4M3FN;FLOAT8_E4M3FN", "136,512;136,1", "FLOAT8_E4M3FN;FLOAT")

    assert replay("RmsNorm", rms_norm, row) == Skip(
        "dtype not supported here: FLOAT8_E4M3FN of input 'x', expected BF16 or FLOAT16 or FLOAT"
    )
