"""KvRmsNormRopeCache: cache modes, int8 caches, refusals, values, references and random rows."""

from __future__ import annotations

import attrs
import numpy as np
import pytest

pytest.importorskip("torch")

import itertools

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import perfcollect_ops_builtin.kv_rmsnorm_rope_cache as plugin
from perfcollect_core import Skip
from perfcollect_core.checking import difference
from perfcollect_core.testing.conformance import OperatorConformance
from perfcollect_core.testing.replay import host_for, make_row, replay
from perfcollect_core.testing.stub_family import StubFamily

pytestmark = pytest.mark.torch

OPERATOR = "KvRmsNormRopeCache"
CPU = StubFamily().device(0)
HOST = host_for(OPERATOR, plugin)
SPEC = HOST.spec()


def row(
    batch=6,
    length=1,
    pool="8,32,1",
    *,
    index=None,
    cache="DT_BF16",
    scales=False,
    width=12,
    form="ND",
    meta=(),
):
    """Return a row; *pool* is what both caches have in front of their width."""
    kv = f"{batch},1,{length}"
    shapes = [
        f"{kv},576",
        "512",
        f"{kv},64",
        f"{kv},64",
        index or str(batch * length),
        f"{pool},64",
        f"{pool},512",
    ]
    dtypes = ["DT_BF16"] * 4 + ["INT64", cache, cache]
    if scales:
        shapes, dtypes = [*shapes, "64", "512"], [*dtypes, "FLOAT", "FLOAT"]
    formats = ["ND"] * 5 + [form, form] + ["ND"] * (len(shapes) - 7)
    absent = max(0, width - len(shapes))
    return {
        "Input Shapes": ";".join(shapes + [""] * absent),
        "Input Data Types": ";".join(dtypes + ["DT_UNDEFINED"] * absent),
        "Input Formats": ";".join(formats + ["NULL"] * absent),
        "Output Shapes": f"{pool},64;{pool},512;{kv},64;{kv},512",
        "Output Data Types": f"{cache};{cache};DT_BF16;DT_BF16",
        "Output Formats": f"{form};{form};ND;ND",
        **{f"Runtime {name}": str(value) for name, value in dict(meta).items()},
    }


def make(cells):
    return HOST.make_case(SPEC, make_row(OPERATOR, cells))


MODES = {
    "decode": (row(), "PA", "decode"),
    "trailing blanks trimmed": (row(width=7), "PA", "decode"),
    "prefill": (row(2, 50), "PA", "prefill"),
    "one token more than blocks": (row(9), "PA", "prefill"),
    "recorded phase": (row(meta={"phase": "prefill", "is_output_kv": "false"}), "PA", "prefill"),
    "norm": (row(3, 4, "3,1,20", index="3,4"), "Norm", "prefill"),
    "NZ by format": (row(form="FRACTAL_NZ"), "PA_NZ", "decode"),
    "NZ by column": (row(meta={"cache_mode": "PA_NZ"}), "PA_NZ", "decode"),
    "int8": (row(cache="INT8", scales=True), "PA", "decode"),
    "int8 NZ": (row(cache="INT8", scales=True, form="FRACTAL_NZ"), "PA_NZ", "decode"),
}


@pytest.mark.parametrize(("cells", "mode", "pattern"), MODES.values(), ids=MODES)
def test_every_cache_mode_replays(cells, mode, pattern):
    done = replay(OPERATOR, plugin, cells)

    assert not isinstance(done, Skip), done
    assert done.wrong is None
    assert (done.case.params["cache_mode"], done.case.params["index_pattern"]) == (mode, pattern)


def test_caches_hold_what_plain_loops_compute():
    done = replay(OPERATOR, plugin, row())
    kv, gamma, cos, sin = (done.inputs[n].double().numpy() for n in ("kv", "gamma", "cos", "sin"))

    for token, place in enumerate(done.inputs["index"].tolist()):
        latent, key = kv[token, 0, 0, :512], kv[token, 0, 0, 512:]
        normed = latent / np.sqrt((latent**2).mean() + 1e-6) * gamma
        c, s = cos[token, 0, 0, :32], sin[token, 0, 0, :32]
        turned = np.concatenate([key[::2] * c - key[1::2] * s, key[1::2] * c + key[::2] * s])
        block, offset = divmod(place, 32)
        np.testing.assert_allclose(done.outputs[1][block, offset, 0].double(), normed, rtol=1e-2, atol=1e-3)
        np.testing.assert_allclose(done.outputs[0][block, offset, 0].double(), turned, rtol=1e-2, atol=1e-2)


def test_nz_pages_store_a_token_in_groups_of_sixteen_channels():
    plain, tiled = (
        replay(OPERATOR, plugin, row(meta={"cache_mode": mode, "seed": 1})) for mode in ("PA", "PA_NZ")
    )
    same = HOST.make_inputs(attrs.evolve(tiled.case, seed=plain.case.seed), CPU)
    kernel = HOST.bind_kernel(tiled.case, same, CPU)

    cache = kernel.outputs(kernel.call())[0]

    block, offset = divmod(int(same["index"][0]), 32)
    stored = cache.view(8, 4, 32, 16)[block, :, offset].flatten()
    assert torch.equal(stored, plain.outputs[0][block, offset, 0])


