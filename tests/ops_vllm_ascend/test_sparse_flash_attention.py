"""SparseFlashAttention: selections, lengths, refusals, values, references and random rows."""

from __future__ import annotations

import attrs
import numpy as np
import pytest

pytest.importorskip("torch")

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import perfcollect_ops_vllm_ascend.sparse_flash_attention as plugin
from perfcollect_core import Skip, example_row
from perfcollect_core.testing.conformance import OperatorConformance
from perfcollect_core.testing.replay import host_for, make_row, replay
from perfcollect_core.testing.stub_family import StubFamily
from perfcollect_ops_vllm_ascend.sparse_rows import valid_counts

pytestmark = pytest.mark.torch

OPERATOR = "SparseFlashAttention"
CPU = StubFamily().device(0)
HOST = host_for(OPERATOR, plugin)
SPEC = HOST.spec()
DTYPES = "DT_BF16;DT_BF16;DT_BF16;INT32;INT32;INT32;INT32;DT_BF16;DT_BF16"
KV = {"actual_seq_lengths_values": "1,3,6", "actual_seq_lengths_kv_values": "90,150,40"}


def row(tokens=6, heads=4, picks=48, sequences=3, pool="20,32,1", meta=(), out=None, **replace):
    slots = {
        "query": f"{tokens},{heads},512", "key": f"{pool},512", "value": f"{pool},512",
        "indices": f"{tokens},1,{picks}", "table": f"{sequences},6", "ql": str(sequences), "kl": str(sequences),
        "query_rope": f"{tokens},{heads},64", "key_rope": f"{pool},64",
    } | replace  # fmt: skip
    cells = example_row(";".join(slots.values()), DTYPES, slots["query"] if out is None else out, "DT_BF16")
    return {**cells, **{f"Runtime {name}": str(value) for name, value in dict(meta).items()}}


def make(cells):
    return HOST.make_case(SPEC, make_row(OPERATOR, cells))


LAYOUTS = {
    "recorded lengths": row(meta=KV),
    "shapes only": row(),
    "fewer keys than picks": row(picks=256, meta=KV),
    "local": row(meta=KV | {"sparse_indices_pattern": "local"}),
    "blocks of 16": row(picks=4, meta=KV | {"sparse_block_size": 16}),
    "no mask": row(meta=KV | {"sparse_mode": 0}),
    "valid count": row(meta=KV | {"sparse_indices_valid_count": 10}),
    "valid count of each query": row(meta=KV | {"sparse_indices_valid_count": "10,20,30,40,5,1"}),
    "one head": row(heads=1, meta=KV),
}


@pytest.mark.parametrize("cells", LAYOUTS.values(), ids=LAYOUTS)
def test_every_selection_replays(cells):
    done = replay(OPERATOR, plugin, cells)

    assert not isinstance(done, Skip), done
    assert done.wrong is None


