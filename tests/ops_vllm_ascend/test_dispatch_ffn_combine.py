"""DispatchFFNCombine: worlds of two and four ranks, routing, row matching, refusals, values, cost."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys

import attrs
import numpy as np
import pytest

pytest.importorskip("torch")

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import perfcollect_ops_vllm_ascend.dispatch_ffn_combine as plugin
from perfcollect_core import Case, Device, RunRequest, Skip, example_row
from perfcollect_core.errors import CaseError, MissingEnvironmentError
from perfcollect_core.testing.conformance import OperatorConformance
from perfcollect_core.testing.replay import host_for, make_row, replay
from perfcollect_core.testing.stub_family import StubFamily
from perfcollect_ops_vllm_ascend.expert_ascend import _check_window, window_megabytes
from perfcollect_ops_vllm_ascend.expert_inputs import decode_scales, received_rows, routing, routing_load

pytestmark = pytest.mark.torch

OPERATOR = "DispatchFFNCombine"
CPU = StubFamily().device(0)
HOST = host_for(OPERATOR, plugin)
SPEC = HOST.spec()
FORMATS = "ND;FRACTAL_NZ;FRACTAL_NZ;ND;ND;ND;ND"


def row(
    tokens=8, hidden=64, experts=4, inner=32, topk=2, ep="1", weight="INT8", meta=(), mask=False, **replace
):
    scale = ("INT64", f"{experts},{2 * inner}", f"{experts},{hidden}")
    slots = {
        "x": f"{tokens},{hidden}", "weight1": f"{experts},{hidden},{2 * inner}", "weight2": f"{experts},{inner},{hidden}",
        "expert_idx": f"{tokens},{topk}", "scale1": scale[1] if weight == "INT8" else "0",
        "scale2": scale[2] if weight == "INT8" else "0", "probs": f"{tokens},{topk}",
        **({"mask": str(tokens)} if mask else {}),
    } | {name: value for name, value in replace.items() if name != "out"}  # fmt: skip
    dtypes = ["DT_BF16", weight, weight, "INT32", "INT64", "INT64", "FLOAT", "BOOL"][: len(slots)]
    out = replace.get("out", f"{slots['x']};{experts}")
    cells = example_row(";".join(slots.values()), ";".join(dtypes), out, "DT_BF16;INT32", FORMATS)
    return {**cells, "EP Size": ep, **{f"Runtime {name}": str(value) for name, value in dict(meta).items()}}


def make(cells):
    return HOST.make_case(SPEC, make_row(OPERATOR, cells))


# -- worlds of several ranks

RANK = """
import json, os, sys
import torch.distributed
import perfcollect_ops_vllm_ascend.dispatch_ffn_combine as plugin
from perfcollect_core import Plan, RunRequest
from perfcollect_core.checking import difference
from perfcollect_core.families import cpu
from perfcollect_core.testing.replay import host_for, make_row

host = host_for("DispatchFFNCombine", plugin)
spec, device = host.spec(), cpu.device(0)
rows = [make_row("DispatchFFNCombine", cells) for cells in spec.examples]
results = []
for case in host.match_rows(spec, rows, RunRequest("cpu", {"ep_size": device.ranks})).cases:
    inputs = host.make_inputs(case, device)
    reference = host.reference(case, inputs, device)
    kernel = host.bind_kernel(case, inputs, device)
    outputs = kernel.outputs(kernel.call())
    fixed = host.measure(case, kernel, Plan(repeat=4, warmup=1), device)
    free = host.measure(case, kernel, Plan(repeat=None, warmup=1, max_seconds=0.05), device)
    results.append({
        "pattern": case.params["pattern"],
        "wrong": difference(outputs, reference),
        "received": int(outputs[1].sum()),
        "sent": case.tensors["expert_idx"].numel,
        "fixed": len(fixed.durations_us),
        "free": len(free.durations_us),
        "stop": free.stop,
        "load": fixed.counters["MicroBench load_max_over_mean"],
    })
with open(f"{sys.argv[1]}/rank{device.rank}.json", "w", encoding="utf-8") as file:
    json.dump(results, file)
