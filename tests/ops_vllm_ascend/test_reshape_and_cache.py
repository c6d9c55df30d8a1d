"""ReshapeAndCacheNdKernel: layouts, patterns, refusals, values, references and random rows."""

from __future__ import annotations

from itertools import pairwise

import attrs
import pytest

pytest.importorskip("torch")

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import perfcollect_ops_vllm_ascend.reshape_and_cache as plugin
from perfcollect_core import Skip, example_row
from perfcollect_core.checking import difference
from perfcollect_core.testing.conformance import OperatorConformance
from perfcollect_core.testing.replay import host_for, make_row, replay
from perfcollect_core.testing.stub_family import StubFamily

pytestmark = pytest.mark.torch

OPERATOR = "ReshapeAndCacheNdKernel"
CPU = StubFamily().device(0)
HOST = host_for(OPERATOR, plugin)
SPEC = HOST.spec()


def row(shapes, dtype="DT_BF16", meta=(), formats=""):
    cells = example_row(shapes, f"{dtype};{dtype};{dtype};{dtype};INT32", input_formats=formats)
    return {**cells, **{f"Runtime {name}": str(value) for name, value in dict(meta).items()}}


def make(cells):
    return HOST.make_case(SPEC, make_row(OPERATOR, cells))


DECODE = "8,2,16;8,2,16;12,32,2,16;12,32,2,16;8"
LAYOUTS = {
    "decode": (row(DECODE), "decode"),
    "prefill": (row("90,2,16;90,2,16;12,32,2,16;12,32,2,16;90"), "prefill"),
    "two sequences": (row("90,2,16;90,2,16;12,32,2,16;12,32,2,16;90",
        meta={"phase": "prefill", "actual_seq_lengths_values": "33,90"}), "prefill"),
    "MLA widths": (row("8,1,512;8,1,64;12,32,1,512;12,32,1,64;8"), "decode"),
    "flat rows": (row("8,32;8,32;12,32,2,16;12,32,2,16;8"), "decode"),
    "int8": (row(DECODE, "INT8"), "decode"),
    "FLOAT16": (row(DECODE, "FLOAT16"), "decode"),
    "full pool": (row("384,2,16;384,2,16;12,32,2,16;12,32,2,16;384", meta={"index_pattern": "prefill",
        "actual_seq_lengths_values": ",".join(map(str, range(16, 385, 16)))}), "prefill"),
    "padding": (row(DECODE, meta={"active_rows": 5}), "decode"),
}  # fmt: skip


@pytest.mark.parametrize(("cells", "pattern"), LAYOUTS.values(), ids=LAYOUTS)
def test_every_layout_replays(cells, pattern):
    done = replay(OPERATOR, plugin, cells)

    assert not isinstance(done, Skip), done
    assert done.wrong is None
    assert done.case.params["pattern"] == pattern