def test_a_query_attends_to_its_listed_positions_as_plain_loops_do():
    done = replay(OPERATOR, plugin, LAYOUTS["blocks of 16"])
    q, qr, k, kr = (done.inputs[n].double().numpy() for n in ("query", "query_rope", "key", "key_rope"))
    table, indices = done.inputs["block_table"].tolist(), done.inputs["sparse_indices"].tolist()

    for token, (sequence, limit) in enumerate([(0, 90), (1, 149), (1, 150), (2, 38), (2, 39), (2, 40)]):
        seen = [b * 16 + n for b in indices[token][0] if b >= 0 for n in range(16) if b * 16 + n < limit]
        at = [(table[sequence][p // 32], p % 32) for p in seen]
        scores = np.array([q[token, 1] @ k[b, o, 0] + qr[token, 1] @ kr[b, o, 0] for b, o in at]) * 192**-0.5
        weights = np.exp(scores - scores.max())
        expected = sum(w * k[b, o, 0] for w, (b, o) in zip(weights / weights.sum(), at, strict=True))
        np.testing.assert_allclose(done.outputs[0][token, 1].double().numpy(), expected, rtol=3e-2, atol=3e-2)


def test_key_and_value_are_one_buffer():
    inputs = HOST.make_inputs(make(row(meta=KV)), CPU)

    assert inputs["value"] is inputs["key"]


@pytest.mark.parametrize("name", ["recorded lengths", "local", "fewer keys than picks", "blocks of 16"])
def test_picks_are_distinct_in_range_unsorted_and_end_in_minus_one(name):
    case = make(LAYOUTS[name])
    inputs = HOST.make_inputs(case, CPU)
    size, limits = case.params["sparse_block_size"], (90, 149, 150, 38, 39, 40)

    for line, limit in zip(inputs["sparse_indices"][:, 0].tolist(), limits, strict=True):
        valid = [entry for entry in line if entry >= 0]
        assert len(set(valid)) == len(valid) == min(len(line), -(-limit // size))
        assert line[len(valid) :] == [-1] * (len(line) - len(valid))
        assert max(valid) * size < limit
    assert inputs["sparse_indices"][1, 0].tolist() != sorted(inputs["sparse_indices"][1, 0].tolist())


def test_local_picks_hold_the_latest_positions():
    indices = HOST.make_inputs(make(LAYOUTS["local"]), CPU)["sparse_indices"]

    assert set(range(66, 90)) <= set(indices[0, 0].tolist())


def test_lengths_tables_and_seeds_are_what_the_row_says():
    case = make(row(meta=KV))
    inputs, other = HOST.make_inputs(case, CPU), HOST.make_inputs(attrs.evolve(case, seed=1), CPU)
    blocks = torch.cat([line[:n] for line, n in zip(inputs["block_table"], (3, 5, 2), strict=True)]).tolist()

    assert inputs["actual_seq_lengths_query"].tolist() == [1, 3, 6]
    assert inputs["actual_seq_lengths_kv"].tolist() == [90, 150, 40]
    assert len(set(blocks)) == 10
    assert not torch.equal(inputs["sparse_indices"], other["sparse_indices"])


def test_what_is_not_recorded_is_said():
    assert make(row()).assumptions == (
        "query_lengths=6 over 3 (not recorded: split evenly)",
        "kv_lengths=192 x 3 (not recorded: min(block table columns, blocks / sequences) x block size)",
        "sparse_block_size=1 (not recorded: single positions)",
        "sparse_indices_pattern=uniform (not recorded)",
        "scale=192^-0.5 (not recorded, timing-neutral)",
    )


@pytest.mark.parametrize(
    ("cells", "made"),
    [
        (row(heads=3), Skip.invalid("slot 0 (query) is 6,3,512, expected a power of two up to 128 heads")),
        (row(indices="5,1,48"), Skip.invalid("slot 3 (sparse_indices) is 5,1,48, expected 6,1,48")),
        (row(pool="20,32,2"), Skip.invalid("slot 1 (key) is 20,32,2,512, expected blocks of 16 to 1024 tokens of 1 x 512")),
        (row(value="21,32,1,512"), Skip.invalid("slot 2 (value) is 21,32,1,512, expected 20,32,1,512")),
        (row(key_rope="20,32,1,32"), Skip.invalid("slot 8 (key_rope) is 20,32,1,32, expected 20,32,1,64")),
        (row(query_rope=""), Skip.invalid("slot 7 (query_rope) is blank, expected a tensor")),
        (row(kl="4"), Skip.invalid("slots 4, 5 and 6 have [3, 4] sequences, expected one count")),
        (row(out=""), Skip.invalid("output slot 0 (attention_out) is blank, expected 6,4,512")),
        (row(meta=KV | {"actual_seq_lengths_kv_values": "90,150,200"}), Skip.invalid(
            "slot 1 (key) is 20,32,1,512: sequence 2 has 200 cached tokens, expected at most the 6 blocks of 32 that its "
            "block table row holds")),
        (row(meta={"sparse_block_size": 24}), Skip.invalid(
            "column 'Runtime sparse_block_size' is 24, expected a power of two up to 128 that divides the block size 32 of "
            "slot 1")),
        (row(meta={"sparse_indices_pattern": "first"}), Skip.invalid(
            "column 'Runtime sparse_indices_pattern' is 'first', expected uniform or local")),
        (row(meta={"sparse_indices_valid_count": 99}), Skip.invalid(
            "column 'Runtime sparse_indices_valid_count' has 1 counts up to 99, expected one, or one for each of 6 queries, "
            "of at most the 48 of slot 3")),
        (row(query="2,3,4,512"), Skip("slot 0 (query) is 2,3,4,512: layout BSND is not replayed, only TND")),
    ],
)  # fmt: skip
def test_impossible_rows_are_refused_with_slot_and_value(cells, made):
    assert make(cells) == made


def test_pools_are_no_part_of_the_work_and_selections_are():
    keys = [
        HOST.canonical_key(SPEC, make_row(OPERATOR, cells))
        for cells in (
            row(meta=KV),
            row(pool="99,32,1", table="3,9", meta=KV),
            LAYOUTS["local"],
            LAYOUTS["valid count"],
        )
    ]

    assert keys[0] == keys[1]
    assert len(set(keys)) == 3


def test_the_cost_counts_listed_positions_and_reads_shared_ones_once():
    cost = HOST.estimate_cost(make(row(meta=KV)))

    assert cost.flops == 2 * 4 * (48 * 3 + 38 + 39 + 40) * (576 + 512)
    assert cost.nbytes == (48 + 96 + 40) * 576 * 2 + 6 * 4 * (576 + 512) * 2 + 6 * 48 * 4


@pytest.mark.parametrize("cells", LAYOUTS.values(), ids=LAYOUTS)
def test_the_cost_in_closed_form_is_that_of_counting(cells):
    case = make(cells)

    assert (
        HOST.estimate_cost(case).flops == 2 * case.tensors["query"].shape[1] * sum(valid_counts(case)) * 1088
    )


def test_a_row_of_a_billion_queries_is_costed_at_once():
    case = make(row(tokens=2**30, sequences=1, pool="8388608,128,1", table="1,8388608"))

    assert HOST.estimate_cost(case).flops > 1e14


@given(st.lists(st.tuples(st.integers(1, 3), st.integers(0, 60)), min_size=1, max_size=3), st.integers(1, 70))
@settings(max_examples=12, deadline=None)
def test_random_rows_replay(sequences, picks):
    queries, keys = [q for q, _ in sequences], [q + more for q, more in sequences]
    meta = {
        "actual_seq_lengths_values": ",".join(str(sum(queries[: i + 1])) for i in range(len(queries))),
        "actual_seq_lengths_kv_values": ",".join(map(str, keys)),
    }
    pool = f"{sum(-(-kv // 16) for kv in keys)},16,1"

    assert replay(OPERATOR, plugin, row(sum(queries), 2, picks, len(queries), pool, meta)).wrong is None


class TestSparseFlashAttention(OperatorConformance):
    operator = OPERATOR