torch.distributed.barrier()
# As a worker ends: destructors of the process group can outlive its threads.
os._exit(0)
"""


def run_world(directory, ranks):
    """Run the example rows of one EP size in a real world; returns what each rank found, row by row."""
    (directory / "rank.py").write_text(RANK, encoding="utf-8")
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--local-addr=127.0.0.1",
        f"--nproc-per-node={ranks}", "--max-restarts=0", str(directory / "rank.py"), str(directory)]  # fmt: skip
    done = subprocess.run(
        command,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        encoding="utf-8",
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return [json.loads((directory / f"rank{rank}.json").read_text(encoding="utf-8")) for rank in range(ranks)]


@pytest.fixture(scope="module", params=[2, 4], ids=["EP 2", "EP 4"])
def world(request, tmp_path_factory):
    return run_world(tmp_path_factory.mktemp("world"), request.param)


def test_every_rank_of_a_world_agrees_with_the_layer_computed_on_one(world):
    assert len(world[0]) == 3
    assert {result["pattern"] for rank in world for result in rank} >= {"balanced", "skewed"}
    assert [result["wrong"] for rank in world for result in rank] == [None] * 3 * len(world)


def test_no_row_gets_lost_between_ranks(world):
    for results in zip(*world, strict=True):
        # The row with a mask sends 11 of its 16 tokens.
        share = 11 / 16 if results[0]["sent"] == 32 else 1
        assert sum(result["received"] for result in results) == share * sum(
            result["sent"] for result in results
        )


def test_all_ranks_launch_equally_often(world):
    for results in zip(*world, strict=True):
        assert {result["fixed"] for result in results} == {4}
        assert len({(result["free"], result["stop"]) for result in results}) == 1
        assert results[0]["free"] >= 5


def test_the_load_that_was_reached_is_recorded(world):
    loads = {result["pattern"]: result["load"] for result in world[0]}

    assert loads["skewed"] > 1.05
    assert loads["balanced"] <= 1.1


# -- one rank


@pytest.mark.parametrize(
    "cells",
    [
        pytest.param(row(), id="int8"),
        pytest.param(row(weight="DT_BF16"), id="bf16"),
        pytest.param(row(weight="FLOAT16", x="8,64") | {"Input Data Types": "FLOAT16;FLOAT16;FLOAT16;INT32;INT64;INT64;FLOAT",
            "Output Data Types": "FLOAT16;INT32"}, id="fp16"),
        pytest.param(row(scale1="256", scale2="256"), id="flat scales"),
        pytest.param(row(x="2,4,64"), id="3-D x"),
        pytest.param(row(out="8,64;1,4"), id="counts in two dimensions"),
        pytest.param(row(weight1="4,2,4,16,32", weight2="4,2,2,16,32"), id="FRACTAL_NZ storage"),
        pytest.param(row(mask=True, meta={"active_rows": 5}), id="active mask"),
        pytest.param(row(meta={"routing_pattern": "random", "seed": 3}), id="random"),
        pytest.param(row(meta={"routing_pattern": "skewed", "routing_alpha": 2}), id="skewed"),
    ],
)  # fmt: skip
def test_every_layout_and_routing_replays(cells):
    done = replay(OPERATOR, plugin, cells)

    assert not isinstance(done, Skip), done
    assert done.wrong is None


def test_a_token_is_the_weighted_sum_of_its_experts_as_plain_loops_compute_it():
    done = replay(OPERATOR, plugin, row(weight="DT_BF16"))
    x, w1, w2, probs = (done.inputs[n].double().numpy() for n in ("x", "weight1", "weight2", "probs"))

    for token in range(8):
        total = np.zeros(64)
        for slot, expert in enumerate(done.inputs["expert_idx"][token].tolist()):
            hidden = x[token] @ w1[expert]
            gate, up = hidden[:32], hidden[32:]
            total += probs[token, slot] * ((gate / (1 + np.exp(-gate)) * up) @ w2[expert])
        np.testing.assert_allclose(done.outputs[0][token].double().numpy(), total, rtol=3e-2, atol=2e-2)


# -- matching rows to the EP size of the run


def test_rows_of_another_ep_size_are_skipped_with_their_count():
    rows = [
        make_row(OPERATOR, row(ep=ep, tokens=tokens))
        for ep, tokens in (("16", 8), ("32", 8), ("32", 16), ("64", 8))
    ]

    matched = HOST.match_rows(SPEC, rows, RunRequest("cpu", {"ep_size": 16}))

    assert [case.ranks for case in matched.cases] == [16]
    assert [skip for _, skip in matched.skips] == [
        Skip("2 rows have EP size 32, this run replays 16 (--dispatch-ffn-combine-ep-size 32 replays them)"),
        Skip("2 rows have EP size 32, this run replays 16 (--dispatch-ffn-combine-ep-size 32 replays them)"),
        Skip("1 row has EP size 64, this run replays 16 (--dispatch-ffn-combine-ep-size 64 replays them)"),
    ]


def test_the_option_of_the_command_line_is_understood():
    matched = HOST.match_rows(
        SPEC, [make_row(OPERATOR, row(ep="4"))], RunRequest("cpu", {"dispatch_ffn_combine_ep_size": 4})
    )

    assert [case.ranks for case in matched.cases] == [4]


def test_a_blank_ep_size_is_not_guessed():
    assert make(row(ep="")) == Skip(
        "column 'EP Size' is blank: the expert-parallel size is not guessed, write it into the row"
    )


@pytest.mark.parametrize(
    ("cells", "reason"),
    [
        (row(ep="two"), "column 'EP Size' is 'two', expected a number of ranks"),
        (row(ep="0"), "column 'EP Size' is '0', expected a number of ranks"),
        (row(probs="8,3"), "slot 3 (expert_idx) is 8,2 and slot 6 (probs) 8,3, expected both 8 tokens by top-k"),
        (row(expert_idx="9,2", probs="9,2"), "slot 3 (expert_idx) is 9,2 and slot 6 (probs) 9,2, expected both 8 tokens by top-k"),
        (row(topk=5), "slot 3 (expert_idx) picks 5 experts a token, there are 4 x 1"),
        (row(weight2="4,16,64"), "slot 2 (weight2) is 4,16,64, expected 4,32,64"),
        (row(weight1="4,96,64"), "slot 1 (weight1) is 4,96,64, expected 4,64,64"),
        (row(weight2="5,32,64"), "slot 2 (weight2) is 5,32,64, expected 3 dimensions of 4 experts"),
        (row(scale1="4,63"), "slot 4 (scale1) is 4,63 INT64, expected 4,64 INT64"),
        (row(out="9,64;4"), "output slot 0 is 9,64, expected 8,64 as slot 0 (x)"),
        (row(out="8,64;5"), "output slot 1 is 5, expected 4 local experts"),
        (row(probs=""), "slot 6 (probs) is blank, expected a tensor"),
        (row(meta={"routing_pattern": "unfair"}),
            "column 'Runtime routing_pattern' is 'unfair', expected one of balanced, random, skewed"),
        (row(meta={"active_rows": 9}), "column 'Runtime active_rows' is 9, expected 1..8 as slot 0 (x) holds"),
        (row(weight="FLOAT"), "slot 1 (weight1) is FLOAT, expected INT8, BF16 or FLOAT16"),
    ],
)  # fmt: skip
def test_impossible_rows_are_refused_with_slot_and_value(cells, reason):
    assert make(cells) == Skip.invalid(reason)


def test_int4_weights_are_another_kernel():
    assert make(row(weight="INT32")) == Skip(
        "slot 1 (weight1) is INT32: the int4 kernel takes biases that the row does not record"
    )


def test_what_is_not_recorded_is_said():
    assert make(row()).assumptions == (
        "routing_pattern=balanced (not recorded)",
        "max_output_size=65536 (not recorded: serving's)",
    )
    assert make(row(meta={"routing_pattern": "skewed", "max_output_size": 4096})).assumptions == (
        "routing_alpha=1 (Zipf exponent not recorded)",
    )


def test_ep_size_routing_and_cap_are_part_of_the_work():
    cells = [row(), row(ep="2"), row(meta={"routing_pattern": "random"}), row(meta={"max_output_size": 4096})]

    assert len({HOST.canonical_key(SPEC, make_row(OPERATOR, one)) for one in cells}) == 4


# -- values


@pytest.mark.parametrize(("ep", "experts"), [(16, 16), (32, 8), (8, 32), (16, 4)])
@pytest.mark.parametrize("tokens", [1, 128])
def test_balanced_routing_loads_every_rank_equally_with_distinct_global_experts(ep, experts, tokens):
    case = make(row(tokens=tokens, experts=experts, topk=8, ep=str(ep)))

    ids = routing(case)

    assert received_rows(case) == [tokens * 8] * ep
    assert all(len(set(line)) == 8 for line in ids.reshape(-1, 8).tolist())
    assert int(ids.min()) >= 0
    assert int(ids.max()) < ep * experts
    assert len(ids.unique()) == min(ep * experts, ep * tokens * 8)


def test_skewed_routing_is_skewed_seeded_and_equal_on_every_rank():
    cells = row(tokens=256, experts=8, topk=2, ep="8", meta={"routing_pattern": "skewed"})
    case = make(cells)

    assert routing_load(case) > 1.5
    assert torch.equal(routing(case), routing(make(cells)))
    assert not torch.equal(routing(case), routing(attrs.evolve(case, seed=case.seed + 1)))
    assert routing_load(make(cells | {"Runtime routing_pattern": "random"})) < 1.3


def test_inputs_are_scaled_probable_and_different_on_each_rank():
    case = make(row(tokens=64, topk=4, ep="2"))
    first, second = (HOST.make_inputs(case, Device("cpu", 0, "cpu", rank=rank, ranks=2)) for rank in (0, 1))

    scales = decode_scales(first["scale1"])
    assert float(scales.min()) >= 1e-3
    assert float(scales.max()) < 1e-2
    assert decode_scales(torch.tensor([1065353216])).tolist() == [1.0]
    assert torch.allclose(first["probs"].sum(-1), torch.ones(64))
    assert int(first["weight1"].min()) == -127
    assert first["expert_idx"].dtype == torch.int32
    assert not torch.equal(first["x"], second["x"])
    assert not torch.equal(first["weight1"], second["weight1"])


def test_a_cap_that_would_drop_rows_is_refused():
    case = make(row(tokens=64, ep="2", meta={"max_output_size": 100}))

    with pytest.raises(CaseError) as caught:
        HOST.make_inputs(case, Device("cpu", 0, "cpu", rank=0, ranks=2))

    assert str(caught.value) == (
        "rank 0 receives 128 rows with balanced routing, expected at most max_output_size 100: the kernel drops the rest "
        "in silence"
    )


def test_a_world_of_another_size_is_refused():
    case = make(row(ep="4"))

    with pytest.raises(CaseError) as caught:
        HOST.bind_kernel(case, HOST.make_inputs(case, CPU), CPU)

    assert str(caught.value) == "EP size 4 needs 4 ranks, this launch has 1"


def test_the_hccl_window_is_computed_and_a_small_one_named(monkeypatch):
    case = make(row(tokens=4096, hidden=7168, experts=16, inner=2048, topk=8, ep="16"))
    monkeypatch.delenv("HCCL_BUFFSIZE", raising=False)

    with pytest.raises(MissingEnvironmentError) as caught:
        _check_window(case)

    assert window_megabytes(case) == 682
    assert str(caught.value) == "DispatchFFNCombine needs an HCCL window of 682 MiB, HCCL_BUFFSIZE gives 200"
    assert caught.value.hint == "export HCCL_BUFFSIZE=682, then start again"
    monkeypatch.setenv("HCCL_BUFFSIZE", "700")
    _check_window(case)


def test_the_cost_is_one_ranks_share():
    cost = HOST.estimate_cost(make(row(tokens=128, hidden=7168, experts=16, inner=2048, topk=8, ep="16")))

    assert cost.flops == 6 * 1024 * 7168 * 2048 + 10 * 1024 * 2048
    assert cost.nbytes > 16 * 3 * 7168 * 2048


@given(
    st.integers(1, 12),
    st.integers(1, 4),
    st.sampled_from(["balanced", "random", "skewed"]),
    st.sampled_from(["INT8", "DT_BF16"]),
)
@settings(max_examples=12, deadline=None)
def test_random_rows_replay(tokens, topk, pattern, weight):
    cells = row(tokens, 32, 5, 16, topk, weight=weight, meta={"routing_pattern": pattern})

    assert replay(OPERATOR, plugin, cells).wrong is None


@given(st.integers(1, 16), st.integers(1, 8), st.integers(1, 40), st.data())
@settings(max_examples=40, deadline=None)
def test_balanced_routing_is_even_over_ranks_and_distinct_for_any_size(ep, experts, tokens, data):
    topk = data.draw(st.integers(1, min(8, ep * experts)))
    case = make(row(tokens=tokens, experts=experts, topk=topk, ep=str(ep)))
    assert isinstance(case, Case)

    assert received_rows(case) == [tokens * topk] * ep
    assert all(len(set(line)) == topk for line in routing(case).reshape(-1, topk).tolist())
    assert math.isclose(routing_load(case), 1.0)


class TestDispatchFFNCombine(OperatorConformance):
    operator = OPERATOR
    rows = (row(), row(weight="DT_BF16", meta={"routing_pattern": "random"}))
