"""RINGMLAPrefillBF16Kernel: first ring and merge, lengths, refusals, values, references and random rows."""

from __future__ import annotations

import attrs
import numpy as np
import pytest

pytest.importorskip("torch")

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import perfcollect_ops_vllm_ascend.ring_mla_prefill as plugin
from perfcollect_core import Skip, example_row
from perfcollect_core.testing.conformance import OperatorConformance
from perfcollect_core.testing.replay import host_for, make_row, replay
from perfcollect_core.testing.stub_family import StubFamily

pytestmark = pytest.mark.torch

OPERATOR = "RINGMLAPrefillBF16Kernel"
CPU = StubFamily().device(0)
HOST = host_for(OPERATOR, plugin)
SPEC = HOST.spec()


def row(queries=20, keys=20, heads=4, *, merge=False, mask=None, kv_heads=None, meta=(), **replace):
    kv = kv_heads or heads
    mask = (not merge) if mask is None else mask
    slots = {
        "q_nope": f"{queries},{heads},128", "q_rope": f"{queries},{heads},64", "k_nope": f"{keys},{kv},128",
        "k_rope": f"{keys},{kv},64", "value": f"{keys},{kv},128", "mask": "512,512" if mask else "",
        **{f"unused_{n}": "" for n in range(7)},
        "pre_out": f"{queries},{heads},128" if merge else "", "prev_lse": f"{heads},{queries}" if merge else "",
    } | replace  # fmt: skip
    dtypes = ["FLOAT" if name == "prev_lse" else "DT_BF16" for name in slots]
    dtypes = [word if shape else "DT_UNDEFINED" for word, shape in zip(dtypes, slots.values(), strict=True)]
    cells = example_row(
        ";".join(slots.values()),
        ";".join(dtypes),
        f"{queries},{heads},128;{heads},{queries}",
        "DT_BF16;FLOAT",
    )
    return {**cells, **{f"Runtime {name}": str(value) for name, value in dict(meta).items()}}


def make(cells):
    return HOST.make_case(SPEC, make_row(OPERATOR, cells))


TWO = {"actual_seq_lengths_values": "8,20"}
MODES = {
    "first ring": (row(), True, False),
    "first ring, two sequences": (row(meta=TWO), True, False),
    "first ring without mask": (row(20, 30, mask=False), False, False),
    "merge": (row(20, 50, merge=True), False, True),
    "merge, two sequences": (
        row(20, 50, merge=True, meta=TWO | {"actual_seq_lengths_kv_values": "15,35"}),
        False,
        True,
    ),
    "merge, nothing for one": (
        row(20, 30, merge=True, meta=TWO | {"actual_seq_lengths_kv_values": "30,0"}),
        False,
        True,
    ),
    "batch size": (row(20, 20, meta={"batch_size": 4}), True, False),
    "grouped heads": (row(20, 20, kv_heads=2), True, False),
    "more than one chunk": (row(700, 700, 1), True, False),
}


@pytest.mark.parametrize(("cells", "causal", "merge"), MODES.values(), ids=MODES)
def test_first_ring_and_merge_replay(cells, causal, merge):
    done = replay(OPERATOR, plugin, cells)

    assert not isinstance(done, Skip), done
    assert done.wrong is None
    assert (done.case.params["causal"], done.case.params["merge"]) == (causal, merge)


def test_a_merge_is_attention_over_both_chunks():
    done = replay(OPERATOR, plugin, MODES["merge"][0])
    q = np.concatenate([done.inputs[n].double().numpy() for n in ("q_nope", "q_rope")], -1)
    k = np.concatenate([done.inputs[n].double().numpy() for n in ("k_nope", "k_rope")], -1)
    v, earlier = done.inputs["value"].double().numpy(), done.inputs["pre_out"].double().numpy()

    for token in range(20):
        scores = np.array([q[token, 2] @ k[j, 2] for j in range(50)]) * 192**-0.5
        previous = np.exp(float(done.inputs["prev_lse"][2, token]))
        total = np.exp(scores).sum() + previous
        expected = (np.exp(scores) @ v[:, 2] + previous * earlier[token, 2]) / total
        np.testing.assert_allclose(done.outputs[0][token, 2].double().numpy(), expected, atol=1e-2)
        assert float(done.outputs[1][2, token]) == pytest.approx(np.log(total), abs=1e-2)


