"""ScatterNdUpdate: slot layouts, refusals, slots in range and distinct, random rows."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from perfcollect_core import Skip, example_row
from perfcollect_core.testing.replay import host_for, make_row, replay
from perfcollect_core.testing.stub_family import StubFamily
from perfcollect_ops_builtin.scatter import scatter_nd_update

pytestmark = pytest.mark.torch

CPU = StubFamily().device(0)


def run(shapes, dtypes="DT_BF16;INT32;DT_BF16", *outputs):
    return replay("ScatterNdUpdate", scatter_nd_update, example_row(shapes, dtypes, *outputs))


@pytest.mark.parametrize(
    "shapes",
    [
        pytest.param("1000,16;100,1;100,16", id="rows"),
        pytest.param("1000,16;1,1;1,16", id="one row"),
        pytest.param("64,32,16;100,2;100,16", id="two address axes"),
        pytest.param("64,32,16;10,1;10,32,16", id="whole blocks"),
        pytest.param("64,16;4,8,1;4,8,16", id="3-D indices"),
        pytest.param("64,32;50,2;50", id="single elements"),
        pytest.param("64,16;1;16", id="1-D indices"),
        pytest.param("64,16;2;", id="one element"),
    ],
)
@pytest.mark.parametrize("dtype", ["INT32", "INT64"])
def test_each_slot_layout_replays(shapes, dtype):
    cells = example_row(shapes, f"DT_BF16;{dtype};DT_BF16", shapes.split(";")[0], "DT_BF16", "ND;ND;ND")

    done = replay("ScatterNdUpdate", scatter_nd_update, cells)

    assert done.wrong is None
    assert done.inputs["indices"].dtype == {"INT32": torch.int32, "INT64": torch.int64}[dtype]


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (
            ("1000,16;100,1;99,16",),
            "input 'updates' has shape 99,16, expected 100,16 (indices without its last axis, then what var has behind)",
        ),
        (("64,16;100,1;100,16",), "input 'indices' names 100 slots, expected at most the 64 of var"),
        (
            ("64,16;10,3;10",),
            "input 'indices' has shape 10,3, expected a last axis of 1 to 2 (axes of var)",
        ),
        (
            ("64,16;10,1;10,16", "DT_BF16;FLOAT;DT_BF16"),
            "input 'indices' has dtype FLOAT, expected INT32 or INT64",
        ),
        (
            ("64,16;10,1;10,16", "DT_BF16;INT32;FLOAT"),
            "input 'updates' has dtype FLOAT, expected BF16",
        ),
        (
            ("64,16;10,1;10,16", "DT_BF16;INT32;DT_BF16", "64,8", "DT_BF16"),
            "output slot 0 has shape 64,8, expected 64,16 (var, in place)",
        ),
    ],
)
def test_a_contradictory_row_is_refused(arguments, reason):
    assert run(*arguments) == Skip.invalid(reason)


def test_decode_writes_single_distinct_slots_all_over_the_cache():
    one, again = (run("226048,2;102,1;102,2") for _ in range(2))
    slots = one.inputs["indices"].flatten()

    assert one.case.assumptions == ("index pattern=decode (slots of single tokens; not recorded)",)
    assert len(slots.unique()) == 102
    assert slots.min() >= 0
    assert 150_000 < slots.max() < 226_048
    assert not torch.equal(slots, slots.sort().values)
    assert torch.equal(one.inputs["indices"], again.inputs["indices"])
    assert not torch.equal(slots, run("226049,2;102,1;102,2").inputs["indices"].flatten())


def test_prefill_writes_runs_of_one_block():
    done = run("65536,2;2000,1;2000,2")
    slots = done.inputs["indices"].flatten()

    assert done.case.assumptions == ("index pattern=prefill (runs of 128 slots; not recorded)",)
    assert len(slots.unique()) == 2000
    assert (slots[::128] % 128 == 0).all()
    assert (slots.diff() == 1).float().mean() > 0.98
    assert not torch.equal(slots, slots.sort().values)


def test_the_cache_is_written_in_place():
    done = run("64,4;8,1;8,4")

    assert done.outputs[0].data_ptr() == done.inputs["var"].data_ptr()


def test_reference_agrees_with_a_plain_loop():
    host = host_for("ScatterNdUpdate", scatter_nd_update)
    row = make_row("ScatterNdUpdate", example_row("3,4,2;5,2;5,2", "FLOAT;INT32;FLOAT"))
    case = host.make_case(host.spec(), row)
    inputs = host.make_inputs(case, host.family.device(0))

    (updated,) = host.reference(case, inputs, CPU).outputs

    expected = inputs["var"].tolist()
    for (i, j), values in zip(inputs["indices"].tolist(), inputs["updates"].tolist(), strict=True):
        expected[i][j] = values
    assert updated.tolist() == expected


@settings(max_examples=25, deadline=None)
@given(
    var=st.lists(st.integers(1, 8), min_size=1, max_size=4), axes=st.integers(1, 4), share=st.floats(0.01, 1)
)
def test_any_number_of_slots_replays(var, axes, share):
    axes = min(axes, len(var))
    limit = 1
    for size in var[:axes]:
        limit *= size
    count = max(1, int(limit * share))
    text = [",".join(map(str, sizes)) for sizes in (var, [count, axes], [count, *var[axes:]])]

    assert run(";".join(text), "FLOAT;INT64;FLOAT", text[0], "FLOAT").wrong is None
