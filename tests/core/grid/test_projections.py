"""What the layers of a model compute on one rank, against lists worked out by hand."""

from __future__ import annotations

import pytest

from perfcollect_core.grid.models import known_models
from perfcollect_core.grid.projections import (
    activation_widths,
    expert_layers,
    gemm_pairs,
    gemm_pairs_of,
    local_heads,
    vocabulary_slices,
)
from perfcollect_core.specs import GridRequest

DEEPSEEK, QWEN = known_models()["deepseek-ai/DeepSeek-V3"], known_models()["Qwen/Qwen3-32B"]

#: Heads 64 of 128, 8 key heads, gate and up merged, 151936 tokens.
QWEN_PAIRS = {
    1: {(10240, 5120), (5120, 8192), (51200, 5120), (5120, 25600), (151936, 5120)},
    2: {(5120, 5120), (5120, 4096), (25600, 5120), (5120, 12800), (75968, 5120)},
    4: {(2560, 5120), (5120, 2048), (12800, 5120), (5120, 6400), (37984, 5120)},
    8: {(1280, 5120), (5120, 1024), (6400, 5120), (5120, 3200), (18992, 5120)},
    # One key head on every rank: 4 + 2 heads of 128.
    16: {(768, 5120), (5120, 512), (3200, 5120), (5120, 1600), (9496, 5120)},
}
#: The same on every rank: fused and unfused down projections, the router.
DEEPSEEK_SHARED = {(2112, 7168), (1536, 7168), (576, 7168), (256, 7168)}
#: q_b 192 wide a head, kv_b 256, o 128; shared expert 2048, dense 18432, 129280 tokens.
DEEPSEEK_PAIRS = {
    1: {(24576, 1536), (32768, 512), (7168, 16384), (4096, 7168), (7168, 2048), (36864, 7168), (7168, 18432), (129280, 7168)},
    2: {(12288, 1536), (16384, 512), (7168, 8192), (2048, 7168), (7168, 1024), (18432, 7168), (7168, 9216), (64640, 7168)},
    4: {(6144, 1536), (8192, 512), (7168, 4096), (1024, 7168), (7168, 512), (9216, 7168), (7168, 4608), (32320, 7168)},
    8: {(3072, 1536), (4096, 512), (7168, 2048), (512, 7168), (7168, 256), (4608, 7168), (7168, 2304), (16160, 7168)},
    16: {(1536, 1536), (2048, 512), (7168, 1024), (256, 7168), (7168, 128), (2304, 7168), (7168, 1152), (8080, 7168)},
}  # fmt: skip


@pytest.mark.parametrize("tp", [1, 2, 4, 8, 16])
def test_the_pairs_of_qwen_are_those_worked_out_by_hand(tp):
    assert set(gemm_pairs(QWEN, tp).values()) == QWEN_PAIRS[tp]


@pytest.mark.parametrize("tp", [1, 2, 4, 8, 16])
def test_the_pairs_of_deepseek_are_those_worked_out_by_hand(tp):
    assert set(gemm_pairs(DEEPSEEK, tp).values()) == DEEPSEEK_PAIRS[tp] | DEEPSEEK_SHARED


@pytest.mark.parametrize(("model", "count"), [(DEEPSEEK, 41), (QWEN, 25)])
def test_all_real_pairs_of_a_model_are_there_once(model, count):
    assert len(gemm_pairs_of(GridRequest(models=(model,), targeted=True))) == count


@pytest.mark.parametrize("width", [16384, 8192, 4096, 2048, 1024])
def test_query_heads_of_latent_attention_are_never_taken_for_128_wide(width):
    pairs = gemm_pairs_of(GridRequest(models=(DEEPSEEK,), targeted=True))

    assert (width, 1536) not in pairs


def test_a_pair_says_which_projections_it_belongs_to():
    pairs = gemm_pairs_of(GridRequest(models=(DEEPSEEK,), targeted=True))

    assert pairs[256, 7168] == (
        "deepseek-ai/DeepSeek-V3 router tp 1 2 4 8 16 + deepseek-ai/DeepSeek-V3 shared_gate_up tp 16"
    )


def test_key_heads_are_replicated_past_their_number_and_the_latent_cache_is_never_divided():
    assert [(h.query, h.key) for h in (local_heads(QWEN, tp) for tp in (1, 8, 16)) if h] == [
        (64, 8),
        (8, 1),
        (4, 1),
    ]
    assert [(h.query, h.key) for h in (local_heads(DEEPSEEK, tp) for tp in (1, 16)) if h] == [
        (128, 1),
        (8, 1),
    ]


def test_a_degree_that_does_not_divide_the_heads_has_no_attention():
    assert local_heads(QWEN, 3) is None
    assert "qkv" not in gemm_pairs(QWEN, 3)


def test_experts_are_sharded_by_tp_only_without_expert_parallelism():
    layers = expert_layers(GridRequest(models=(DEEPSEEK,), tp=(1, 2), ep=(1, 16), targeted=True))

    shapes = {(layer.count, layer.k, layer.n) for layer in layers}
    assert shapes == {
        (256, 7168, 4096), (256, 2048, 7168), (256, 7168, 2048), (256, 1024, 7168), (16, 7168, 4096), (16, 2048, 7168),
    }  # fmt: skip


def test_vocabulary_slices_and_activation_widths_are_those_of_one_rank():
    request = GridRequest(models=(QWEN,), tp=(4, 16), targeted=True)

    assert vocabulary_slices(request) == {151936, 37984, 9496}
    assert activation_widths(request) == {6400, 1600}
