"""MoeTokenUnpermute: slot layouts, refusals, permutations that permute, random rows."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from perfcollect_core import Skip, example_row
from perfcollect_core.testing.replay import host_for, replay
from perfcollect_core.testing.stub_family import StubFamily
from perfcollect_ops_builtin.moe_unpermute import moe_unpermute

pytestmark = pytest.mark.torch

CPU = StubFamily().device(0)


def run(shapes, dtypes, *outputs):
    return replay("MoeTokenUnpermute", moe_unpermute, example_row(shapes, dtypes, *outputs))


@pytest.mark.parametrize(
    ("shapes", "dtypes", "out"),
    [
        pytest.param("128,64;128;", "DT_BF16;INT32;DT_UNDEFINED", "128,64", id="no probs"),
        pytest.param("128,64;128", "DT_BF16;INT32", "128,64", id="probs trimmed"),
        pytest.param("32,64;32;4,8", "DT_BF16;INT32;DT_BF16", "4,64", id="probs"),
        pytest.param("32,64;32;4,8", "FLOAT16;INT32;FLOAT", "4,64", id="FLOAT probs"),
        pytest.param("64,16;48;6,8", "FLOAT;INT32;FLOAT", "6,16", id="fewer pairs than rows"),
        pytest.param("16,16;48;6,8", "FLOAT;INT32;FLOAT", "6,16", id="more pairs than rows"),
        pytest.param("32,64;32;4,8", "DT_BF16;INT32;DT_BF16", "", id="no output"),
    ],
)
def test_each_slot_layout_replays(shapes, dtypes, out):
    done = run(shapes, dtypes, out, dtypes.split(";")[0] if out else "")

    assert done.wrong is None
    assert done.outputs[0].dtype == done.inputs["permuted"].dtype


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (
            ("256,64;256;4,8", "DT_BF16;INT32;DT_BF16", "4,64", "DT_BF16"),
            "input 'probs' has shape 4,8, expected tokens,top_k with 256 elements (length of sorted_indices)",
        ),
        (
            ("128,64;128", "DT_BF16;INT64"),
            "input 'sorted_indices' has dtype INT64, expected INT32",
        ),
        (
            ("128,64;128", "DT_BF16;INT32", "127,64", "DT_BF16"),
            "output slot 0 has shape 127,64, expected 128,64 (pairs over top_k, by hidden)",
        ),
        (
            ("128,64;4,8", "DT_BF16;INT32"),
            "input slots 0 and 1 have shapes 128,64 and 4,8, expected rows,hidden and pairs",
        ),
        (
            ("128,64;128", "INT8;INT32"),
            "input 'permuted' has dtype INT8, expected BF16 or FLOAT16 or FLOAT",
        ),
    ],
)
def test_a_contradictory_row_is_refused(arguments, reason):
    assert run(*arguments) == Skip.invalid(reason)


def test_sorted_indices_are_a_random_permutation():
    one, again = (run("128,4;128", "FLOAT;INT32").inputs["sorted_indices"] for _ in range(2))
    other = run("128,8;128", "FLOAT;INT32").inputs["sorted_indices"]

    assert one.sort().values.tolist() == list(range(128))
    assert one.tolist() != list(range(128))
    assert torch.equal(one, again)
    assert not torch.equal(one, other)


def test_a_shorter_list_reads_distinct_rows_and_a_longer_one_is_flagged():
    shorter, longer = run("64,4;48;6,8", "FLOAT;INT32;FLOAT"), run("16,4;48;6,8", "FLOAT;INT32;FLOAT")

    assert len(shorter.inputs["sorted_indices"].unique()) == 48
    assert shorter.case.assumptions == ()
    assert longer.case.assumptions == ("sorted_indices=repeated (48 pairs read 16 rows)",)
    assert longer.inputs["sorted_indices"].max() == 15


def test_weights_of_a_token_are_positive_and_sum_to_one():
    probs = run("256,4;256;32,8", "FLOAT;INT32;FLOAT").inputs["probs"]

    assert (probs > 0).all()
    assert probs.sum(1).tolist() == pytest.approx([1.0] * 32, abs=1e-5)
    assert probs.std() > 0.05


def test_reference_agrees_with_a_plain_loop():
    done = run("6,2;6;2,3", "FLOAT;INT32;FLOAT")
    permuted, order, probs = (done.inputs[n].tolist() for n in ("permuted", "sorted_indices", "probs"))

    (total,) = host_for("MoeTokenUnpermute", moe_unpermute).reference(done.case, done.inputs, CPU).outputs

    for token in range(2):
        for h in range(2):
            expected = sum(probs[token][j] * permuted[order[3 * token + j]][h] for j in range(3))
            assert total[token, h].item() == pytest.approx(expected)


@settings(max_examples=25, deadline=None)
@given(
    tokens=st.integers(1, 30),
    hidden=st.integers(1, 9),
    top_k=st.integers(1, 9),
    spare=st.integers(0, 20),
    dtype=st.sampled_from(["FLOAT", "FLOAT16", "DT_BF16"]),
)
def test_any_valid_row_replays(tokens, hidden, top_k, spare, dtype):
    pairs = tokens * top_k

    done = run(
        f"{pairs + spare},{hidden};{pairs};{tokens},{top_k}",
        f"{dtype};INT32;{dtype}",
        f"{tokens},{hidden}",
        dtype,
    )

    assert done.wrong is None
