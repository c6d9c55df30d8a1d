"""FusedInferAttentionScore: layouts, caches, lengths, masks, refusals, values, references and random rows."""

from __future__ import annotations

import attrs
import numpy as np
import pytest

pytest.importorskip("torch")

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import perfcollect_ops_builtin.fused_infer_attention as plugin
from perfcollect_core import Case, Skip
from perfcollect_core.testing.conformance import OperatorConformance
from perfcollect_core.testing.replay import host_for, make_row, replay
from perfcollect_core.testing.stub_family import StubFamily
from perfcollect_ops_builtin.attention_ascend import call_arguments

pytestmark = pytest.mark.torch

OPERATOR = "FusedInferAttentionScore"
CPU = StubFamily().device(0)
HOST = host_for(OPERATOR, plugin)
SPEC = HOST.spec()
MASK = ((2048, 2048), "INT8")
NAMES = {
    "q": 0, "k": 1, "v": 2, "pse": 3, "mask": 4, "ql": 5, "kl": 6, "table": 14, "pad": 15, "ks": 17, "ko": 18,
    "vs": 19, "vo": 20, "kp": 21, "vp": 22, "qr": 24, "kr": 25, "sink": 28,
}  # fmt: skip


def row(out, lse=None, meta=(), width=31, dtype="DT_BF16", **slots):
    """Return the cells of a row: a slot is a shape of *dtype*, or (shape, dtype)."""
    shapes, dtypes = [""] * width, ["DT_UNDEFINED"] * width
    for name, value in slots.items():
        shape, word = value if isinstance(value[0], tuple) else (value, dtype)
        if name in ("ql", "kl"):
            word = "INT64"
        if name == "table":
            word = "INT32"
        shapes[NAMES[name]], dtypes[NAMES[name]] = ",".join(map(str, shape)), word
    outputs = ",".join(map(str, out)) + (";" + ",".join(map(str, lse)) if lse else ";")
    return {
        "Input Shapes": ";".join(shapes),
        "Input Data Types": ";".join(dtypes),
        "Input Formats": ";".join("ND" if shape else "NULL" for shape in shapes),
        "Output Shapes": outputs,
        "Output Data Types": f"{dtype};FLOAT",
        "Output Formats": "ND;ND",
        **{f"Runtime {name}": str(value) for name, value in dict(meta).items()},
    }


def make(cells) -> Case | Skip:
    return HOST.make_case(SPEC, make_row(OPERATOR, cells))


PAGED = {"q": (4, 4, 64), "k": (16, 32, 128), "v": (16, 32, 128), "ql": (4,), "kl": (4,), "table": (4, 8)}
KV = {"actual_seq_lengths_kv_values": "20,64,33,90"}
LATENT = {"k": (16, 1, 32, 512), "v": (16, 1, 32, 512), "kr": (16, 1, 32, 64), "kl": (3,), "table": (3, 8)}
SCALE = ((1, 128), "DT_BF16")
INT8 = {"k": ((16, 32, 128), "INT8"), "v": ((16, 32, 128), "INT8"), "ks": SCALE, "vs": SCALE}