def test_the_earlier_result_is_a_real_one():
    inputs = HOST.make_inputs(make(MODES["merge"][0]), CPU)

    # 256 keys with scores of variance one: log(256) and half of the variance.
    assert float(inputs["prev_lse"].mean()) == pytest.approx(np.log(256) + 0.5, abs=0.15)
    assert 0.03 < float(inputs["pre_out"].float().std()) < 0.3


def test_the_mask_is_an_upper_triangle_and_seeds_differ():
    case = make(row())
    inputs, other = HOST.make_inputs(case, CPU), HOST.make_inputs(attrs.evolve(case, seed=1), CPU)

    assert torch.equal(inputs["mask"].float(), torch.ones(512, 512).triu(1))
    assert not torch.equal(inputs["q_nope"], other["q_nope"])


def test_what_is_not_recorded_is_said():
    assert make(row()).assumptions == (
        "mask_type=mask_type_triu (by slot 5)",
        "sequences=1 (query lengths not recorded: 20 tokens split evenly)",
        "scale=192^-0.5 (not recorded, timing-neutral)",
    )
    assert make(row(meta=TWO | {"mask_type": "mask_type_triu"})).params["q_lengths"] == (8, 12)


@pytest.mark.parametrize(
    ("cells", "reason"),
    [
        (row(20, 10), "slot 2 (k_nope) gives sequence 0 10 keys for 20 queries, expected as many or more"),
        (row(20, 30, merge=True, meta=TWO | {"actual_seq_lengths_kv_values": "25,5"}),
            "slot 2 (k_nope) gives sequence 1 5 keys for 12 queries, expected as many or more"),
        (row(meta={"actual_seq_lengths_values": "8,8,20"}),
            "column 'Runtime actual_seq_lengths_values' ends at 20 and sums to 36, expected 20 query tokens in sequences "
            "of one or more"),
        (row(20, 30, merge=True, meta=TWO | {"actual_seq_lengths_kv_values": "9,9"}),
            "column 'Runtime actual_seq_lengths_kv_values' sums to 18, expected the 30 keys of slot 2 in 2 sequences"),
        (row(q_rope="20,4,32"), "slot 1 (q_rope) is 20,4,32, expected 20,4,64"),
        (row(mask=True) | {"Output Shapes": "20,4,128;20,4"}, "output slot 1 is 20,4, expected 4,20"),
        (row(20, 50, merge=True, prev_lse=""), "slot 14 (prev_lse) is blank, expected 4,20"),
        (row(kv_heads=3), "slot 2 (k_nope) is 20,3,128, expected T,N,128 with heads dividing 4"),
        (row(meta={"mask_type": "no_mask"}), "column 'Runtime mask_type' is 'no_mask' and slot 5 (mask) is set"),
    ],
)  # fmt: skip
def test_impossible_rows_are_refused_with_slot_and_value(cells, reason):
    assert make(cells) == Skip.invalid(reason)


def test_the_cost_counts_causal_pairs_and_the_merge():
    first, merge = (HOST.estimate_cost(make(MODES[name][0])) for name in ("first ring", "merge"))

    assert first.flops == 2 * 4 * 210 * 320
    assert merge.flops == 2 * 4 * 20 * 50 * 320 + 6 * 20 * 4 * 128


@given(st.lists(st.tuples(st.integers(1, 20), st.integers(0, 30)), min_size=1, max_size=3), st.booleans())
@settings(max_examples=12, deadline=None)
def test_random_rows_replay(sequences, merge):
    queries = [q for q, _ in sequences]
    keys = [q + more for q, more in sequences] if merge else queries
    meta = {"actual_seq_lengths_values": ",".join(map(str, np.cumsum(queries)))}
    meta["actual_seq_lengths_kv_values"] = ",".join(map(str, np.cumsum(keys)))

    assert replay(OPERATOR, plugin, row(sum(queries), sum(keys), 2, merge=merge, meta=meta)).wrong is None


class TestRingMlaPrefill(OperatorConformance):
    operator = OPERATOR
