"""MoeTokenPermute: slot layouts, refusals, distinct experts, random rows."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from perfcollect_core import Skip, example_row
from perfcollect_core.testing.replay import host_for, replay
from perfcollect_core.testing.stub_family import StubFamily
from perfcollect_ops_builtin.moe_permute import moe_permute

pytestmark = pytest.mark.torch

CPU = StubFamily().device(0)


def run(shapes, out="", dtypes="DT_BF16;INT32", columns=None):
    words = f"{dtypes.split(';')[0]};INT32" if out else ""
    return replay("MoeTokenPermute", moe_permute, example_row(shapes, dtypes, out, words, columns=columns))


@pytest.mark.parametrize(
    ("shapes", "out", "dtypes", "kept"),
    [
        pytest.param("4,64;4,8", "32,64;32", "DT_BF16;INT32", 32, id="two axes"),
        pytest.param("4,64;4,8", "", "DT_BF16;INT64", 32, id="no output"),
        pytest.param("19,1;19", "19,1;19", "FLOAT;INT32", 19, id="scales re-permuted"),
        pytest.param("64,16;64,8", "400,16;512", "FLOAT16;INT32", 400, id="dropped tokens"),
        pytest.param("64,16;64,1", "64,16;64", "INT8;INT32", 64, id="top 1, INT8"),
    ],
)
def test_each_slot_layout_replays(shapes, out, dtypes, kept):
    done = run(shapes, out, dtypes)

    assert done.wrong is None
    assert done.outputs[0].shape[0] == kept
    assert done.outputs[1].dtype == torch.int32


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (
            ("4,64;5,8", "32,64;32"),
            "input slots 0 and 1 have shapes 4,64 and 5,8, expected tokens,hidden and tokens,top_k or tokens",
        ),
        (
            ("4,64;4,8", "33,64;32"),
            "output slot 0 has shape 33,64, expected 32,64 (token-expert pairs by hidden)",
        ),
        (
            ("4,64;4,8", "32,64;31"),
            "output slot 1 has shape 31, expected 32 (one a token-expert pair)",
        ),
        (("4,64;4,513",), "input 'indices' has top_k 513 and 2052 pairs, expected at most 512 and 16777214"),
        (("4,64;4,8", "", "DT_BF16;FLOAT"), "input 'indices' has dtype FLOAT, expected INT32 or INT64"),
    ],
)
def test_a_contradictory_row_is_refused(arguments, reason):
    assert run(*arguments) == Skip.invalid(reason)


def test_every_token_goes_to_distinct_experts_spread_over_all():
    one, again = (run("512,4;512,8", "4096,4;4096").inputs["indices"] for _ in range(2))
    other = run("513,4;513,8").inputs["indices"]

    assert all(len(set(row)) == 8 for row in one.tolist())
    assert one.unique().tolist() == list(range(64))
    assert one.flatten().bincount().max() < 130
    assert torch.equal(one, again)
    assert not torch.equal(one, other[:512])


def test_the_number_of_experts_is_assumed_and_a_column_wins():
    assumed, recorded = run("512,4;512,8"), run("512,4;512,8", columns={"Num Experts": "256"})

    assert assumed.case.assumptions == ("experts=64 (not recorded)",)
    assert recorded.case.assumptions == ()
    assert 200 < recorded.inputs["indices"].max() < 256
    assert run("4,4;4,8", columns={"Num Experts": "4"}) == Skip.invalid(
        "column 'Num Experts' is 4, expected a number of at least top_k 8"
    )


def test_one_axis_indices_are_rising_runs_of_each_source_rank():
    done = run("1600,4;1600", "1600,4;1600")
    runs = done.inputs["indices"].reshape(16, 100)

    assert (runs.diff(dim=1) >= 0).all()
    assert not (done.inputs["indices"].diff() >= 0).all()
    assert done.case.assumptions[-1] == (
        "indices=runs of rising experts from 16 source ranks (a local re-permute)"
    )


def test_reference_agrees_with_a_plain_loop():
    done = run("5,2;5,3", "15,2;15", "FLOAT;INT32")
    tokens, indices = done.inputs["tokens"].tolist(), done.inputs["indices"].tolist()

    permuted, position = (
        host_for("MoeTokenPermute", moe_permute).reference(done.case, done.inputs, CPU).outputs
    )

    pairs = sorted((expert, 3 * t + k) for t, row in enumerate(indices) for k, expert in enumerate(row))
    assert permuted.tolist() == [tokens[pair // 3] for _, pair in pairs]
    assert [pair for _, pair in pairs] == sorted(range(15), key=position.tolist().__getitem__)


@settings(max_examples=25, deadline=None)
@given(tokens=st.integers(1, 40), hidden=st.integers(1, 9), top_k=st.integers(1, 9), share=st.floats(0.1, 1))
def test_any_valid_row_replays(tokens, hidden, top_k, share):
    pairs = tokens * top_k
    kept = max(1, int(pairs * share))

    assert run(f"{tokens},{hidden};{tokens},{top_k}", f"{kept},{hidden};{pairs}").wrong is None
