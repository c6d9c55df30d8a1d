"""Sort: slot layouts, direction, refusals, distinct values, random rows."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from perfcollect_core import Skip, example_row
from perfcollect_core.testing.replay import host_for, replay
from perfcollect_core.testing.stub_family import StubFamily
from perfcollect_ops_builtin.sort import sort

pytestmark = pytest.mark.torch

CPU = StubFamily().device(0)


def run(x, dtype="FLOAT", *outputs, columns=None):
    return replay("Sort", sort, example_row(x, dtype, *outputs, columns=columns))


@pytest.mark.parametrize("dtype", ["FLOAT", "FLOAT16", "DT_BF16", "INT32"])
@pytest.mark.parametrize("x", ["4,1513", "2,3,64", "129"])
def test_each_layout_replays_with_int32_indices_as_the_kernel_writes_them(x, dtype):
    done = run(x, dtype, f"{x};{x}", f"{dtype};INT32")

    assert done.wrong is None
    assert done.outputs[1].dtype == torch.int32
    assert done.case.assumptions[:2] == (
        "dim=-1 (not recorded)",
        "descending=False (not recorded; samplers sort ascending)",
    )


@pytest.mark.parametrize(("text", "descending"), [("true", True), ("false", False)])
def test_the_direction_column_wins(text, descending):
    done = run("4,512", columns={"Runtime descending": text})

    assert done.wrong is None
    assert (done.outputs[0].diff() < 0).all() == descending
    assert done.case.assumptions == ("dim=-1 (not recorded)",)


@pytest.mark.parametrize(
    ("cells", "columns", "reason"),
    [
        (
            ("4,1519", "FLOAT", "4,1519;4,50", "FLOAT;INT32"),
            {},
            "output slot 1 has shape 4,50, expected 4,1519 (as x)",
        ),
        (("4,1519", "FLOAT", "4,1519", "DT_BF16"), {}, "output slot 0 has dtype BF16, expected FLOAT (as x)"),
        (
            ("4,1519", "FLOAT"),
            {"Runtime descending": "down"},
            "column 'Runtime descending' is 'down', expected true or false",
        ),
        (("", "FLOAT", "", "", "ND"), {}, "input slot 0 is a 0-D tensor, expected at least one axis"),
    ],
)
def test_a_contradictory_row_is_refused(cells, columns, reason):
    assert run(*cells, columns=columns) == Skip.invalid(reason)


@pytest.mark.parametrize(("x", "dtype"), [("3,15193", "FLOAT"), ("3,512", "DT_BF16"), ("3,4096", "FLOAT16")])
def test_values_are_distinct_logits_in_random_order(x, dtype):
    values = run(x, dtype).inputs["x"]

    assert all(len(row.unique()) == row.numel() for row in values)
    assert values.float().std() == pytest.approx(3, abs=0.1)
    assert values.isfinite().all()
    assert 0.4 < (values.float().diff() > 0).float().mean() < 0.6


def test_ties_a_dtype_cannot_avoid_are_recorded():
    done = run("1,2000", "DT_BF16")

    assert done.wrong is None
    assert done.case.assumptions[-1] == "ties (BF16 has fewer values than the last axis has elements)"


def test_inputs_repeat_for_one_row_and_differ_between_rows():
    one, again, other = (run(f"{n},64").inputs["x"] for n in (16, 16, 17))

    assert torch.equal(one, again)
    assert not torch.equal(one, other[:16])


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (lambda values, indices: (values.flip(-1), indices), "output 0: the values are not in order"),
        (
            lambda values, indices: (values, indices.flip(-1)),
            "output 1: the indices do not point at the values",
        ),
        (lambda values, indices: (values, indices * 0), "output 1: the indices are no permutation"),
        (lambda values, indices: (values, None), "values and indices expected in the shape of x (3, 8)"),
    ],
)
def test_a_wrong_order_is_noticed(spoil, reason):
    done = run("3,8")
    reference = host_for("Sort", sort).reference(done.case, done.inputs, CPU)

    assert reference.compare(spoil(*done.outputs)) == reason


def test_reference_agrees_with_python():
    done = run("3,8")

    reference = host_for("Sort", sort).reference(done.case, done.inputs, CPU)

    assert reference.outputs[0].tolist() == [sorted(row) for row in done.inputs["x"].tolist()]


@settings(max_examples=25, deadline=None)
@given(
    shape=st.lists(st.integers(1, 9), min_size=1, max_size=4),
    dtype=st.sampled_from(["FLOAT", "FLOAT16", "DT_BF16", "INT8", "INT64"]),
    descending=st.sampled_from(["true", "false"]),
)
def test_any_shape_replays(shape, dtype, descending):
    x = ",".join(map(str, shape))

    assert (
        run(x, dtype, f"{x};{x}", f"{dtype};INT32", columns={"Runtime descending": descending}).wrong is None
    )
