"""LightningIndexer: layouts, lengths, refusals, values, picks as sets and random rows."""

from __future__ import annotations

import attrs
import numpy as np
import pytest

pytest.importorskip("torch")

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import perfcollect_ops_builtin.lightning_indexer as plugin
from perfcollect_core import Skip, example_row
from perfcollect_core.checking import difference
from perfcollect_core.testing.conformance import OperatorConformance
from perfcollect_core.testing.replay import host_for, make_row, replay
from perfcollect_core.testing.stub_family import StubFamily

pytestmark = pytest.mark.torch

OPERATOR = "LightningIndexer"
CPU = StubFamily().device(0)
HOST = host_for(OPERATOR, plugin)
SPEC = HOST.spec()


def row(inputs, out, meta=(), dtypes="DT_BF16;DT_BF16;DT_BF16;INT32;INT32;INT32", out_dtypes="INT32;DT_BF16"):
    return {
        **example_row(inputs, dtypes, out, out_dtypes),
        **{f"Runtime {name}": value for name, value in dict(meta).items()},
    }


PACKED = "12,8,128;40,32,1,128;12,8;4;4;4,16"
KV = {"actual_seq_lengths_values": "1,4,9,12", "actual_seq_lengths_kv_values": "200,77,130,64"}
LAYOUTS = {
    "paged, metadata": (row(PACKED, "12,1,64;12,1,64", KV), "TND", "PA_BSND"),
    "paged, shapes only": (row(PACKED, "12,1,64;0"), "TND", "PA_BSND"),
    "paged, fewer keys than picks": (row(PACKED, "12,1,512;0", KV), "TND", "PA_BSND"),
    "packed keys": (row("9,4,128;60,1,128;9,4;2;2", "9,1,16;0", {"actual_seq_lengths_values": "4,9",
        "actual_seq_lengths_kv_values": "35,60"}, "FLOAT16;FLOAT16;FLOAT16;INT32;INT32"), "TND", "TND"),
    "padded": (row("2,6,4,128;2,50,1,128;2,6,4", "2,6,1,16;0", {}, "DT_BF16;DT_BF16;DT_BF16"), "BSND", "BSND"),
    "padded queries, paged keys": (row("2,6,4,128;20,32,1,128;2,6,4;2;2;2,8", "2,6,1,16;0"), "BSND", "PA_BSND"),
    "no mask": (row(PACKED, "12,1,64;0", KV | {"sparse_mode": "0"}), "TND", "PA_BSND"),
}  # fmt: skip


@pytest.mark.parametrize(("cells", "query", "key"), LAYOUTS.values(), ids=LAYOUTS)
def test_every_layout_replays(cells, query, key):
    done = replay(OPERATOR, plugin, cells)

    assert not isinstance(done, Skip), done
    assert done.wrong is None
    assert (done.case.params["layout_query"], done.case.params["layout_key"]) == (query, key)


def test_picks_are_those_of_plain_loops():
    done = replay(OPERATOR, plugin, LAYOUTS["packed keys"][0])
    q, k, w = (done.inputs[name].double().numpy() for name in ("query", "key", "weights"))

    for token in range(9):
        first, limit = (0, 32 + token) if token < 4 else (35, 25 - 5 + token - 4 + 1)
        scores = [
            sum(w[token, h] * max(0.0, float(q[token, h] @ k[first + j, 0])) for h in range(4))
            for j in range(limit)
        ]
        best = set(np.argsort(scores)[-16:].tolist())
        # fp16 products may swap the last pick with the next one.
        assert len(best & set(done.outputs[0][token, 0].tolist())) >= 15


def test_picks_are_compared_as_sets():
    done = replay(OPERATOR, plugin, LAYOUTS["paged, metadata"][0])
    reference = HOST.reference(done.case, done.inputs, CPU)
    indices, values = done.outputs
    order = torch.randperm(64, generator=torch.Generator().manual_seed(1))

    shuffled = difference((indices[..., order], values[..., order]), reference)
    doubled = difference((indices[..., :1].expand_as(indices), values), reference)
    worst = indices.clone()
    worst[0, 0, 0] = min(set(range(200)) - set(indices[0, 0].tolist()))

    assert shuffled is None
    assert doubled == "output 0, query 0: 1 distinct positions, expected 64"
    assert difference((worst, values), reference) is not None


def test_queries_with_fewer_keys_than_picks_end_in_minus_one():
    done = replay(OPERATOR, plugin, LAYOUTS["paged, fewer keys than picks"][0])

    assert (done.outputs[0][0, 0] >= 0).sum() == 200
    assert done.outputs[0][0, 0, 200:].tolist() == [-1] * 312


def test_recorded_lengths_win_and_unrecorded_ones_are_said_to_be_assumed():
    recorded, assumed = (HOST.make_case(SPEC, make_row(OPERATOR, LAYOUTS[n][0])) for n in list(LAYOUTS)[:2])

    assert recorded.params["q_lengths"] == (1, 3, 5, 3)
    assert recorded.params["kv_lengths"] == (200, 77, 130, 64)
    assert recorded.assumptions == ("sparse_mode=3 (not recorded: causal)",)
    assert assumed.params["kv_lengths"] == (320,) * 4
    assert assumed.assumptions == (
        "query_lengths=12 over 4 (not recorded: split evenly)",
        "kv_lengths=320 x 4 (not recorded: min(block table columns, blocks / sequences) x block size)",
        "sparse_mode=3 (not recorded: causal)",
    )


