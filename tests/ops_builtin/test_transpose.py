"""Transpose: inferred permutations, refusals, keys, random rows."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from perfcollect_core import Skip, example_row
from perfcollect_core.testing.replay import host_for, make_row, replay
from perfcollect_core.testing.stub_family import StubFamily
from perfcollect_ops_builtin.transpose import fitting_permutations, transpose

pytestmark = pytest.mark.torch

CPU = StubFamily().device(0)


def run(x, out="", dtypes="DT_BF16;INT64"):
    shapes = f"{x};{len(x.split(','))}" if ";" in dtypes else x
    return replay("Transpose", transpose, example_row(shapes, dtypes, out, "DT_BF16" if out else ""))


@pytest.mark.parametrize(
    ("x", "out", "perm", "assumptions"),
    [
        pytest.param("16,128,64", "128,16,64", (1, 0, 2), (), id="swap"),
        pytest.param("4,896", "896,4", (1, 0), (), id="2-D"),
        pytest.param("2,3,4", "4,2,3", (2, 0, 1), (), id="3-cycle"),
        pytest.param("2,3,4", "3,4,2", (1, 2, 0), (), id="other 3-cycle"),
        pytest.param("8,8", "8,8", (1, 0), ("perm=(1, 0) (2 permutations fit)",), id="square"),
        pytest.param("8,8,8", "8,8,8", (0, 2, 1), ("perm=(0, 2, 1) (6 permutations fit)",), id="cube"),
        pytest.param(
            "4,8,4", "4,4,8", (0, 2, 1), ("perm=(0, 2, 1) (2 permutations fit)",), id="last two of equals"
        ),
        pytest.param("2,3,4", "2,3,4", (0, 1, 2), (), id="nothing but the identity fits"),
        pytest.param("2,1,4", "4,1,2", (2, 1, 0), (), id="size 1"),
        pytest.param(
            "4,8,16",
            "8,64",
            (1, 0, 2),
            ("perm=(1, 0, 2) (2 permutations fit)", "output viewed as 8,64 (of another rank than x)"),
            id="view",
        ),
    ],
)
def test_the_permutation_comes_from_the_output(x, out, perm, assumptions):
    done = run(x, out)

    assert done.wrong is None
    assert done.case.params["perm"] == perm
    assert done.case.assumptions == assumptions
    assert done.outputs[0].data_ptr() != done.inputs["x"].data_ptr()


def test_a_row_without_the_permutation_slot_replays():
    assert run("4,896", "896,4", "DT_BF16").wrong is None


@pytest.mark.parametrize(
    ("cells", "reason"),
    [
        (
            ("4,896;2", "DT_BF16;INT64", "896,5", "DT_BF16"),
            "output slot 0 has shape 896,5, expected a permutation of x (4,896)",
        ),
        (
            ("6,4;2", "DT_BF16;INT64", "8,3", "DT_BF16"),
            "output slot 0 has shape 8,3, expected a permutation of x (6,4)",
        ),
        (
            ("6,4;2", "DT_BF16;INT64", "8,1,3", "DT_BF16"),
            "output slot 0 has shape 8,1,3, expected a permutation of x (6,4)",
        ),
        (("4,896;2", "DT_BF16;INT64"), "output slot 0 is blank, expected the permuted shape"),
        (
            ("4,896;3", "DT_BF16;INT64", "896,4", "DT_BF16"),
            "input slot 1 has 3 axes, expected 2 (rank of x)",
        ),
        (
            ("1,1,1,1,1,1,1,2,3", "DT_BF16", "1,1,1,1,1,1,1,3,2", "DT_BF16"),
            "input 'x' has 9 axes, expected at most 8",
        ),
    ],
)
def test_a_contradictory_row_is_refused(cells, reason):
    assert replay("Transpose", transpose, example_row(*cells)) == Skip.invalid(reason)


def test_a_shape_of_64_tebibytes_is_matched_without_building_it():
    assert fitting_permutations((1 << 23, 1 << 22), (1 << 22, 1 << 23)) == [(1, 0)]


def test_the_key_ignores_the_permutation_slot_and_the_format_of_x():
    host = host_for("Transpose", transpose)
    spec = host.spec()
    whole = example_row("4,896;2", "DT_BF16;INT64", "896,4", "DT_BF16", "NCHW;ND")
    bare = example_row("4,896", "DT_BF16", "896,4", "DT_BF16")

    keys = [host.canonical_key(spec, make_row("Transpose", cells)) for cells in (whole, bare)]

    assert keys[0] == keys[1] == ("Transpose", "4,896", "BF16", "ND", "896,4", "BF16")


def test_inputs_repeat_for_one_row_and_differ_between_rows():
    one, again, other = (run(f"{n},64", f"64,{n}").inputs["x"] for n in (16, 16, 17))

    assert torch.equal(one, again)
    assert not torch.equal(one, other[:16])


def test_reference_agrees_with_a_plain_loop():
    done = run("2,3,4", "4,2,3")
    x = done.inputs["x"].tolist()

    (moved,) = host_for("Transpose", transpose).reference(done.case, done.inputs, CPU).outputs

    assert moved.tolist() == [[[x[i][j][k] for j in range(3)] for i in range(2)] for k in range(4)]


@settings(max_examples=40, deadline=None)
@given(shape=st.lists(st.integers(1, 6), min_size=1, max_size=5), data=st.data())
def test_any_permutation_replays(shape, data):
    perm = data.draw(st.permutations(range(len(shape))))
    out = ",".join(str(shape[axis]) for axis in perm)

    assert run(",".join(map(str, shape)), out).wrong is None
