"""Add and SwiGlu: slot layouts, refusals, values, references and random rows."""

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
from perfcollect_ops_builtin.elementwise import add, swiglu

pytestmark = pytest.mark.torch

CPU = StubFamily().device(0)

PLUGINS = {"Add": add, "SwiGlu": swiglu}


@pytest.mark.parametrize("operator", PLUGINS)
def test_every_example_row_replays_and_agrees_with_its_reference(operator):
    for cells in host_for(operator, PLUGINS[operator]).spec().examples:
        done = replay(operator, PLUGINS[operator], cells)

        assert done.checked
        assert done.wrong is None


@pytest.mark.parametrize(
    ("shapes", "dtypes", "out", "dtype", "tensors"),
    [
        pytest.param("136,512;136,512", "DT_BF16;DT_BF16", "136,512", "DT_BF16", 2, id="equal shapes"),
        pytest.param("16,512;16,1", "DT_BF16;DT_BF16", "16,512", "DT_BF16", 2, id="broadcast"),
        pytest.param("16;1", "INT32;INT32", "16", "INT32", 2, id="scalar of shape 1"),
        pytest.param("16;", "INT32;INT32", "16", "INT32", 2, id="second operand 0-D"),
        pytest.param(";16", "FLOAT;FLOAT", "16", "FLOAT", 2, id="first operand 0-D"),
        pytest.param("16,4;16,4", "DT_BF16;FLOAT", "16,4", "FLOAT", 2, id="mixed precision"),
        pytest.param("8,4;8,4", "BOOL;BOOL", "8,4", "BOOL", 2, id="bool"),
        pytest.param("8,4;8,4", "INT8;INT8", "8,4", "INT8", 2, id="int8"),
        pytest.param("8,4;8,4", "COMPLEX64;COMPLEX64", "8,4", "COMPLEX64", 2, id="complex"),
        pytest.param("4,4;4,4", "FLOAT;FLOAT", "", "", 2, id="no output recorded"),
    ],
)
def test_add_replays_each_slot_layout(shapes, dtypes, out, dtype, tensors):
    formats = ";".join("ND" for _ in dtypes.split(";"))
    done = replay("Add", add, example_row(shapes, dtypes, out, dtype, formats))

    assert done.wrong is None
    assert len(done.inputs.tensors) == tensors


def test_add_assumes_a_scalar_where_slot_1_is_missing_and_says_so():
    done = replay("Add", add, example_row("16,64", "DT_BF16", "16,64", "DT_BF16"))

    assert done.case.assumptions == ("y=scalar BF16 (slot 1 not recorded)",)
    assert done.inputs["y"].shape == ()
    assert done.inputs["y"].item() == 3


@pytest.mark.parametrize(
    ("cells", "reason"),
    [
        (
            example_row("16,7168;3,1", "DT_BF16;DT_BF16", "16,7168", "DT_BF16"),
            "input slots 0 and 1 have shapes 16,7168 and 3,1, which do not broadcast",
        ),
        (
            example_row("16,8;16,1", "DT_BF16;DT_BF16", "16,4", "DT_BF16"),
            "output slot 0 has shape 16,4, expected 16,8 (x broadcast with y)",
        ),
        (
            example_row("16,8;16,8", "DT_BF16;DT_BF16", "16,8", "FLOAT"),
            "output slot 0 has dtype FLOAT, expected BF16 (x broadcast with y)",
        ),
        (example_row("0,8;0,8", "FLOAT;FLOAT", "0,8", "FLOAT"), "input 'x' has shape (0, 8) with no element"),
        (
            example_row("8;8;8", "FLOAT;FLOAT;FLOAT", "8", "FLOAT"),
            "Add records 3 input tensors, expected 1 or 2",
        ),
    ],
)
def test_add_refuses_a_contradictory_row(cells, reason):
    assert replay("Add", add, cells) == Skip.invalid(reason)