@pytest.mark.parametrize(
    ("cells", "reason"),
    [
        (row("12,8,128;40,32,1,128;12,9;4;4;4,16", "12,1,64;0"), "slot 2 (weights) is 12,9, expected 12,8"),
        (row("12,8,96;40,32,1,96;12,8;4;4;4,16", "12,1,64;0"), "slot 0 (query) is 12,8,96, expected 1 to 64 heads of 128 last"),
        (row("12,65,128;40,32,1,128;12,65;4;4;4,16", "12,1,64;0"), "slot 0 (query) is 12,65,128, expected 1 to 64 heads of 128 last"),
        (row("12,8,128;40,32,2,128;12,8;4;4;4,16", "12,1,64;0"), "slot 1 (key) is 40,32,2,128, expected one head of 128 last"),
        (row("12,8,128;40,30,1,128;12,8;4;4;4,16", "12,1,64;0"), "slot 1 (key) is 40,30,1,128, expected blocks of 16 to 1024 tokens (a multiple of 16)"),
        (row(PACKED, "12,1,2049;0"), "output slot 0 picks 2049 keys, expected 1 to 2048 or a multiple of 1024 up to 8192"),
        (row(PACKED, ""), "output slot 0 (sparse_indices) is blank, expected 12,1 and the number of keys to pick"),
        (row(PACKED, "12,1,64;0", KV | {"topk": "32"}), "column 'Runtime topk' is 32, expected 64 as in the slots"),
        (row(PACKED, "12,1,64;0", KV | {"sparse_mode": "2"}), "column 'Runtime sparse_mode' is 2, expected 0 or 3"),
        (row(PACKED, "12,1,64;0", KV | {"actual_seq_lengths_kv_values": "200,77,130,2"}),
         "slot 1 (key) is 40,32,1,128: sequence 3 has 2 cached tokens for 3 query tokens, expected as many or more"),
        (row("12,8,128;40,32,1,128;12,8;4;5;4,16", "12,1,64;0"), "slots 3, 4 and 5 have [4, 5] sequences, expected one count"),
    ],
)  # fmt: skip
def test_impossible_rows_are_refused_with_slot_and_value(cells, reason):
    assert HOST.make_case(SPEC, make_row(OPERATOR, cells)) == Skip.invalid(reason)


def test_values_are_shuffled_pages_running_sums_and_scores_without_ties():
    case = HOST.make_case(SPEC, make_row(OPERATOR, LAYOUTS["paged, metadata"][0]))
    inputs = HOST.make_inputs(case, CPU)
    blocks = torch.cat(
        [line[:n] for line, n in zip(inputs["block_table"], (7, 3, 5, 2), strict=True)]
    ).tolist()
    other = HOST.make_inputs(attrs.evolve(case, seed=case.seed + 1), CPU)

    assert len(set(blocks)) == 17
    assert blocks != sorted(blocks)
    assert inputs["actual_seq_lengths_query"].tolist() == [1, 4, 9, 12]
    assert inputs["actual_seq_lengths_key"].tolist() == [200, 77, 130, 64]
    assert inputs["weights"].float().std() == pytest.approx((8 * 128) ** -0.5, rel=0.3)
    assert not torch.equal(inputs["key"], other["key"])


def test_pools_of_other_sizes_are_equal_work_and_other_picks_are_not():
    keys = [
        HOST.canonical_key(SPEC, make_row(OPERATOR, row(inputs, out, KV)))
        for inputs, out in (
            (PACKED, "12,1,64;0"),
            ("12,8,128;900,32,1,128;12,8;4;4;4,99", "12,1,64;0"),
            (PACKED, "12,1,32;0"),
        )
    ]

    assert keys[0] == keys[1]
    assert keys[0] != keys[2]


@given(
    st.lists(st.tuples(st.integers(1, 6), st.integers(0, 70)), min_size=1, max_size=4),
    st.sampled_from([1, 5, 64]),
)
@settings(max_examples=15, deadline=None)
def test_random_paged_rows_replay(sequences, topk):
    queries, keys = [q for q, _ in sequences], [q + more for q, more in sequences]
    tokens, count, blocks = sum(queries), len(queries), sum(-(-kv // 16) for kv in keys)
    meta = {
        "actual_seq_lengths_values": ",".join(str(sum(queries[: i + 1])) for i in range(count)),
        "actual_seq_lengths_kv_values": ",".join(map(str, keys)),
    }
    cells = row(
        f"{tokens},2,128;{blocks},16,1,128;{tokens},2;{count};{count};{count},5", f"{tokens},1,{topk};0", meta
    )

    assert replay(OPERATOR, plugin, cells).wrong is None


class TestLightningIndexer(OperatorConformance):
    operator = OPERATOR
