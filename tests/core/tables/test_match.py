"""Raw keys: one call, one key, however its cells are spelled."""

from __future__ import annotations

import pytest

from perfcollect_core.tables.match import duplicate_keys, operator_name, raw_key, separating_columns
from perfcollect_core.tables.read import read_table

MATMUL = {
    "Input Shapes": '"136,7168;3584,7168"',
    "Input Data Types": "DT_BF16;DT_BF16",
    "Input Formats": "ND;ND",
    "Output Shapes": '"136,3584"',
    "Output Data Types": "DT_BF16",
    "Output Formats": "ND",
}


@pytest.mark.parametrize(
    "spelling",
    [
        {"Input Shapes": "136,7168;3584,7168"},
        {"Input Shapes": "(136, 7168); (3584, 7168)"},
        {"Input Shapes": '"136,7168;3584,7168;"', "Input Data Types": "DT_BF16;DT_BF16;DT_UNDEFINED"},
        {"Input Shapes": '"136 7168;3584 7168"'},
        {"Input Data Types": "BFLOAT16;BF16", "Output Data Types": "bf16"},
        {"Input Formats": "ND;ND;NULL"},
        {"Average Duration(us)": "61.0", "Accelerator Core": "CPU", "OP State": "static", "EP Size": " "},
        {"Output Formats": "NULL"},
    ],
)
def test_spellings_of_one_call_have_one_key(spelling):
    assert raw_key("MatMulV2", {**MATMUL, **spelling}) == raw_key("MatMulV2", MATMUL)


@pytest.mark.parametrize(
    "change",
    [
        {"Input Shapes": '"136,7168;7168,3584"'},
        {"Input Shapes": '";136,7168;3584,7168"'},
        {"Input Data Types": "FLOAT;DT_BF16"},
        {"Input Formats": "ND;FRACTAL_NZ"},
        {"Output Data Types": "FLOAT"},
        {"EP Size": "16"},
        {"Runtime num_key_value_heads": "8"},
        {"Quant Type": "w8a8"},
    ],
)
def test_different_calls_have_different_keys(change):
    assert raw_key("MatMulV2", {**MATMUL, **change}) != raw_key("MatMulV2", MATMUL)


def test_the_operator_is_part_of_the_key():
    assert raw_key("MatMulV3", MATMUL) != raw_key("MatMulV2", MATMUL)


def test_blank_slots_keep_their_place_and_lose_their_words():
    key = raw_key(
        "FusedInferAttentionScore",
        {
            "Input Shapes": '"128,4,128;;2048,2048;;"',
            "Input Data Types": "DT_BF16;DT_UNDEFINED;BOOL;DT_UNDEFINED;DT_UNDEFINED",
            "Input Formats": "ND;NULL;ND;NULL;NULL",
            "Output Shapes": '"128,4,128"',
            "Output Data Types": "DT_BF16",
        },
    )

    assert key == (
        "FusedInferAttentionScore",
        "128,4,128;;2048,2048",
        "BF16;;BOOL",
        "ND;;ND",
        "128,4,128",
        "BF16",
    )


def test_metadata_stands_in_the_key_by_name():
    assert raw_key("DispatchFFNCombine", {**MATMUL, "EP Size": "16"})[-1] == "EP Size=16"


def test_cells_that_do_not_parse_still_tell_rows_apart():
    one = raw_key("Add", {**MATMUL, "Input Shapes": "four,five"})

    assert one[1] == "four,five"
    assert one != raw_key("Add", {**MATMUL, "Input Shapes": "four,six"})


def test_attention_rows_of_the_public_tables_are_told_apart_by_their_own_columns(write, base):
    shapes = '"128,8,128;128,8,128;128,8,128",DT_BF16;DT_BF16;DT_BF16,ND;ND;ND,"128,8,128",DT_BF16,ND'
    lines = [
        f"dynamic,AI_CORE,{shapes},74.57,attention_generation,{batch},{seq},8,1,128"
        for batch in (1, 4)
        for seq in (128, 4096)
    ]
    header = f"{base},Average Duration(us),Op Type,Batch,Seq Len,Num Heads,Num KV Heads,Head Size"

    table = read_table(write(lines, name="FusedInferAttentionScore.csv", header=header))

    assert duplicate_keys(table.rows) == {}


def test_unknown_columns_that_tell_rows_of_one_key_apart_are_named(write, base, row):
    header = f"{base},Average Duration(us),Window,Author"
    lines = [f"{row(1, 512, 512)},128,li", f"{row(1, 512, 512)},4096,li", f"{row(2, 512, 512)},1,wang"]

    table = read_table(write(lines, header=header))

    assert separating_columns(table) == ("Window",)


def test_rows_that_differ_in_what_was_measured_only_are_duplicates(write, base, row):
    header = f"{base},Average Duration(us),Measured With,Power(W),Profiling Average aicore_time(us)"
    lines = [f"{row(1, 512, 512, '18.2')},cpu,310.2,1", f"{row(1, 512, 512, '18.9')},cpu 2,311.0,2"]

    table = read_table(write(lines, header=header))

    assert separating_columns(table) == ()
    assert [len(rows) for rows in duplicate_keys(table.rows).values()] == [2]


@pytest.mark.parametrize("name", ["MatMulV2", "MatMulV2.csv", "MatMulV2_run.py", "MatMulV2_run"])
def test_names_of_tables_and_scripts_name_the_operator(name):
    assert operator_name(name) == "MatMulV2"