@pytest.mark.parametrize("operator", PLUGINS)
def test_inputs_repeat_for_one_row_and_differ_between_rows(operator):
    one, other = host_for(operator, PLUGINS[operator]).spec().examples[:2]
    first = replay(operator, PLUGINS[operator], one)
    again = replay(operator, PLUGINS[operator], one)
    different = replay(operator, PLUGINS[operator], other)

    assert torch.equal(first.inputs["x"], again.inputs["x"])
    assert not torch.equal(first.inputs["x"].flatten()[:16], different.inputs["x"].flatten()[:16])
    assert first.inputs["x"].float().std() == pytest.approx(1, abs=0.05)


@pytest.mark.parametrize(
    ("x", "out", "dim"),
    [("16,64", "16,32", -1), ("8,32,64", "8,16,64", -2), ("2,2", "1,2", -2), ("4,8", "", -1)],
)
def test_swiglu_takes_the_halved_axis(x, out, dim):
    done = replay("SwiGlu", swiglu, example_row(x, "FLOAT", out, "FLOAT" if out else ""))

    assert done.case.params["dim"] == dim
    assert done.wrong is None
    assert done.case.assumptions == (() if out else ("dim=-1 (output not recorded)",))


@pytest.mark.parametrize(
    ("cells", "reason"),
    [
        (
            example_row("16,4095", "DT_BF16", "16,2047", "DT_BF16"),
            "input 'x' has shape 16,4095 and the output 16,2047, expected one even axis halved in the output",
        ),
        (
            example_row("16,4095", "DT_BF16"),
            "input 'x' has shape 16,4095, expected one even axis halved in the output",
        ),
        (
            example_row("16,64", "INT8", "16,32", "INT8"),
            "input 'x' has dtype INT8, expected BF16 or FLOAT16 or FLOAT",
        ),
        (
            example_row("16,64", "DT_BF16", "16,32", "FLOAT"),
            "output slot 0 has dtype FLOAT, expected BF16 (as x)",
        ),
    ],
)
def test_swiglu_refuses_a_contradictory_row(cells, reason):
    assert replay("SwiGlu", swiglu, cells) == Skip.invalid(reason)


def test_swiglu_reference_agrees_with_a_plain_loop():
    done = replay("SwiGlu", swiglu, example_row("3,4", "FLOAT", "3,2", "FLOAT"))
    x = done.inputs["x"].numpy()

    expected = [[a / (1 + np.exp(-a)) * b for a, b in zip(row[:2], row[2:], strict=True)] for row in x]
    reference = host_for("SwiGlu", swiglu).reference(done.case, done.inputs, CPU)

    assert reference.outputs[0].numpy() == pytest.approx(np.array(expected), rel=1e-6)


@settings(max_examples=25, deadline=None)
@given(
    shape=st.lists(st.integers(1, 6), min_size=1, max_size=4),
    ones=st.lists(st.booleans(), min_size=4, max_size=4),
    dtype=st.sampled_from(["FLOAT", "FLOAT16", "DT_BF16", "INT32", "INT64", "INT8"]),
)
def test_add_replays_any_broadcast_pair(shape, ones, dtype):
    y = [1 if one else size for size, one in zip(shape, ones, strict=False)]
    text = ",".join(map(str, shape))

    done = replay("Add", add, example_row(f"{text};{','.join(map(str, y))}", f"{dtype};{dtype}", text, dtype))

    assert done.wrong is None


@settings(max_examples=25, deadline=None)
@given(
    shape=st.lists(st.integers(1, 5), min_size=1, max_size=4),
    axis=st.integers(0, 3),
    dtype=st.sampled_from(["FLOAT", "FLOAT16", "DT_BF16"]),
)
def test_swiglu_replays_any_halved_axis(shape, axis, dtype):
    axis %= len(shape)
    x = [2 * size if i == axis else size for i, size in enumerate(shape)]

    cells = example_row(",".join(map(str, x)), dtype, ",".join(map(str, shape)), dtype)
    done = replay("SwiGlu", swiglu, cells)

    assert done.case.params["dim"] == axis - len(shape)
    assert done.wrong is None
