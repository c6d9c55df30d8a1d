"""split_qkv_rmsnorm_rope_kernel: slot layouts, head sizes, refusals, values, references and random rows."""

from __future__ import annotations

import attrs
import numpy as np
import pytest

pytest.importorskip("torch")

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import perfcollect_ops_vllm_ascend.split_qkv_rmsnorm_rope as plugin
from perfcollect_core import Skip, example_row
from perfcollect_core.testing.conformance import OperatorConformance
from perfcollect_core.testing.replay import host_for, make_row, replay
from perfcollect_core.testing.stub_family import StubFamily

pytestmark = pytest.mark.torch

OPERATOR = "split_qkv_rmsnorm_rope_kernel"
CPU = StubFamily().device(0)
HOST = host_for(OPERATOR, plugin)
SPEC = HOST.spec()


def row(inputs, outputs, meta=(), dtype="DT_BF16"):
    words = [dtype, dtype, "INT64"][: inputs.count(";") + 1]
    cells = example_row(inputs, ";".join(words), outputs, ";".join(dtype for _ in outputs.split(";")))
    return {**cells, **{f"Runtime {name}": str(value) for name, value in dict(meta).items()}}


def make(cells):
    return HOST.make_case(SPEC, make_row(OPERATOR, cells))


OUT = "9,1024;9,128;9,128"
LAYOUTS = {
    "two slots": (row("9,1280;128", OUT, {"max_positions": 512}), 128, 128),
    "three slots": (row("9,1280;300,128;9", OUT), 128, 128),
    "partial rotation": (row("9,1280;300,64;9", OUT), 128, 64),
    "two outputs": (row("9,1152;64", "9,1024;9,64", {"max_positions": 512}), 64, 64),
    "recorded head size": (row("9,1280;300,32;9", OUT, {"head_dim": 64}), 64, 32),
    "biases": (row("9,1280;300,128;9", OUT, {"qk_bias": "true"}), 128, 128),
    "prefill": (row("9,1280;300,128;9", OUT, {"phase": "prefill"}), 128, 128),
    "lengths": (row("9,1280;300,128;9", OUT, {"actual_seq_lengths_values": "4,9",
        "actual_seq_lengths_kv_values": "100,250"}), 128, 128),
    "FLOAT16": (row("9,1280;300,128;9", OUT, dtype="FLOAT16"), 128, 128),
}  # fmt: skip


@pytest.mark.parametrize(("cells", "head", "rope"), LAYOUTS.values(), ids=LAYOUTS)
def test_every_layout_replays(cells, head, rope):
    done = replay(OPERATOR, plugin, cells)

    assert not isinstance(done, Skip), done
    assert done.wrong is None
    assert (done.case.params["head_dim"], done.case.params["rope_dim"]) == (head, rope)


def test_queries_are_normalised_and_rotated_as_plain_loops_do():
    done = replay(OPERATOR, plugin, LAYOUTS["partial rotation"][0])
    hidden, table, weight = (done.inputs[n].double().numpy() for n in ("input", "cos_sin_cache", "q_weight"))

    for token, position in enumerate(done.inputs["positions"].tolist()):
        cos, sin = table[position, :32], table[position, 32:]
        for head in range(8):
            x = hidden[token, head * 128 : head * 128 + 128]
            x = x / np.sqrt((x**2).mean() + 1e-6) * weight
            first, second = x[:32].copy(), x[32:64].copy()
            x[:32], x[32:64] = first * cos - second * sin, second * cos + first * sin
            got = done.outputs[0][token, head * 128 : head * 128 + 128].double().numpy()
            np.testing.assert_allclose(got, x, rtol=2e-2, atol=4e-2)
    assert torch.equal(done.outputs[2], done.inputs["input"][:, 1152:])


