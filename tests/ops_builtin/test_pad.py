"""PadV3: slot layouts, inferred padding, refusals, random rows."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from perfcollect_core import Skip, example_row
from perfcollect_core.testing.replay import host_for, replay
from perfcollect_core.testing.stub_family import StubFamily
from perfcollect_ops_builtin.pad import pad

pytestmark = pytest.mark.torch

CPU = StubFamily().device(0)


def run(*cells):
    return replay("PadV3", pad, example_row(*cells))


@pytest.mark.parametrize(
    ("shapes", "dtypes", "out", "pads", "where"),
    [
        pytest.param(
            "25,64;4;", "DT_BF16;INT64;DT_BF16", "32,64", (0, 0, 0, 7), "7 after axis 0", id="0-D value"
        ),
        pytest.param(
            "25,64;4;1", "FLOAT;INT64;FLOAT", "25,80", (0, 16, 0, 0), "16 after axis 1", id="value of shape 1"
        ),
        pytest.param("25,64;4", "INT32;INT32", "26,64", (0, 0, 0, 1), "1 after axis 0", id="value trimmed"),
        pytest.param("25,64", "INT8", "26,64", (0, 0, 0, 1), "1 after axis 0", id="paddings trimmed"),
        pytest.param(
            "2,3,4;6;",
            "FLOAT;INT64;FLOAT",
            "4,3,5",
            (0, 1, 0, 0, 0, 2),
            "2 after axis 0, 1 after axis 2",
            id="two axes",
        ),
    ],
)
def test_each_slot_layout_replays(shapes, dtypes, out, pads, where):
    formats = ";".join("ND" for _ in dtypes.split(";"))

    done = run(shapes, dtypes, out, dtypes.split(";")[0], formats)

    assert done.wrong is None
    assert set(done.inputs.tensors) == {"x"}
    assert done.case.params["pads"] == pads
    assert done.case.assumptions == (
        f"padding={where} (sides not recorded)",
        "value=0 (not recorded, timing-neutral)",
    )


@pytest.mark.parametrize(
    ("cells", "reason"),
    [
        (
            ("16,64;4", "DT_BF16;INT64", "1,64", "DT_BF16"),
            "output slot 0 has shape 1,64, expected axes no shorter than x (16,64)",
        ),
        (
            ("16,64;4", "DT_BF16;INT64", "16,64,1", "DT_BF16"),
            "output slot 0 has shape 16,64,1, expected axes no shorter than x (16,64)",
        ),
        (("16,64;4", "DT_BF16;INT64"), "output slot 0 is blank, expected the padded shape"),
        (
            ("16,64;4", "DT_BF16;INT64", "16,64", "DT_BF16"),
            "output slot 0 has the shape of x (16,64), expected a padded axis",
        ),
        (
            ("16,64;6", "DT_BF16;INT64", "17,64", "DT_BF16"),
            "input slot 1 has 6 paddings, expected 4 (two for each axis of x)",
        ),
    ],
)
def test_a_contradictory_row_is_refused(cells, reason):
    assert run(*cells) == Skip.invalid(reason)


def test_inputs_repeat_for_one_row_and_differ_between_rows():
    one, again, other = (run(f"{n},64;4", "FLOAT;INT64", "64,64", "FLOAT").inputs["x"] for n in (25, 25, 26))

    assert torch.equal(one, again)
    assert not torch.equal(one, other[:25])


def test_reference_agrees_with_a_plain_loop():
    done = run("2,3;4", "FLOAT;INT64", "4,5", "FLOAT")
    x = done.inputs["x"].tolist()

    (padded,) = host_for("PadV3", pad).reference(done.case, done.inputs, CPU).outputs

    assert padded.tolist() == [[x[i][j] if i < 2 and j < 3 else 0 for j in range(5)] for i in range(4)]


@settings(max_examples=25, deadline=None)
@given(axes=st.lists(st.tuples(st.integers(1, 6), st.integers(0, 4)), min_size=1, max_size=5))
def test_any_padding_replays_or_is_refused_as_none(axes):
    x = ",".join(str(size) for size, _ in axes)
    out = ",".join(str(size + more) for size, more in axes)

    done = run(f"{x};{2 * len(axes)}", "DT_BF16;INT64", out, "DT_BF16")

    if any(more for _, more in axes):
        assert done.wrong is None
    else:
        assert done.kind == "invalid_case"