LAYOUTS = {
    "dense prefill": (row((40, 4, 64), q=(40, 4, 64), k=(40, 2, 64), v=(40, 2, 64), mask=MASK, ql=(2,), kl=(2,),
        meta={"actual_seq_lengths_values": "16,40"}), "TND", ""),
    "dense chunk": (row((12, 4, 64), q=(12, 4, 64), k=(60, 4, 64), v=(60, 4, 64), mask=MASK, ql=(2,), kl=(2,),
        meta={"actual_seq_lengths_values": "5,12", "actual_seq_lengths_kv_values": "25,60"}), "TND", ""),
    "paged 3-D decode": (row((4, 4, 64), mask=MASK, meta=KV, **PAGED), "TND", "BnBsH"),
    "paged 4-D decode": (row((4, 4, 64), mask=MASK, meta=KV, **PAGED | {"k": (16, 2, 32, 64), "v": (16, 2, 32, 64)}),
        "TND", "BnNBsD"),
    "paged token-major 4-D": (row((4, 4, 64), mask=MASK, meta=KV, **PAGED | {"k": (16, 48, 2, 64), "v": (16, 48, 2, 64)}),
        "TND", "BnBsND"),
    "prefix hit": (row((30, 4, 64), q=(30, 4, 64), k=(16, 32, 128), v=(16, 32, 128), mask=MASK, ql=(2,), kl=(2,),
        table=(2, 8), meta={"actual_seq_lengths_values": "10,30", "actual_seq_lengths_kv_values": "70,45"}),
        "TND", "BnBsH"),
    "sliding window": (row((4, 1, 256), meta=KV | {"num_heads": 4, "pre_tokens": 16},
        **{n: s for n, s in PAGED.items() if n != "ql"} | {"q": (4, 1, 256)}), "BSH", "BnBsH"),
    "int8 cache": (row((4, 4, 1, 64), meta=KV, **PAGED | INT8 | {"q": (4, 4, 1, 64), "ko": SCALE, "vo": SCALE}),
        "BNSD", "BnBsH"),
    "BSND": (row((2, 12, 4, 64), q=(2, 12, 4, 64), k=(2, 12, 2, 64), v=(2, 12, 2, 64), mask=MASK), "BSND", ""),
    "BNSD": (row((2, 4, 12, 64), q=(2, 4, 12, 64), k=(2, 2, 20, 64), v=(2, 2, 20, 64), mask=MASK), "BNSD", ""),
    "BSH": (row((2, 12, 256), q=(2, 12, 256), k=(2, 20, 128), v=(2, 20, 128), mask=MASK, meta={"num_heads": 4}),
        "BSH", ""),
    "full-size mask": (row((2, 4, 12, 64), q=(2, 4, 12, 64), k=(2, 2, 20, 64), v=(2, 2, 20, 64),
        mask=((2, 1, 12, 20), "BOOL")), "BNSD", ""),
    "MLA decode": (row((4, 3, 1, 512), q=(3, 4, 1, 512), qr=(3, 4, 1, 64),
        meta={"actual_seq_lengths_kv_values": "40,100,64"}, **LATENT), "BNSD_NBSD", "BnNBsD"),
    "MLA decode, NZ cache": (row((4, 3, 1, 512), q=(3, 1, 4, 512), qr=(3, 1, 4, 64),
        meta={"actual_seq_lengths_kv_values": "40,100,64"},
        **LATENT | {"k": (16, 1, 32, 32, 16), "v": (16, 1, 32, 32, 16), "kr": (16, 1, 4, 32, 16)}), "BSND_NBSD", "NZ"),
    "MLA speculative decode": (row((4, 6, 512), q=(6, 4, 512), qr=(6, 4, 64), mask=MASK, ql=(3,),
        meta={"actual_seq_lengths_values": "2,4,6", "actual_seq_lengths_kv_values": "40,100,64"}, **LATENT),
        "TND_NTD", "BnNBsD"),
    "MLA prefill with lse": (row((24, 4, 128), (24, 4, 1), q=(24, 4, 128), k=(24, 4, 128), v=(24, 4, 128),
        qr=(24, 4, 64), kr=(24, 4, 64), mask=MASK, ql=(1,), kl=(1,)), "TND", ""),
    "MLA chunk without mask": (row((8, 4, 128), (8, 4, 1), q=(8, 4, 128), k=(24, 4, 128), v=(24, 4, 128),
        qr=(8, 4, 64), kr=(24, 4, 64), ql=(1,), kl=(1,)), "TND", ""),
    "B07": (row((6, 16, 1, 512), (6, 16, 1, 1), q=(6, 16, 1, 512), k=(48, 1, 128, 512), v=(48, 1, 128, 512), ql=(6,),
        kl=(6,), table=(6, 384), qr=(6, 16, 1, 64), kr=(48, 1, 128, 64)), "BNSD", "BnNBsD"),
    "shared prefix": (row((2, 4, 6, 64), (2, 4, 6, 1), q=(2, 4, 6, 64), k=(2, 2, 20, 64), v=(2, 2, 20, 64), mask=MASK,
        kp=(1, 2, 10, 64), vp=(1, 2, 10, 64)), "BNSD", ""),
    "sink": (row((4, 4, 64), mask=MASK, meta=KV, sink=(4,), **PAGED), "TND", "BnBsH"),
    "FLOAT16": (row((40, 4, 64), q=(40, 4, 64), k=(40, 2, 64), v=(40, 2, 64), mask=MASK, ql=(1,), kl=(1,),
        dtype="FLOAT16"), "TND", ""),
    "left-up causal": (row((8, 4, 64), q=(8, 4, 64), k=(20, 4, 64), v=(20, 4, 64), mask=MASK, ql=(1,), kl=(1,),
        meta={"sparse_mode": 2}), "TND", ""),
    "band": (row((8, 4, 64), q=(8, 4, 64), k=(20, 4, 64), v=(20, 4, 64), mask=MASK, ql=(1,), kl=(1,),
        meta={"sparse_mode": 4, "pre_tokens": 5, "next_tokens": 1}), "TND", ""),
}  # fmt: skip