def test_what_is_not_recorded_is_said():
    assert make(row("9,1280;128", OUT)).assumptions == (
        "epsilon=1e-06 (not recorded, timing-neutral)",
        "phase=decode (9 tokens)",
        "max_positions=40960 (Qwen3's, not recorded)",
    )
    assert make(LAYOUTS["partial rotation"][0]).assumptions[0] == "head_dim=128 (divides queries and keys)"
    assert make(LAYOUTS["two outputs"][0]).assumptions[0] == "head_dim=64 (width of the rotary table)"
    everything = {"head_dim": 128, "epsilon": "1e-05", "phase": "decode", "max_positions": 100}
    assert make(row("9,1280;128", OUT, everything)).assumptions == ()


def test_the_launch_variant_of_a_decode_step_is_an_alias():
    assert SPEC.aliases == ("split_qkv_rmsnorm_rope_kernel_0",)


@pytest.mark.parametrize(
    ("cells", "reason"),
    [
        (row("9,1281;128", OUT), "slot 0 (input) is 9,1281, expected 1024 + 2 x 128 channels as the outputs have"),
        (row("9,1280;127", OUT), "slot 1 (cos_sin_cache) is 127, expected an even rotary width"),
        (row("9,1280;128", "8,1024;8,128;8,128"), "output slot 0 is 8,1024, expected 9 tokens"),
        (row("9,1280;128", ""), "output slot 0 is blank, expected 9 tokens"),
        (row("9,1280;300,128;8", OUT), "slot 2 (positions) is 8, expected 9"),
        (row("9,1280;128", OUT, {"head_dim": 100}),
            "head size 100 does not fit the 1024 query and 128 key channels of the outputs and rotary width 128 of slot 1"),
        (row("9,1280;5,128;9", OUT, {"phase": "prefill"}), "slot 1 (cos_sin_cache) is 5,128, expected 9 positions or more"),
        (row("9,1280;128", OUT, {"rope_dim": 64}), "column 'Runtime rope_dim' is 64, expected 128 as slot 1 holds"),
        (row("9,1280;128", OUT, {"phase": "mixed"}), "column 'Runtime phase' is 'mixed', expected decode or prefill"),
    ],
)  # fmt: skip
def test_impossible_rows_are_refused_with_slot_and_value(cells, reason):
    assert make(cells) == Skip.invalid(reason)


def test_positions_are_lengths_in_decode_and_rising_in_prefill():
    decode = HOST.make_inputs(make(LAYOUTS["three slots"][0]), CPU)["positions"]
    prefill = HOST.make_inputs(make(LAYOUTS["prefill"][0]), CPU)["positions"]
    recorded = HOST.make_inputs(make(LAYOUTS["lengths"][0]), CPU)["positions"]

    assert len(decode.unique()) > 5
    assert int(decode.max()) < 300
    assert prefill.tolist() == list(range(9))
    assert recorded.tolist() == [96, 97, 98, 99, 245, 246, 247, 248, 249]


def test_the_table_holds_real_angles_and_seeds_differ():
    case = make(LAYOUTS["three slots"][0])
    inputs = HOST.make_inputs(case, CPU)
    cos, sin = inputs["cos_sin_cache"].float().chunk(2, -1)
    other = HOST.make_inputs(attrs.evolve(case, seed=case.seed + 1), CPU)

    assert torch.allclose(cos**2 + sin**2, torch.ones(()), atol=1e-2)
    assert float(inputs["q_weight"].float().mean()) == pytest.approx(1, abs=0.05)
    assert not torch.equal(inputs["input"], other["input"])


@given(st.integers(1, 30), st.integers(1, 4), st.integers(1, 3), st.sampled_from([8, 16, 32]))
@settings(max_examples=15, deadline=None)
def test_random_rows_replay(tokens, kv_heads, group, rope):
    query, key = kv_heads * group * 32, kv_heads * 32
    cells = row(f"{tokens},{query + 2 * key};64,{rope};{tokens}", f"{tokens},{query};{tokens},{key};{tokens},{key}",
        {"head_dim": 32})  # fmt: skip

    assert replay(OPERATOR, plugin, cells).wrong is None


class TestSplitQkvRmsnormRope(OperatorConformance):
    operator = OPERATOR
