"""TensorMove: slot layouts, refusals, small rows on Ascend, random rows."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from perfcollect_core import RunRequest, Skip, example_row
from perfcollect_core.testing.replay import host_for, make_row, replay
from perfcollect_core.testing.stub_family import StubFamily
from perfcollect_ops_builtin.tensor_move import tensor_move

pytestmark = pytest.mark.torch

CPU = StubFamily().device(0)


def run(x, dtype="DT_BF16", *outputs):
    return replay("TensorMove", tensor_move, example_row(x, dtype, *outputs))


@pytest.mark.parametrize("dtype", ["DT_BF16", "FLOAT", "INT8", "BOOL", "INT64", "DOUBLE", "COMPLEX64"])
@pytest.mark.parametrize("out", ["41,64", ""])
def test_each_dtype_replays_into_another_buffer(dtype, out):
    done = run("41,64", dtype, out, dtype if out else "")

    assert done.wrong is None
    assert done.outputs[0].data_ptr() != done.inputs["x"].data_ptr()


@pytest.mark.parametrize(
    ("cells", "reason"),
    [
        (("41,64", "DT_BF16", "41,65", "DT_BF16"), "output slot 0 has shape 41,65, expected 41,64 (as x)"),
        (("41,64", "DT_BF16", "41,64", "FLOAT"), "output slot 0 has dtype FLOAT, expected BF16 (as x)"),
        (("", ""), "input slot 'x' of TensorMove is blank, expected a tensor"),
        (("41,0", "DT_BF16"), "input 'x' has shape (41, 0) with no element"),
    ],
)
def test_a_contradictory_row_is_refused(cells, reason):
    assert run(*cells) == Skip.invalid(reason)


@pytest.mark.parametrize(
    ("x", "dtype", "size"),
    [
        ("16,5120", "DT_BF16", 163_840),
        ("200000", "DT_BF16", 400_000),
        ("400001", "INT8", None),
        ("262144", "INT8", 262_144),
    ],
)
def test_a_small_row_is_skipped_on_ascend_in_words_and_measured_elsewhere(x, dtype, size):
    host = host_for("TensorMove", tensor_move)
    rows = [make_row("TensorMove", example_row(x, dtype))]

    on_ascend = host.match_rows(host.spec(), rows, RunRequest("ascend"))
    on_cpu = host.match_rows(host.spec(), rows, RunRequest("cpu"))

    assert len(on_cpu.cases) == 1
    assert [skip for _, skip in on_ascend.skips] == (
        []
        if size is None
        else [
            Skip(
                f"input 'x' has {size} bytes: up to 400000 an asynchronous memcpy takes the place of the "
                "TensorMove kernel on Ascend, so there is no kernel to measure"
            )
        ]
    )


def test_every_row_comes_back_from_matching():
    host = host_for("TensorMove", tensor_move)
    rows = [
        make_row("TensorMove", example_row(x, "DT_BF16", out, "DT_BF16"), n)
        for n, (x, out) in enumerate([("16,64", "16,64"), ("16,64", "16,65"), ("4112,5120", "4112,5120")])
    ]

    matched = host.match_rows(host.spec(), rows, RunRequest("ascend"))

    assert [case.row for case in matched.cases] == [rows[2].ref]
    assert [(row.ref, skip.kind) for row, skip in matched.skips] == [
        (rows[0].ref, "skipped"),
        (rows[1].ref, "invalid_case"),
    ]


def test_values_are_not_constant_repeat_and_differ():
    one, again, other = (run(f"{n},64").inputs["x"] for n in (41, 41, 42))

    assert len(one.unique()) > 100
    assert torch.equal(one, again)
    assert not torch.equal(one, other[:41])


def test_reference_is_the_source():
    done = run("2,3", "FLOAT")

    (moved,) = host_for("TensorMove", tensor_move).reference(done.case, done.inputs, CPU).outputs

    assert moved.tolist() == done.inputs["x"].tolist()


@settings(max_examples=25, deadline=None)
@given(
    shape=st.lists(st.integers(1, 6), min_size=1, max_size=5),
    dtype=st.sampled_from(["FLOAT", "INT16", "UINT8"]),
)
def test_any_shape_replays(shape, dtype):
    x = ",".join(map(str, shape))

    assert run(x, dtype, x, dtype).wrong is None