@pytest.mark.parametrize(("cells", "layout", "cache"), LAYOUTS.values(), ids=LAYOUTS)
def test_every_layout_and_cache_form_replays(cells, layout, cache):
    done = replay(OPERATOR, plugin, cells)

    assert not isinstance(done, Skip), done
    assert done.wrong is None
    assert (done.case.params["layout"], done.case.params["cache"]) == (layout, cache)


def test_a_call_agrees_with_plain_loops_over_a_paged_cache():
    cells = row((3, 2, 8), mask=MASK, ql=(2,), kl=(2,), table=(2, 3), q=(3, 2, 8), k=(6, 16, 8), v=(6, 16, 8),
        dtype="FLOAT", meta={"actual_seq_lengths_values": "2,3", "actual_seq_lengths_kv_values": "20,33"})  # fmt: skip

    done = replay(OPERATOR, plugin, cells)

    q, k, v, table = (done.inputs[name].numpy() for name in ("query", "key", "value", "block_table"))
    expected = np.zeros((3, 2, 8))
    for token, (sequence, limit) in enumerate([(0, 19), (0, 20), (1, 33)]):
        for head in range(2):
            where = [(table[sequence][j // 16], j % 16) for j in range(limit)]
            scores = np.array([np.dot(q[token, head], k[block, place]) for block, place in where]) * 8**-0.5
            weights = np.exp(scores) / np.exp(scores).sum()
            expected[token, head] = sum(w * v[at] for w, at in zip(weights, where, strict=True))
    np.testing.assert_allclose(done.outputs[0].numpy(), expected, rtol=1e-4, atol=1e-5)
    assert done.wrong is None


def test_log_sum_exp_of_a_packed_call_is_that_of_plain_loops():
    done = replay(OPERATOR, plugin, LAYOUTS["MLA prefill with lse"][0])

    q = np.concatenate([done.inputs[n].double().numpy() for n in ("query", "query_rope")], -1)
    k = np.concatenate([done.inputs[n].double().numpy() for n in ("key", "key_rope")], -1)
    expected = [
        [np.log(sum(np.exp(q[i, n] @ k[j, n] * 192**-0.5) for j in range(i + 1))) for n in range(4)]
        for i in range(24)
    ]
    np.testing.assert_allclose(done.outputs[1][:, :, 0].numpy(), expected, atol=2e-3)


def test_a_sink_takes_weight_from_every_key():
    done = replay(OPERATOR, plugin, LAYOUTS["sink"][0])
    case = done.case
    tensors = {name: tensor for name, tensor in done.inputs.tensors.items() if name != "learnable_sink"}
    without = HOST.bind_kernel(case, attrs.evolve(done.inputs, tensors=tensors), CPU)

    plain = without.outputs(without.call())[0]

    assert float(done.outputs[0].float().norm()) < float(plain.float().norm())


# -- parameters and assumptions


def test_metadata_columns_win_over_the_shapes():
    cells = row((4, 4, 64), mask=MASK, meta=KV | {"block_size": 32, "num_key_value_heads": 2, "sparse_mode": 3},
        **PAGED)  # fmt: skip

    case = make(cells)

    assert case.params["kv_lengths"] == (20, 64, 33, 90)
    assert case.params["kv_heads"] == 2
    assert case.assumptions == ("query_lengths=1 x 4 (as many sequences as query tokens: decode)",)


@pytest.mark.parametrize(
    ("meta", "lengths", "assumption"),
    [
        ({"avg_seq_len": "64.000000"}, None, "around the recorded average 64"),
        ({"block_table_valid_blocks": "1,2,3,2"}, (32, 64, 96, 64), "valid blocks, each one full"),
        ({}, (128, 128, 128, 128), "not recorded: min(block table columns, blocks / sequences) x block size"),
    ],
)
def test_cached_lengths_come_from_the_best_record_and_never_from_one_block(meta, lengths, assumption):
    case = make(row((4, 4, 64), mask=MASK, meta=meta, **PAGED))

    found = case.params["kv_lengths"]
    assert lengths is None or found == lengths
    assert sum(found) >= 4 * 48
    assert any(assumption in text for text in case.assumptions)


def test_key_heads_of_a_paged_cache_are_exact():
    case = make(row((4, 4, 64), mask=MASK, meta=KV, **PAGED | {"k": (16, 32, 64), "v": (16, 32, 64)}))

    assert case.params["kv_heads"] == 1


@pytest.mark.parametrize(
    ("name", "scale"), [("MLA decode", 192**-0.5), ("MLA prefill with lse", 192**-0.5), ("BSND", 0.125)]
)
def test_the_scale_is_that_of_the_trained_heads(name, scale):
    assert make(LAYOUTS[name][0]).params["scale"] == pytest.approx(scale)


def test_absorbed_attention_reads_one_cache_for_key_and_value():
    done = replay(OPERATOR, plugin, LAYOUTS["MLA decode"][0])

    assert "value" not in done.case.tensors
    assert done.inputs["value"] is done.inputs["key"]
    assert "value=key (absorbed MLA: one latent cache)" in done.case.assumptions


def test_two_layouts_that_fit_are_told_apart_and_the_choice_is_recorded():
    case = make(LAYOUTS["B07"][0])

    assert case.params["layout"] == "BNSD"
    assert "layout=BNSD (BNSD and BSND fit the shapes)" in case.assumptions


COLLECTOR = {
    "Input Shapes": "256,8,128;256,4,128;256,4,128",
    "Input Data Types": "DT_BF16;DT_BF16;DT_BF16",
    "Input Formats": "ND;ND;ND",
    "Output Shapes": "256,8,128",
    "Output Data Types": "DT_BF16",
    "Output Formats": "ND",
    "Op Type": "attention_context",
    "Batch": "2",
    "Seq Len": "128",
    "Num Heads": "8",
    "Num KV Heads": "4",
    "Head Size": "128",
}


def test_three_recorded_slots_with_collector_columns_are_causal_context_attention():
    done = replay(OPERATOR, plugin, COLLECTOR)

    assert done.wrong is None
    assert done.case.params["q_lengths"] == (128, 128)
    assert done.case.assumptions == (
        "sparse_mode=3 (three recorded slots: causal context attention)",
        "atten_mask=2048,2048 (sparse mode 3 needs it, slot 4 records none)",
    )


def test_no_key_heads_in_a_collector_row_mean_as_many_as_query_heads():
    cells = COLLECTOR | {"Input Shapes": "256,8,128;256,8,128;256,8,128", "Num KV Heads": "0"}

    assert make(cells).params["kv_heads"] == 8


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"Batch": "3"}, "slot 0 (query) holds 256 tokens, expected 3 x 128 as recorded"),
        (
            {"Num Heads": "16"},
            "slot 0 (query) holds 256,8,128: 8 heads in layout TND, expected the recorded 16",
        ),
        ({"Num KV Heads": "8"}, "slot 1 (key) holds 256,4,128: 4 key heads, expected the recorded 8"),
        ({"Head Size": "64"}, "slot 0 (query) holds 256,8,128: head size 128, expected the recorded 64"),
        ({"Num Heads": "many"}, "column 'Num Heads' is 'many', expected a number"),
    ],
)
def test_collector_columns_that_contradict_the_slots_are_reported(change, reason):
    assert make(COLLECTOR | change) == Skip.invalid(reason)


