"""ArgMaxV2: slot layouts, inferred axis, refusals, distinct values, random rows."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from perfcollect_core import Skip, example_row
from perfcollect_core.testing.replay import host_for, replay
from perfcollect_core.testing.stub_family import StubFamily
from perfcollect_ops_builtin.argmax import argmax

pytestmark = pytest.mark.torch

CPU = StubFamily().device(0)


def run(shapes, dtypes="FLOAT;INT64", out="", word="INT32"):
    formats = ";".join("ND" for _ in dtypes.split(";"))
    return replay("ArgMaxV2", argmax, example_row(shapes, dtypes, out, word if out else "", formats))


@pytest.mark.parametrize(
    ("shapes", "dtypes", "out", "dim", "keepdim", "assumptions"),
    [
        pytest.param("4,1519;", "FLOAT;INT64", "4", -1, False, (), id="0-D dimension"),
        pytest.param("4,1519;1", "FLOAT;INT64", "4", -1, False, (), id="dimension of shape 1"),
        pytest.param("4,512", "DT_BF16", "4", -1, False, (), id="dimension trimmed"),
        pytest.param("4,15;", "INT32;INT64", "15", -2, False, (), id="first axis"),
        pytest.param("4,5,6;", "FLOAT16;INT64", "4,1,6", -2, True, (), id="keepdim"),
        pytest.param("8,8;", "FLOAT;INT64", "8", -1, False, ("dim=-1 (axes -2, -1 fit)",), id="ambiguous"),
        pytest.param(
            "4,15;", "FLOAT;INT64", "", -1, False, ("dim=-1 (output not recorded)",), id="no output"
        ),
        pytest.param("64;", "FLOAT;INT64", "", -1, False, (), id="vector"),
        pytest.param("64;", "FLOAT;INT64", "1", -1, True, (), id="vector, keepdim"),
    ],
)
def test_each_slot_layout_replays(shapes, dtypes, out, dim, keepdim, assumptions):
    done = run(shapes, dtypes, out)

    assert done.wrong is None
    assert done.case.params == {"dim": dim, "keepdim": keepdim}
    assert done.case.assumptions == assumptions
    assert done.outputs[0].dtype == torch.int32


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (
            ("4,1519;", "FLOAT;INT64", "5"),
            "output slot 0 has shape 5, expected x (4,1519) without one axis",
        ),
        (
            ("4,1519;", "FLOAT;INT64", "4,2"),
            "output slot 0 has shape 4,2, expected x (4,1519) without one axis",
        ),
        (
            ("4,1519;", "FLOAT;INT64", "4", "FLOAT"),
            "output slot 0 has dtype FLOAT, expected INT32 or INT64",
        ),
        ((";", "FLOAT;INT64"), "input slot 0 is a 0-D tensor, expected at least one axis"),
    ],
)
def test_a_contradictory_row_is_refused(arguments, reason):
    assert run(*arguments) == Skip.invalid(reason)


@pytest.mark.parametrize(("shapes", "dim"), [("3,1519;", -1), ("1519,3;", -2)])
def test_values_are_distinct_along_the_axis_and_the_maximum_is_anywhere(shapes, dim):
    out = "3"
    done = run(shapes, "FLOAT;INT64", out)
    rows = done.inputs["x"].movedim(dim, -1)

    assert all(len(row.unique()) == row.numel() for row in rows)
    assert len(done.outputs[0].unique()) == 3


def test_inputs_repeat_for_one_row_and_differ_between_rows():
    one, again, other = (run(f"{n},64;").inputs["x"] for n in (16, 16, 17))

    assert torch.equal(one, again)
    assert not torch.equal(one, other[:16])


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (lambda got: (got + 1) % 8, "output 0: 3 of 3 indices do not point at a maximum"),
        (lambda got: got - 8, "output 0: an index is not in 0..7"),
        (lambda got: got[:2], "output 0: expected indices of shape (3,)"),
    ],
)
def test_a_wrong_index_is_noticed(spoil, reason):
    done = run("3,8;", "FLOAT;INT64", "3")
    reference = host_for("ArgMaxV2", argmax).reference(done.case, done.inputs, CPU)

    assert reference.compare((spoil(done.outputs[0]),)) == reason


def test_reference_accepts_what_python_finds():
    done = run("3,8;", "FLOAT;INT64", "3")
    best = [max(range(8), key=row.__getitem__) for row in done.inputs["x"].tolist()]

    reference = host_for("ArgMaxV2", argmax).reference(done.case, done.inputs, CPU)

    assert reference.compare((torch.tensor(best),)) is None


@settings(max_examples=25, deadline=None)
@given(
    shape=st.lists(st.integers(1, 9), min_size=2, max_size=4),
    axis=st.integers(0, 3),
    keepdim=st.booleans(),
    dtype=st.sampled_from(["FLOAT", "FLOAT16", "DT_BF16", "INT32", "INT64"]),
)
def test_any_axis_replays(shape, axis, keepdim, dtype):
    axis %= len(shape)
    out = [*shape[:axis], *([1] if keepdim else []), *shape[axis + 1 :]]

    assert run(f"{','.join(map(str, shape))};", f"{dtype};INT64", ",".join(map(str, out))).wrong is None
