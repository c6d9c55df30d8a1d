"""Index: slot layouts, axis inference, patterns, refusals, values and random rows."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from perfcollect_core import Skip, example_row
from perfcollect_core.testing.replay import host_for, make_row, replay
from perfcollect_core.testing.stub_family import StubFamily
from perfcollect_ops_builtin.index import index

pytestmark = pytest.mark.torch

CPU = StubFamily().device(0)


def row_of(shapes, out, words=("INT64",), columns=None):
    indices = shapes.count(";") - 2
    dtypes = ";".join(["DT_BF16", "INT64", "INT64", *(words * indices)[:indices]])
    return example_row(shapes, dtypes, out, "DT_BF16" if out else "", columns=columns)


def run(*arguments, columns=None):
    return replay("Index", index, row_of(*arguments, columns=columns))


@pytest.mark.parametrize(
    ("shapes", "out", "axes"),
    [
        pytest.param("64,32;1;2;16", "16,32", (0,), id="rows"),
        pytest.param("64,32;1;2;128", "128,32", (0,), id="more indices than rows"),
        pytest.param("64,32;1;3;4,8", "4,8,32", (0,), id="2-D index"),
        pytest.param("6,64,32;2;3;16", "6,16,32", (1,), id="second axis"),
        pytest.param("6,64,32;2;2;16;16", "16,32", (0, 1), id="two axes"),
        pytest.param("6,64,32;3;2;16;16", "6,16", (1, 2), id="last two axes"),
        pytest.param("6,64,32;3;2;16;1", "6,16", (1, 2), id="index tensors that broadcast"),
        pytest.param("64,32;1;2;16", "", (0,), id="no output"),
        pytest.param("64;1;1;16", "16", (0,), id="vector"),
    ],
)
@pytest.mark.parametrize("dtype", ["INT32", "INT64"])
def test_each_slot_layout_replays(shapes, out, axes, dtype):
    done = run(shapes, out, (dtype,))

    assert done.wrong is None
    assert done.case.params["axes"] == axes


@pytest.mark.parametrize(
    ("shapes", "out", "axes", "why"),
    [
        ("6,64,32;3;3;16", "6,16,32", (1,), "indexed axes=(1,) (from the output; slot 1 says (2,))"),
        ("6,64,32;3;2;16;16", "16,64", (0, 2), "indexed axes=(0, 2) (from the output; slot 1 says (1, 2))"),
    ],
)
def test_axes_that_slot_1_does_not_give_come_from_the_output_and_are_flagged(shapes, out, axes, why):
    done = run(shapes, out)

    assert done.wrong is None
    assert done.case.params["axes"] == axes
    assert why in done.case.assumptions


@pytest.mark.parametrize(
    ("shapes", "out"),
    [
        ("512,32;1;2;512", "200,32"),
        ("4,64,32;2;2;4,64", "99,32"),
        ("4,64,32;2;3;64", "4,7,32"),
        ("9,2;1;2;9", "0,2"),
    ],
)
def test_a_boolean_mask_selects_as_many_as_the_output_has(shapes, out):
    done = run(shapes, out, ("BOOL",))

    assert done.wrong is None
    assert done.inputs["index0"].dtype == torch.bool
    selected = done.case.params["selected"]
    assert done.inputs["index0"].sum() == selected
    if selected > 50:
        assert not done.inputs["index0"].flatten()[:selected].all()


@pytest.mark.parametrize(
    ("shapes", "out", "words", "reason"),
    [
        (
            "64,32;1;2;16",
            "17,32",
            ("INT64",),
            "output slot 0 has shape 17,32, expected 16,32 (x by its index tensors)",
        ),
        (
            "64,32;1;2;16;16",
            "16",
            ("INT64",),
            "2 index tensors from slot 3 on, expected at most 1 (slot 1 masks 1 axes, x has 2)",
        ),
        ("64,32;2;2;16;15", "16", ("INT64",), "index tensors have shapes 16 and 15, which do not broadcast"),
        ("64,32;1;2;16", "16,32", ("FLOAT",), "input 'index0' has dtype FLOAT, expected INT32 or INT64"),
        ("64,32;1;2;64", "", ("BOOL",), "output slot 0 is blank, expected the rows a BOOL index selects"),
        (
            "64,32;1;2;64",
            "65,32",
            ("BOOL",),
            "output slot 0 has 65 rows, expected at most 64 (size of the BOOL mask)",
        ),
        (
            "64,32;1;2;60",
            "5,32",
            ("BOOL",),
            "input 'index0' has shape 60 and the output 5,32, expected a BOOL mask of leading axes of x (64,32)",
        ),
        ("64,32;1;2", "16,32", ("INT64",), "input slot 'index0' of Index is blank, expected a tensor"),
    ],
)
def test_a_contradictory_row_is_refused(shapes, out, words, reason):
    assert run(shapes, out, words) == Skip.invalid(reason)


def test_selected_rows_are_distinct_and_scattered():
    one, again = (run("10240,8;1;2;257", "257,8").inputs["index0"] for _ in range(2))
    other = run("10241,8;1;2;257", "257,8").inputs["index0"]

    assert len(one.unique()) == 257
    assert one.max() > 9000
    assert not torch.equal(one, one.sort().values)
    assert torch.equal(one, again)
    assert not torch.equal(one, other)


def test_more_indices_than_rows_repeat_over_the_whole_axis():
    values = run("8,4;1;2;512", "512,4").inputs["index0"]

    assert values.unique().tolist() == list(range(8))


def test_the_pattern_column_wins_and_tells_rows_apart():
    host = host_for("Index", index)
    spec = host.spec()
    rows = [
        make_row("Index", row_of("10240,8;1;2;257", "257,8", columns=columns))
        for columns in ({}, {"Runtime index_pattern": "ramp"}, {"Runtime index_pattern": "uniform"})
    ]

    ramp = replay("Index", index, rows[1].cells)

    steps = ramp.inputs["index0"].diff() % 10240
    assert steps.unique().tolist() == [1]
    assert ramp.case.assumptions == ()
    assert len({host.canonical_key(spec, row) for row in rows}) == 3


@pytest.mark.parametrize(
    ("pattern", "shapes", "out"), [("zipf", "64,8;1;2;4", "4,8"), ("distinct", "2,8;1;2;4", "4,8")]
)
def test_a_pattern_that_does_not_fit_is_refused(pattern, shapes, out):
    refused = run(shapes, out, columns={"Runtime index_pattern": pattern})

    assert refused == Skip.invalid(
        f"column 'Runtime index_pattern' is {pattern!r}, expected distinct or ramp or uniform that fits x"
    )


def test_metadata_slots_do_not_count_in_the_key_but_the_shape_of_the_index_does():
    host = host_for("Index", index)
    spec = host.spec()
    shapes = ("64,32;1;2;16", "64,32;;;16", "64,32;1;3;4,4")

    keys = [host.canonical_key(spec, make_row("Index", row_of(s, ""))) for s in shapes]

    assert keys[0] == keys[1]
    assert keys[0] != keys[2]


def test_reference_agrees_with_a_plain_loop():
    done = run("3,4,2;2;2;5;5", "5,2")
    x, rows, columns = (done.inputs[name].tolist() for name in ("x", "index0", "index1"))

    (taken,) = host_for("Index", index).reference(done.case, done.inputs, CPU).outputs

    assert taken.tolist() == [x[i][j] for i, j in zip(rows, columns, strict=True)]


@settings(max_examples=40, deadline=None)
@given(
    shape=st.lists(st.integers(1, 6), min_size=1, max_size=4),
    picked=st.lists(st.integers(1, 5), min_size=1, max_size=2),
    first=st.integers(0, 3),
    count=st.integers(1, 3),
)
def test_any_adjacent_axes_replay(shape, picked, first, count):
    first %= len(shape)
    count = min(count, len(shape) - first)
    out = [*shape[:first], *picked, *shape[first + count :]]
    x, indices = ",".join(map(str, shape)), ",".join(map(str, picked))

    done = run(f"{x};{first + count};{len(out)}" + f";{indices}" * count, ",".join(map(str, out)))

    assert done.wrong is None