# -- refusals

DENSE = {"q": (40, 4, 64), "k": (40, 2, 64), "v": (40, 2, 64), "mask": MASK, "ql": (2,), "kl": (2,)}

REFUSED = {
    "kv heads": (row((40, 4, 64), **DENSE | {"k": (40, 3, 64), "v": (40, 3, 64)}),
        "slot 1 (key) holds 40,3,64: 3 key heads, expected a divisor of the 4 heads of slot 0 (query)"),
    "head size": (row((40, 4, 64), **DENSE | {"k": (40, 2, 32), "v": (40, 2, 64)}),
        "slot 1 (key) holds 40,2,32, expected the head size 64 of slot 0 (query) last"),
    "recorded kv heads": (row((40, 4, 64), meta={"num_key_value_heads": 4}, **DENSE),
        "slot 1 (key) holds 40,2,64: 2 key heads, expected the recorded 4"),
    "pool": (row((4, 4, 64), mask=MASK, meta={"actual_seq_lengths_kv_values": "200,200,200,200"}, **PAGED),
        "slot 1 (key) holds 16,32,128: 28 cache blocks are needed, expected at most the 16 of the pool"),
    "block size": (row((4, 4, 64), mask=MASK, meta=KV | {"block_size": 64}, **PAGED),
        "slot 1 (key) holds 16,32,128: blocks of 32, expected the recorded block size 64"),
    "odd pages": (row((4, 4, 64), mask=MASK, meta=KV, **PAGED | {"k": (16, 20, 128), "v": (16, 20, 128)}),
        "slot 1 (key) holds 16,20,128, expected pages of 16 to 1024 tokens (a multiple of 16) with heads of 64 whose "
        "count divides 4"),
    "no output": (row((40, 4, 64), **DENSE) | {"Output Shapes": ""},
        "output slot 0 (attention_out) is blank, expected its shape"),
    "blank value": (row((40, 4, 64), **{n: s for n, s in DENSE.items() if n != "v"}),
        "slot 2 (value) is blank, expected a tensor"),
    "empty key": (row((40, 4, 64), **DENSE | {"k": (0, 2, 64)}), "slot 1 has shape (0, 2, 64) with no element"),
    "sequences": (row((40, 4, 64), **DENSE | {"kl": (3,)}), "sequences disagree: slot 5 has 2, slot 6 has 3"),
    "absurd batch": (row((2**40, 4, 64), **DENSE | {"q": (2**40, 4, 64), "ql": (2**40,), "kl": (2**40,)}),
        "slot 5 has 1099511627776 sequences, expected at most 65536"),
    "fewer keys": (row((40, 4, 64), **DENSE | {"k": (30, 2, 64), "v": (30, 2, 64)}),
        "sequence 0 has 15 keys for 20 causal queries, expected as many or more"),
    "shifted table": (row((6, 16, 1, 512), q=(6, 16, 1, 512), k=(905, 1, 128, 512), v=(905, 1, 128, 512), ql=(6,),
        kl=(6,), pad=((6, 384), "INT32"), qr=(6, 16, 1, 64), kr=(905, 1, 128, 64)),
        "slot 15 (query_padding_size) holds 6,384, the block table that belongs in slot 14: the recorded slots are "
        "shifted by one"),
    "long NBSD": (row((4, 2, 32, 512), q=(2, 4, 32, 512), qr=(2, 4, 32, 64),
        **LATENT | {"table": (2, 8), "kl": (2,)}),
        "slot 0 (query) holds 2,4,32,512: 32 query tokens a sequence, expected at most 16 for layout BNSD_NBSD"),
    "layout word": (row((40, 4, 64), meta={"input_layout": "SBH"}, **DENSE),
        "column 'Runtime input_layout' is 'SBH', expected one of BNSD, BNSD_NBSD, BSH, BSND, BSND_NBSD, TND, TND_NTD"),
    "mask shape": (row((40, 4, 64), meta={"sparse_mode": 3}, **DENSE | {"mask": ((40, 40), "INT8")}),
        "slot 4 (atten_mask) holds 40,40, expected 2048,2048 with sparse mode 3"),
    "mask of other heads": (row((2, 4, 12, 64), q=(2, 4, 12, 64), k=(2, 2, 20, 64), v=(2, 2, 20, 64),
        mask=((2, 4, 12, 20), "BOOL")),
        "slot 4 (atten_mask) holds 2,4,12,20, expected 2048,2048 or the 12 queries by the keys of each sequence"),
    "rope without partner": (row((24, 4, 128), q=(24, 4, 128), k=(24, 4, 128), v=(24, 4, 128), qr=(24, 4, 64), ql=(1,)),
        "slot 25 (key_rope) is blank beside slot 24 (query_rope) and key (24, 4, 128)"),
    "int8 without scale": (row((4, 4, 64), mask=MASK, meta=KV,
        **PAGED | {"k": ((16, 32, 128), "INT8"), "v": ((16, 32, 128), "INT8")}),
        "slot 17 (key_antiquant_scale) holds 0 values, expected 1 or 128 for an int8 cache"),
    "dtype": (row((40, 4, 64), **DENSE | {"k": ((40, 2, 64), "FLOAT")}),
        "slot 1 (key) has dtype 'FLOAT', expected 'BF16 or INT8'"),
    "letters": (row((40, 4, 64), **DENSE) | {"Input Shapes": "40,4,x"},
        "column 'Input Shapes': shape '40,4,x' has dimension 'x', expected a non-negative integer"),
}  # fmt: skip


