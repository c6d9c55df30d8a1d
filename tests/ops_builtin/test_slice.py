"""Slice: slot layouts, offsets, refusals, keys, random rows."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from perfcollect_core import Skip, example_row
from perfcollect_core.testing.replay import host_for, make_row, replay
from perfcollect_core.testing.stub_family import StubFamily
from perfcollect_ops_builtin.slice import slice_op

pytestmark = pytest.mark.torch

CPU = StubFamily().device(0)


def run(shapes, out="", dtypes="DT_BF16;INT64;INT64", columns=None):
    return replay(
        "Slice", slice_op, example_row(shapes, dtypes, out, "DT_BF16" if out else "", columns=columns)
    )


@pytest.mark.parametrize(
    ("shapes", "out", "dtypes"),
    [
        pytest.param("16,2112;2;2", "16,576", "DT_BF16;INT64;INT64", id="columns"),
        pytest.param("4,768;2;2", "2,768", "DT_BF16;INT64;INT64", id="rows"),
        pytest.param("8,16,192;3;3", "8,16,128", "DT_BF16;INT64;INT64", id="3-D"),
        pytest.param("8,16,192;3;3", "2,3,4", "DT_BF16;INT64;INT64", id="every axis"),
        pytest.param("16,64", "16,32", "DT_BF16", id="parameters trimmed"),
    ],
)
def test_each_slot_layout_replays(shapes, out, dtypes):
    done = run(shapes, out, dtypes)

    assert done.wrong is None
    assert set(done.inputs.tensors) == {"x"}
    assert done.case.assumptions == (f"offsets={(0,) * len(done.inputs['x'].shape)} (not recorded)",)
    assert done.outputs[0].is_contiguous()
    assert done.outputs[0].data_ptr() != done.inputs["x"].data_ptr()


def test_the_offset_policy_column_takes_the_other_end():
    done = run("16,2112;2;2", "16,576", columns={"Runtime offset_policy": "end"})

    assert done.wrong is None
    assert done.case.params["offsets"] == (0, 1536)
    assert done.case.assumptions == ()
    assert torch.equal(done.outputs[0], done.inputs["x"][:, 1536:])


@pytest.mark.parametrize(
    ("shapes", "out", "columns", "reason"),
    [
        (
            "16,2112;2;2",
            "16,2113",
            {},
            "output slot 0 has shape 16,2113, expected axes no longer than x (16,2112)",
        ),
        (
            "16,2112;2;2",
            "16",
            {},
            "output slot 0 has shape 16, expected axes no longer than x (16,2112)",
        ),
        ("16,2112;2;2", "", {}, "output slot 0 is blank, expected the shape of the slice"),
        (
            "16,2112;2;2",
            "16,2112",
            {},
            "output slot 0 has the shape of x (16,2112), expected a part of it",
        ),
        (
            "16,64;2;2",
            "16,32",
            {"Runtime offset_policy": "middle"},
            "column 'Runtime offset_policy' is 'middle', expected start or end",
        ),
    ],
)
def test_a_contradictory_row_is_refused(shapes, out, columns, reason):
    assert run(shapes, out, columns=columns) == Skip.invalid(reason)


def test_the_key_ignores_parameter_slots_and_the_format_of_x():
    host = host_for("Slice", slice_op)
    spec = host.spec()
    whole = example_row("16,64;2;2", "DT_BF16;INT64;INT64", "16,32", "DT_BF16", "NCHW;ND;ND")
    bare = example_row("16,64", "BFLOAT16", "16,32", "BFLOAT16")
    other = example_row("16,64", "BFLOAT16", "16,16", "BFLOAT16")

    keys = [host.canonical_key(spec, make_row("Slice", cells)) for cells in (whole, bare, other)]

    assert keys[0] == keys[1]
    assert keys[0] != keys[2]


def test_inputs_repeat_for_one_row_and_differ_between_rows():
    one, again, other = (run(f"{n},64;2;2", "16,32").inputs["x"] for n in (16, 16, 17))

    assert torch.equal(one, again)
    assert not torch.equal(one, other[:16])


def test_reference_agrees_with_a_plain_loop():
    done = run("3,4;2;2", "2,3", columns={"Runtime offset_policy": "end"})
    x = done.inputs["x"].tolist()

    (taken,) = host_for("Slice", slice_op).reference(done.case, done.inputs, CPU).outputs

    assert taken.tolist() == [row[1:] for row in x[1:]]


@settings(max_examples=25, deadline=None)
@given(
    axes=st.lists(st.tuples(st.integers(1, 6), st.integers(1, 6)), min_size=1, max_size=5),
    policy=st.booleans(),
)
def test_any_part_replays(axes, policy):
    x = ",".join(str(max(pair)) for pair in axes)
    out = ",".join(str(min(pair)) for pair in axes)

    done = run(
        f"{x};{len(axes)};{len(axes)}", out, columns={"Runtime offset_policy": "end" if policy else "start"}
    )

    assert done.kind == "invalid_case" if x == out else done.wrong is None
