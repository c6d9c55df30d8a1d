"""Theory rows of the built-in operators: what each rule yields, and that the operator's own plan takes all of it."""

from __future__ import annotations

import pytest

from perfcollect_core.cases import Case, Row, RowRef, RunRequest
from perfcollect_core.discovery import plugin_index
from perfcollect_core.grid.axes import rows_axis
from perfcollect_core.grid.cells import row_of
from perfcollect_core.grid.coverage import CoverageMeter
from perfcollect_core.grid.generate import variant_of
from perfcollect_core.grid.models import known_models
from perfcollect_core.grid.standard import read_standard
from perfcollect_core.host import compose
from perfcollect_core.loading import load_family, load_operator
from perfcollect_core.specs import GridRequest, Workload
from perfcollect_core.tables.match import raw_key

MODELS = known_models()
ALL = GridRequest(models=tuple(MODELS.values()))
OPERATORS = sorted(
    provider.name
    for name in plugin_index().names("operators")
    for provider in plugin_index().providers("operators", name)
    if provider.distribution == "perfcollect-ops-builtin"
)
#: Rows whose plan is tried; every rule is small beside the products' grids.
_TRIED = 400


def host_of(name):
    return compose(load_operator(name), load_family("cpu"))


def targeted(*names, **fields):
    return GridRequest(models=tuple(MODELS[name] for name in names), targeted=True, **fields)


def rows_of(name, request, templates=()):
    host = host_of(name)
    return list(host.generate_rows(host.spec(), templates, request))


def spread(rows, count=_TRIED):
    return rows[:: max(1, len(rows) // count)]


def template(name, **cells):
    full = {"OP State": "dynamic", **{column.replace("_", " "): text for column, text in cells.items()}}
    return Row(RowRef(f"{name}.csv", raw_key(name, full)), full)


@pytest.mark.parametrize("name", OPERATORS)
@pytest.mark.parametrize(
    "request_", [ALL, targeted("deepseek-ai/DeepSeek-V3.2", "Qwen/Qwen3-32B")], ids=["all", "two"]
)
def test_the_plan_of_every_operator_takes_what_its_rule_yields(name, request_):
    host = host_of(name)
    spec = host.spec()

    rows = [row_of(f"{name}.csv", name, row) for row in spread(rows_of(name, request_))]
    matched = host.match_rows(spec, rows, RunRequest("ascend"))

    assert rows
    assert [skip.reason for _, skip in matched.skips] == []


@pytest.mark.parametrize("name", OPERATORS)
def test_a_rule_says_of_each_row_where_it_stands_on_the_axes(name):
    axes = host_of(name).spec().axes

    for row in spread(rows_of(name, ALL), 60):
        assert rows_axis(axes, row_of(f"{name}.csv", name, row)) == row.at


@pytest.mark.parametrize("name", sorted(set(OPERATORS) - {"MatMulCommon", "MatMulV3", "QuantBatchMatmulV3"}))
def test_the_whole_grid_holds_the_density_standard_on_every_axis(name):
    host = host_of(name)
    meter = CoverageMeter(host.spec().axes, read_standard())
    for row in rows_of(name, ALL):
        meter.add_at(variant_of(row), row.at, True)

    assert list(meter.result(f"{name}.csv").findings()) == []


@pytest.mark.parametrize(
    "name", sorted(set(OPERATORS) - {"MatMulCommon", "MatMulV2", "MatMulV3", "QuantBatchMatmulV3"})
)
def test_no_row_comes_twice(name):
    keys = [
        row_of("", name, row).ref.key
        for row in rows_of(name, targeted("deepseek-ai/DeepSeek-V3", "zai-org/GLM-5.1"))
    ]

    assert len(keys) == len(set(keys))


@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("MatMulV2", 50653), ("QuantBatchMatmulV3", 50653), ("BatchMatMulV2", 5550), ("TransposeBatchMatMul", 7104),
        ("Add", 481), ("TensorMove", 321), ("InterleaveRope", 208), ("KvRmsNormRopeCache", 13), ("Sort", 104),
        ("PadV3", 925), ("ArgMaxV2", 56), ("GatherV2", 4329), ("Index", 3367), ("Slice", 444), ("ScatterNdUpdate", 52),
    ],
)  # fmt: skip
def test_the_whole_grid_has_as_many_rows_as_its_axes_say(name, count):
    assert len(rows_of(name, ALL)) == count


@pytest.mark.parametrize("name", ["MatMulV2", "MatMulV3", "MatMulCommon", "QuantBatchMatmulV3"])
def test_products_of_named_models_are_their_projections(name):
    rows = rows_of(name, targeted("Qwen/Qwen3-32B"))

    pairs = {(row.at[1], row.at[2]) for row in rows}
    assert len(pairs) == 25
    assert (768, 5120) in pairs
    assert len(rows) == 25 * 37
    assert {row.rule for row in rows if row.at[1:] == (768, 5120)} == {"gemm Qwen/Qwen3-32B qkv tp 16"}


def test_a_blocked_weight_keeps_rank_and_format_together():
    nz = template(
        "MatMulV3",
        Input_Shapes='"136,1280;80,48,16,16"', Input_Data_Types="DT_BF16;DT_BF16", Input_Formats="ND;FRACTAL_NZ",
        Output_Shapes='"136,768"', Output_Data_Types="DT_BF16", Output_Formats="ND",
    )  # fmt: skip

    row = rows_of("MatMulV3", targeted("Qwen/Qwen3-32B", tp=(16,)), [nz])[0]

    assert row.form.input_formats == ("ND", "FRACTAL_NZ")
    assert [len(shape) for shape in row.inputs] == [2, 4]
    assert isinstance(
        host_of("MatMulV3").make_case(host_of("MatMulV3").spec(), row_of("", "MatMulV3", row)), Case
    )