@pytest.mark.parametrize(("cells", "reason"), REFUSED.values(), ids=REFUSED)
def test_impossible_rows_are_refused_with_slot_and_value(cells, reason):
    assert make(cells) == Skip.invalid(reason)


@pytest.mark.parametrize(
    ("cells", "reason"),
    [
        (
            row((2, 12, 256), q=(2, 12, 256), k=(2, 20, 128), v=(2, 20, 128)),
            "slot 0 (query) holds 2,12,256: neither lengths (slots 5, 6) nor 'Runtime num_heads' tell TND from BSH",
        ),
        (
            row(
                (4, 16, 64),
                meta=KV,
                **PAGED | {"q": (4, 16, 64), "k": (16, 16, 16, 64), "v": (16, 16, 16, 64)},
            ),
            "slot 1 (key) holds 16,16,16,64: both axes can be the block size, set 'Runtime block_size'",
        ),
        (
            row((40, 4, 64), pse=(1, 4, 40, 40), **DENSE),
            "slot 3 (pse_shift) holds 1,4,40,40: that variant is not replayed",
        ),
    ],
)
def test_rows_that_say_too_little_or_want_another_variant_are_skipped_in_words(cells, reason):
    assert make(cells) == Skip(reason)


def test_a_shifted_block_table_is_recognised_though_its_dtype_did_not_move():
    cells = REFUSED["shifted table"][0]
    words = cells["Input Data Types"].split(";")
    words[14], words[15] = "INT32", "DT_UNDEFINED"

    made = make(cells | {"Input Data Types": ";".join(words)})

    assert made == Skip.invalid(REFUSED["shifted table"][1])