def test_a_write_beside_the_slots_is_noticed():
    done = replay(OPERATOR, plugin, row())
    reference = HOST.reference(done.case, HOST.make_inputs(done.case, CPU), CPU)
    spoilt = done.outputs[0].clone()
    free = min(set(range(256)) - set(done.inputs["index"].tolist()))
    spoilt.view(256, 64)[free] += 1

    assert difference((spoilt, *done.outputs[1:]), reference) == (
        "output 0 (k_cache): 1 cache slots changed that the call does not write"
    )


def test_decode_leaves_the_fresh_outputs_out_and_prefill_gives_them():
    assert replay(OPERATOR, plugin, row()).outputs[2:] == (None, None)
    assert replay(OPERATOR, plugin, row(2, 50)).outputs[2].shape == (2, 1, 50, 64)


def test_what_is_not_recorded_is_said():
    assert make(row()).assumptions == (
        "index_pattern=decode (6 tokens, 8 blocks)",
        "is_output_kv=False (not recorded: by phase)",
        "epsilon=1e-06 (not recorded, timing-neutral)",
        "cache_mode=PA (by the shape of index and the format of the caches)",
    )
    meta = {"index_pattern": "prefill", "is_output_kv": "true", "epsilon": "1e-05", "cache_mode": "PA_BNSD"}
    assert make(row(meta=meta)).assumptions == ()
    assert make(row(meta=meta)).params["epsilon"] == 1e-5


@pytest.mark.parametrize(
    ("cells", "reason"),
    [
        (row(index="5"), "slot 4 (index) is 5, expected one slot for each of 6 tokens"),
        (row(pool="8,20,1"), "slot 5 (k_cache) is 8,20,1,64, expected blocks of a multiple of 16 tokens"),
        (row(300), "slot 5 (k_cache) is 8,32,1,64: 256 slots, expected at least one for each of 300 tokens"),
        (row(cache="INT8"), "slot 7 (k_rope_scale) is blank, expected a scale for the INT8 k_cache"),
        (row(meta={"cache_mode": "BNSD"}), "column 'Runtime cache_mode' is 'BNSD', expected one of Norm, PA, PA_BNSD, PA_NZ"),
        (row(meta={"index_pattern": "zigzag"}), "column 'Runtime index_pattern' is 'zigzag', expected decode or prefill"),
        (row(meta={"is_output_kv": "maybe"}), "column 'Runtime is_output_kv' is 'maybe', expected true or false"),
        (row(3, 30, "3,1,20", index="3,30"), "slot 4 (index) is 3,30 for caches of 3,1,20,64, expected 3,30 positions in caches B,1,L"),
        (row() | {"Input Shapes": row()["Input Shapes"].replace("6,1,1,576", "6,1,1,512")}, "slot 0 (kv) is 6,1,1,512, expected B,1,S,576"),
    ],
)  # fmt: skip
def test_impossible_rows_are_refused_with_slot_and_value(cells, reason):
    assert make(cells) == Skip.invalid(reason)


def test_modes_with_one_index_a_block_are_skipped():
    assert make(row(meta={"cache_mode": "PA_BLK_NZ"})) == Skip(
        "column 'Runtime cache_mode' is 'PA_BLK_NZ': that mode is not replayed"
    )


def test_a_value_of_its_own_is_another_variant():
    shapes = row()["Input Shapes"].split(";")
    cells = row() | {
        "Input Shapes": ";".join([*shapes[:11], "6,1,1,128"]),
        "Input Data Types": ";".join([*row()["Input Data Types"].split(";")[:11], "DT_BF16"]),
    }

    assert make(cells) == Skip("slot 11 (v) is 6,1,1,128: that variant is not replayed")


def test_decode_slots_are_one_random_place_in_a_block_each():
    case = make(row(pool="64,32,1", batch=32))
    index = HOST.make_inputs(case, CPU)["index"]

    assert len(set((index // 32).tolist())) == 32
    assert len(set((index % 32).tolist())) > 8
    assert not torch.equal(index, HOST.make_inputs(attrs.evolve(case, seed=case.seed + 1), CPU)["index"])


def test_prefill_slots_are_runs_through_shuffled_blocks():
    index = HOST.make_inputs(make(row(1, 100)), CPU)["index"].tolist()
    steps = [b - a for a, b in itertools.pairwise(index)]

    assert len(set(index)) == 100
    assert steps.count(1) >= 96
    assert [place // 32 for place in index[::32]] != [0, 1, 2, 3]


def test_cos_and_sin_are_of_real_angles():
    inputs = HOST.make_inputs(make(row(2, 50)), CPU)

    assert torch.allclose(inputs["cos"].float() ** 2 + inputs["sin"].float() ** 2, torch.ones(()), atol=1e-2)
    assert float(inputs["cos"].float().std()) > 0.3


def test_pools_of_other_sizes_are_equal_work_and_modes_are_not():
    keys = [
        HOST.canonical_key(SPEC, make_row(OPERATOR, cells))
        for cells in (
            row(),
            row(pool="900,32,1"),
            row(meta={"cache_mode": "PA_NZ"}),
            row(meta={"is_output_kv": "true"}),
        )
    ]

    assert keys[0] == keys[1]
    assert len(set(keys)) == 3


@given(st.integers(1, 4), st.integers(1, 40), st.integers(0, 5), st.booleans())
@settings(max_examples=15, deadline=None)
def test_random_rows_replay(batch, length, spare, int8):
    blocks = -(-batch * length // 32) + spare
    cells = row(batch, length, f"{blocks},32,1", cache="INT8" if int8 else "DT_BF16", scales=int8)

    assert replay(OPERATOR, plugin, cells).wrong is None


class TestKvRmsNormRopeCache(OperatorConformance):
    operator = OPERATOR