def test_caches_hold_the_rows_where_the_slots_say():
    done = replay(OPERATOR, plugin, row(DECODE))

    for token, slot in enumerate(done.inputs["slot_mapping"].tolist()):
        assert torch.equal(done.outputs[0][slot // 32, slot % 32], done.inputs["key"][token])
        assert torch.equal(done.outputs[1][slot // 32, slot % 32], done.inputs["value"][token])


def test_padding_is_minus_one_and_writes_nothing():
    done = replay(OPERATOR, plugin, LAYOUTS["padding"][0])

    assert done.inputs["slot_mapping"].tolist()[5:] == [-1, -1, -1]
    assert done.wrong is None


def test_a_row_that_is_not_written_is_noticed():
    case = make(row(DECODE))
    inputs = HOST.make_inputs(case, CPU)
    reference = HOST.reference(case, inputs, CPU)

    untouched = difference((inputs["key_cache"].clone(), inputs["value_cache"].clone()), reference)

    assert untouched is not None
    assert untouched.startswith("output 0: ")


def test_decode_slots_are_one_block_each_and_prefill_slots_are_runs():
    decode = HOST.make_inputs(make(row(DECODE)), CPU)["slot_mapping"].tolist()
    prefill = HOST.make_inputs(make(LAYOUTS["prefill"][0]), CPU)["slot_mapping"].tolist()
    other = HOST.make_inputs(attrs.evolve(make(row(DECODE)), seed=5), CPU)["slot_mapping"].tolist()

    assert len({slot // 32 for slot in decode}) == 8
    assert len(set(prefill)) == 90
    assert sum(b - a == 1 for a, b in pairwise(prefill)) >= 87
    assert decode != other


def test_what_is_not_recorded_is_said():
    assert make(row(DECODE)).assumptions == ("index_pattern=decode (8 tokens, 12 blocks)",)
    assert make(LAYOUTS["prefill"][0]).assumptions == (
        "index_pattern=prefill (90 tokens, 12 blocks)",
        "sequences=1 (lengths not recorded)",
    )
    assert make(LAYOUTS["two sequences"][0]).assumptions == ()


@pytest.mark.parametrize(
    ("cells", "made"),
    [
        (row("400,2,16;400,2,16;12,32,2,16;12,32,2,16;400"), Skip.invalid(
            "slot 2 (key_cache) is 12,32,2,16: 384 slots, expected at least one for each of 400 tokens")),
        (row("8,2,16;8,2,16;12,32,2,8;12,32,2,16;8"), Skip.invalid(
            "slot 2 (key_cache) is 12,32,2,8, expected 12,32 blocks and 2,16 a slot")),
        (row("8,2,16;8,2,16;12,32,2,16;13,32,2,16;8"), Skip.invalid(
            "slot 3 (value_cache) is 13,32,2,16, expected 12,32 blocks and 2,16 a slot")),
        (row("8,2,16;7,2,16;12,32,2,16;12,32,2,16;8"), Skip.invalid(
            "slot 1 (value) is 7,2,16, expected 8 tokens as slot 0")),
        (row(DECODE, meta={"active_rows": 9}), Skip.invalid(
            "column 'Runtime active_rows' is 9, expected 1..8 as slot 0 (key) holds")),
        (row(DECODE, meta={"index_pattern": "random"}), Skip.invalid(
            "column 'Runtime index_pattern' is 'random', expected decode or prefill")),
        (row("8,2,16;8,2,16;12,32,2,16;12,32,2,16;8", meta={"phase": "prefill", "actual_seq_lengths_values": "3,9"}),
            Skip.invalid("column 'Runtime actual_seq_lengths_values' ends at 9, expected 8 tokens")),
        (row(DECODE, formats="ND;ND;FRACTAL_NZ;FRACTAL_NZ;ND"), Skip(
            "slots 2 and 3 (caches) are FRACTAL_NZ: another ATB kernel writes those")),
        (row(DECODE) | {"Input Data Types": "DT_BF16;DT_BF16;INT8;DT_BF16;INT32"}, Skip.invalid(
            "slot 2 (key_cache) is INT8, expected BF16 as the rows")),
    ],
)  # fmt: skip
def test_impossible_rows_are_refused_with_slot_and_value(cells, made):
    assert make(cells) == made


def test_pools_of_other_sizes_are_equal_work():
    keys = [
        HOST.canonical_key(SPEC, make_row(OPERATOR, row(shapes)))
        for shapes in (
            DECODE,
            "8,2,16;8,2,16;99,32,2,16;99,32,2,16;8",
            "8,2,16;8,2,16;12,64,2,16;12,64,2,16;8",
        )
    ]

    assert keys[0] == keys[1]
    assert keys[0] != keys[2]


@given(st.integers(1, 200), st.integers(1, 4), st.integers(0, 9))
@settings(max_examples=15, deadline=None)
def test_random_rows_replay(tokens, heads, spare):
    pool = f"{-(-tokens // 16) + spare},16,{heads},8"

    assert (
        replay(OPERATOR, plugin, row(f"{tokens},{heads},8;{tokens},{heads},8;{pool};{pool};{tokens}")).wrong
        is None
    )


class TestReshapeAndCacheNdKernel(OperatorConformance):
    operator = OPERATOR