def test_slots_may_be_trimmed_blank_or_spelled_in_any_way():
    full = LAYOUTS["paged 3-D decode"][0]
    trimmed = full | {name: ";".join(full[name].split(";")[:15]) for name in full if name.startswith("Input")}
    shapes = full["Input Shapes"].split(";")
    odd = [s or ("N/A" if i % 2 else "()") for i, s in enumerate(shapes)]

    keys = [
        HOST.canonical_key(SPEC, make_row(OPERATOR, c))
        for c in (full, trimmed, full | {"Input Shapes": ";".join(odd)})
    ]

    assert keys[0] == keys[1] == keys[2]
    assert keys[0][0] == OPERATOR


def test_equal_work_in_pools_of_other_sizes_has_one_key_and_other_lengths_another():
    wide = PAGED | {"k": (900, 32, 128), "v": (900, 32, 128), "table": (4, 100)}
    other = {"actual_seq_lengths_kv_values": "20,64,33,91"}

    keys = [
        HOST.canonical_key(SPEC, make_row(OPERATOR, cells))
        for cells in (
            row((4, 4, 64), mask=MASK, meta=KV, **PAGED),
            row((4, 4, 64), mask=MASK, meta=KV, **wide),
            row((4, 4, 64), mask=MASK, meta=other, **PAGED),
        )
    ]

    assert keys[0] == keys[1]
    assert keys[0] != keys[2]