def test_quantised_products_take_the_roles_their_rows_have():
    by_token = template(
        "QuantBatchMatmulV3",
        Input_Shapes='"64,384;24,24,16,32;768;;;64"', Input_Data_Types="INT8;INT8;DT_BF16;DT_UNDEFINED;DT_UNDEFINED;FLOAT",
        Input_Formats="ND;FRACTAL_NZ;ND;NULL;NULL;ND", Output_Shapes='"64,768"', Output_Data_Types="DT_BF16",
        Output_Formats="ND",
    )  # fmt: skip

    row = rows_of("QuantBatchMatmulV3", targeted("Qwen/Qwen3-32B", tp=(1,)), [by_token])[0]

    assert (row.inputs[3:5], row.inputs[5]) == (((), ()), (row.at[0],))


def test_batched_products_have_three_dimensions():
    assert {len(shape) for row in spread(rows_of("BatchMatMulV2", ALL)) for shape in row.inputs} == {3}


def test_head_products_that_the_kernel_cannot_block_are_not_there():
    assert all(row.at[2] % 128 == 0 and row.at[3] % 128 == 0 for row in rows_of("TransposeBatchMatMul", ALL))


def test_a_sum_broadcasts_as_its_rows_do():
    column = template(
        "Add",
        Input_Shapes='"16,7168;16,1"', Input_Data_Types="DT_BF16;DT_BF16", Input_Formats="ND;ND",
        Output_Shapes='"16,7168"', Output_Data_Types="DT_BF16", Output_Formats="ND",
    )  # fmt: skip

    assert {row.inputs[1] for row in rows_of("Add", ALL, [column]) if row.at[0] == 64} == {(64, 1)}


def test_attention_has_the_heads_of_one_rank_and_one_latent_head_on_all():
    rows = rows_of("FusedInferAttentionScore", targeted("deepseek-ai/DeepSeek-V3", tp=(1, 2, 4, 8, 16)))

    decode = [row for row in rows if row.extra["Runtime sparse_mode"] == "0"]
    assert {row.inputs[0][1] for row in decode} == {128, 64, 32, 16, 8}
    assert {(row.inputs[1][1], row.inputs[1][3]) for row in decode} == {(1, 512)}
    assert {row.extra["Runtime num_key_value_heads"] for row in decode} == {"1"}


def test_key_heads_are_replicated_where_there_are_fewer_than_ranks():
    rows = rows_of("FusedInferAttentionScore", targeted("Qwen/Qwen3-32B", tp=(16,)))

    assert {(row.extra["Runtime num_heads"], row.extra["Runtime num_key_value_heads"]) for row in rows} == {
        ("4", "1")
    }


def test_every_metadata_column_of_an_attention_row_is_filled():
    decode = rows_of(
        "FusedInferAttentionScore", targeted("Qwen/Qwen3-32B", tp=(1,), workloads=(Workload(2, 4096),))
    )[1]

    assert decode.extra == {
        "Runtime actual_seq_lengths_shape": "2",
        "Runtime actual_seq_lengths_values": "1,2",
        "Runtime actual_seq_lengths_kv_shape": "2",
        "Runtime actual_seq_lengths_kv_values": "4096,4096",
        "Runtime avg_seq_len": "4096.000000",
        "Runtime block_table_shape": "2,32",
        "Runtime block_table_valid_blocks": "32,32",
        "Runtime block_size": "128",
        "Runtime source_profile": "qwen3-32b_dense_decode_heads64",
        "Runtime num_heads": "64",
        "Runtime num_key_value_heads": "8",
        "Runtime sparse_mode": "3",
        "Runtime input_layout": "TND",
        "Runtime metadata_completeness": "shape_grid_scene_generated",
    }


def test_attention_reaches_the_lengths_and_batches_the_standard_declares():
    rows = rows_of("FusedInferAttentionScore", targeted("Qwen/Qwen3-32B", tp=(1,)))

    assert (max(row.at[0] for row in rows), max(row.at[1] for row in rows)) == (131072, 128)


def test_expert_weights_keep_the_hidden_size_and_merge_gate_and_up():
    rows = rows_of("GroupedMatmul", targeted("deepseek-ai/DeepSeek-V3", ep=(16,)))

    assert {row.inputs[1] for row in rows} == {(16, 7168, 4096), (16, 2048, 7168)}


def test_fused_expert_rows_have_their_own_slots():
    row = rows_of("GroupedMatmulSwigluQuant", targeted("deepseek-ai/DeepSeek-V3", ep=(16,)))[0]

    assert (len(row.inputs), len(row.outputs)) == (5, 2)
    assert row.inputs[1] == (16, 128, 448, 16, 32)


def test_a_workload_asks_for_exactly_its_tokens_and_the_models_own_widths():
    rows = rows_of("RmsNorm", targeted("Qwen/Qwen3-32B", workloads=(Workload(8, 512),)))

    assert [row.at for row in rows] == [(8, 5120), (4096, 5120)]


@pytest.mark.parametrize("name", ["LightningIndexer"])
def test_a_model_without_the_part_has_no_rows_of_its_operator(name):
    assert rows_of(name, targeted("Qwen/Qwen3-32B")) == []
