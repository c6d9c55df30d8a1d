"""InterleaveRope: slot layouts, refusals, real angles, random rows."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from perfcollect_core import Skip, example_row
from perfcollect_core.testing.replay import host_for, replay
from perfcollect_core.testing.stub_family import StubFamily
from perfcollect_ops_builtin.rope import interleave_rope

pytestmark = pytest.mark.torch

CPU = StubFamily().device(0)


def run(x, table, out="", dtypes="DT_BF16;DT_BF16;DT_BF16", sin=""):
    cells = example_row(f"{x};{table};{sin or table}", dtypes, out, dtypes.split(";")[0] if out else "")
    return replay("InterleaveRope", interleave_rope, cells)


@pytest.mark.parametrize(
    ("x", "table"),
    [
        pytest.param("4,16,1,64", "4,1,1,64", id="decode"),
        pytest.param("2,16,33,64", "2,1,33,64", id="a position for each step"),
        pytest.param("2,16,33,64", "2,1,1,64", id="one position for all steps"),
    ],
)
@pytest.mark.parametrize("dtype", ["DT_BF16", "FLOAT16"])
def test_each_slot_layout_replays(x, table, dtype):
    done = run(x, table, x, ";".join([dtype] * 3))

    assert done.wrong is None


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (
            ("4,16,1,128", "4,1,1,128"),
            "input 'x' has shape 4,16,1,128, expected batch,heads,length,64",
        ),
        (("4,16,64", "4,1,64"), "input 'x' has shape 4,16,64, expected batch,heads,length,64"),
        (("4,16,1,64", "3,1,1,64"), "input 'cos' has shape 3,1,1,64, expected 4,1,1,64"),
        (
            ("4,16,8,64", "4,2,8,64"),
            "input 'cos' has shape 4,2,8,64, expected 4,1,1,64 or 4,1,8,64",
        ),
        (
            ("4,16,8,64", "4,1,8,64", "", "DT_BF16;DT_BF16;DT_BF16", "4,1,1,64"),
            "input 'sin' has shape 4,1,1,64, expected 4,1,8,64",
        ),
        (
            ("4,16,1,64", "4,1,1,64", "", "FLOAT;FLOAT;FLOAT"),
            "input 'x' has dtype FLOAT, expected BF16 or FLOAT16",
        ),
        (
            ("4,16,1,64", "4,1,1,64", "", "DT_BF16;FLOAT;DT_BF16"),
            "input 'cos' has dtype FLOAT, expected BF16",
        ),
    ],
)
def test_a_contradictory_row_is_refused(arguments, reason):
    assert run(*arguments) == Skip.invalid(reason)


def test_cos_and_sin_are_of_the_same_real_angles():
    done = run("512,1,1,64", "512,1,1,64", "", "FLOAT16;FLOAT16;FLOAT16")
    cos, sin = (done.inputs[name].double().reshape(512, 64) for name in ("cos", "sin"))

    assert (cos.square() + sin.square() - 1).abs().max() < 2e-3
    assert torch.equal(cos[:, :32], cos[:, 32:])
    assert torch.equal(sin[:, :32], sin[:, 32:])
    # The first frequency is 1 radian a position; the last barely turns within the context.
    assert cos[:, 0].std() > 0.6
    assert len(cos[:, 0].unique()) > 300
    assert torch.atan2(sin[:, 31], cos[:, 31]).max() < 32768 * 10000 ** (-62 / 64) + 0.01


def test_positions_run_on_along_the_length():
    done = run("2,1,5,64", "2,1,5,64", "", "FLOAT16;FLOAT16;FLOAT16")
    angle = torch.atan2(done.inputs["sin"].double(), done.inputs["cos"].double())[:, 0, :, 0]

    turns = angle.diff() % (2 * torch.pi)
    assert turns.flatten().tolist() == pytest.approx([1.0] * 8, abs=2e-3)


def test_inputs_repeat_for_one_row_and_differ_between_rows():
    one, again, other = (run(f"{n},2,1,64", f"{n},1,1,64").inputs for n in (16, 16, 17))

    for name in ("x", "cos", "sin"):
        assert torch.equal(one[name], again[name])
        assert not torch.equal(one[name], other[name][:16])


def test_reference_agrees_with_a_plain_loop():
    done = run("1,2,1,64", "1,1,1,64")
    x, cos, sin = (done.inputs[name].double() for name in ("x", "cos", "sin"))

    (rotated,) = host_for("InterleaveRope", interleave_rope).reference(done.case, done.inputs, CPU).outputs

    for head in range(2):
        q = [x[0, head, 0, 2 * i % 64 + (i >= 32)].item() for i in range(64)]
        half = [-value for value in q[32:]] + q[:32]
        expected = [q[i] * cos[0, 0, 0, i].item() + half[i] * sin[0, 0, 0, i].item() for i in range(64)]
        assert rotated[0, head, 0].tolist() == pytest.approx(expected)


@settings(max_examples=20, deadline=None)
@given(batch=st.integers(1, 5), heads=st.integers(1, 5), length=st.integers(1, 5), broadcast=st.booleans())
def test_any_valid_row_replays(batch, heads, length, broadcast):
    x = f"{batch},{heads},{length},64"

    assert run(x, f"{batch},1,{1 if broadcast else length},64", x).wrong is None