def test_profile_columns_are_the_sixteen_of_the_parser_five_of_them_filled():
    filled = {
        c.name: (c.slot, c.source, c.value) for c in SPEC.profile_columns if c.slot or c.source or c.value
    }

    assert len(SPEC.profile_columns) == 16
    assert len(SPEC.inputs) == 31
    assert filled == {
        "Runtime source_profile": (None, "directory", ""),
        "Runtime actual_seq_lengths_shape": (5, "", ""),
        "Runtime actual_seq_lengths_kv_shape": (6, "", ""),
        "Runtime block_table_shape": (14, "", ""),
        "Runtime metadata_completeness": (None, "", "profile_shapes_only"),
    }


# -- values and work


def test_values_are_a_shuffled_cache_a_causal_mask_and_live_tensors():
    case = make(LAYOUTS["paged 3-D decode"][0])
    again, other = (HOST.make_inputs(attrs.evolve(case, seed=s), CPU) for s in (case.seed, case.seed + 1))
    inputs = HOST.make_inputs(case, CPU)
    used = [-(-kv // 32) for kv in case.params["kv_lengths"]]
    blocks = torch.cat(
        [line[:count] for line, count in zip(inputs["block_table"], used, strict=True)]
    ).tolist()

    assert len(set(blocks)) == len(blocks)
    assert all(0 <= block < 16 for block in blocks)
    assert blocks != sorted(blocks)
    assert torch.equal(inputs["atten_mask"], torch.ones(2048, 2048).triu(1).to(torch.int8))
    assert all(0.8 < float(inputs[name].float().std()) < 1.2 for name in ("query", "key", "value"))
    assert torch.equal(inputs["key"], again["key"])
    assert not torch.equal(inputs["key"], other["key"])


def test_an_int8_cache_is_full_range_and_its_scales_bring_it_to_order_one():
    inputs = HOST.make_inputs(make(LAYOUTS["int8 cache"][0]), CPU)

    assert int(inputs["key"].min()) < -120
    assert (
        0.8 < float((inputs["key"].float().view(-1, 128) * inputs["key_antiquant_scale"].float()).std()) < 1.2
    )


def test_the_cost_counts_what_is_visible_and_one_read_of_the_cache():
    prefill = make(
        row((64, 8, 128), q=(64, 8, 128), k=(64, 2, 128), v=(64, 2, 128), mask=MASK, ql=(1,), kl=(1,))
    )
    latent = make(LAYOUTS["MLA decode"][0])

    assert HOST.estimate_cost(prefill).flops == 2 * 8 * (64 * 65 // 2) * 256
    assert HOST.estimate_cost(latent).flops == 2 * 4 * 204 * (512 + 64 + 512)
    assert HOST.estimate_cost(latent).nbytes == 3 * 4 * (576 + 512) * 2 + 204 * 576 * 2 + 4 * (2 + 4 + 2)


@given(st.data())
@settings(max_examples=15, deadline=None)
def test_random_paged_rows_replay(data):
    kv_heads, group = data.draw(st.sampled_from([1, 2])), data.draw(st.sampled_from([1, 3]))
    queries = data.draw(st.lists(st.integers(1, 5), min_size=1, max_size=4))
    keys = [q + data.draw(st.integers(0, 60)) for q in queries]
    need, tokens, count = sum(-(-kv // 16) for kv in keys), sum(queries), len(queries)
    cache = data.draw(st.sampled_from([(need + 3, 16, kv_heads * 32), (need, kv_heads, 16, 32)]))
    ends = [sum(queries[: i + 1]) for i in range(count)]
    cells = row((tokens, kv_heads * group, 32), q=(tokens, kv_heads * group, 32), k=cache, v=cache, mask=MASK,
        ql=(count,), kl=(count,), table=(count, 5),
        meta={"actual_seq_lengths_values": ",".join(map(str, ends)), "block_size": 16,
              "actual_seq_lengths_kv_values": ",".join(map(str, keys))})  # fmt: skip

    done = replay(OPERATOR, plugin, cells)

    assert not isinstance(done, Skip), done
    assert done.wrong is None


@given(st.integers(1, 3), st.integers(1, 24), st.integers(0, 24), st.sampled_from(["BNSD", "BSND", "BSH"]))
@settings(max_examples=15, deadline=None)
def test_random_padded_rows_replay(batch, queries, more, layout):
    def shape(tokens, heads):
        return {
            "BNSD": (batch, heads, tokens, 32),
            "BSND": (batch, tokens, heads, 32),
            "BSH": (batch, tokens, heads * 32),
        }[layout]

    cells = row(shape(queries, 4), q=shape(queries, 4), k=shape(queries + more, 2), v=shape(queries + more, 2),
        mask=MASK, meta={"num_heads": 4, "input_layout": layout})  # fmt: skip

    assert replay(OPERATOR, plugin, cells).wrong is None


# -- what Ascend is called with


def _arguments(name):
    done = replay(OPERATOR, plugin, LAYOUTS[name][0])
    return call_arguments(plugin.call_of(done.case), done.inputs)


def test_packed_queries_are_passed_as_running_sums_and_cached_keys_as_lengths():
    arguments = _arguments("prefix hit")

    assert arguments["actual_seq_lengths"] == [10, 30]
    assert arguments["actual_seq_lengths_kv"] == [70, 45]
    assert (arguments["input_layout"], arguments["block_size"], arguments["sparse_mode"]) == ("TND", 32, 3)
    assert (arguments["num_heads"], arguments["num_key_value_heads"]) == (4, 2)


def test_packed_keys_without_pages_are_passed_as_running_sums():
    assert _arguments("dense chunk")["actual_seq_lengths_kv"] == [25, 60]


def test_lengths_nobody_needs_are_passed_only_where_the_row_was_given_them():
    assert "actual_seq_lengths" not in _arguments("BSND")
    assert "actual_seq_lengths_kv" not in _arguments("BSND")
    assert _arguments("B07")["actual_seq_lengths"] == [1] * 6


def test_a_sliding_window_is_passed_as_tokens_before():
    arguments = _arguments("sliding window")

    assert arguments["pre_tokens"] == 16
    assert "next_tokens" not in arguments


class TestFusedInferAttentionScore(OperatorConformance):
    operator = OPERATOR
