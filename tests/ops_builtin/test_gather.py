"""GatherV2: slot layouts, axis inference, refusals, values and random rows."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from perfcollect_core import Skip, example_row
from perfcollect_core.testing.replay import host_for, make_row, replay
from perfcollect_core.testing.stub_family import StubFamily
from perfcollect_ops_builtin.gather import gather

pytestmark = pytest.mark.torch

CPU = StubFamily().device(0)

INDEX_SELECT = "launch=index_select (not an embedding; CANN may run GatherV3)"


def run(*cells):
    return replay("GatherV2", gather, example_row(*cells))


@pytest.mark.parametrize(
    ("shapes", "out", "axis", "assumptions"),
    [
        pytest.param("96,64;13;1", "13,64", 0, (), id="embedding"),
        pytest.param("96,64;4,8;1", "4,8,64", 0, (), id="2-D indices"),
        pytest.param("96,64;13", "13,64", 0, (), id="axis slot trimmed"),
        pytest.param("96,64;;1", "64", 0, (), id="0-D index"),
        pytest.param("96,64;13;1", "96,13", 1, (INDEX_SELECT,), id="axis 1"),
        pytest.param("6,96,64;2,5;1", "6,2,5,64", 1, (INDEX_SELECT,), id="2-D indices on axis 1"),
        pytest.param("96;13;1", "13", 0, (INDEX_SELECT,), id="1-D table"),
        pytest.param("64,64;64;1", "64,64", 0, ("axis=0 (axes 0, 1 fit)",), id="ambiguous"),
        pytest.param("96,64;13;1", "", 0, ("axis=0 (output not recorded)",), id="no output"),
    ],
)
@pytest.mark.parametrize("dtype", ["INT32", "INT64"])
def test_each_slot_layout_replays(shapes, out, axis, assumptions, dtype):
    count = shapes.count(";")
    dtypes = ";".join(["DT_BF16", dtype, "INT64"][: count + 1])

    done = run(shapes, dtypes, out, "DT_BF16" if out else "", ";".join(["ND"] * (count + 1)))

    assert done.wrong is None
    assert done.case.params == {"axis": axis}
    assert done.case.assumptions == assumptions


@pytest.mark.parametrize(
    ("cells", "reason"),
    [
        (
            ("9496,512;136;1", "DT_BF16;INT64;INT64", "135,512", "DT_BF16"),
            "output slot 0 has shape 135,512, expected table (9496,512) with one axis replaced by indices (136)",
        ),
        (
            ("9496,512;136;1", "DT_BF16;FLOAT;INT64", "136,512", "DT_BF16"),
            "input 'indices' has dtype FLOAT, expected INT32 or INT64",
        ),
        (
            ("9496,512;136;1", "DT_BF16;INT64;INT64", "136,512", "FLOAT"),
            "output slot 0 has dtype FLOAT, expected BF16 (as table)",
        ),
        (("0,512;136", "DT_BF16;INT64"), "input 'table' has shape (0, 512) with no element"),
    ],
)
def test_a_contradictory_row_is_refused(cells, reason):
    assert run(*cells) == Skip.invalid(reason)


def test_indices_are_in_range_spread_and_seeded():
    one, again = (run("9496,8;4096;1", "FLOAT;INT64;INT64").inputs["indices"] for _ in range(2))
    other = run("9496,8;4097;1", "FLOAT;INT64;INT64").inputs["indices"]

    assert one.min() >= 0
    assert one.max() < 9496
    assert one.float().mean() == pytest.approx(9496 / 2, rel=0.05)
    assert len(one.unique()) > 3000
    assert torch.equal(one, again)
    assert not torch.equal(one, other[:4096])


def test_indices_stay_in_a_table_of_fewer_than_eight_rows():
    assert run("3,8;64;1", "FLOAT;INT64;INT64").inputs["indices"].unique().tolist() == [0, 1, 2]


def test_reference_agrees_with_a_plain_loop():
    done = run("2,5,3;2,2;1", "FLOAT;INT64;INT64", "2,2,2,3", "FLOAT")
    table, indices = done.inputs["table"].tolist(), done.inputs["indices"].tolist()

    (taken,) = host_for("GatherV2", gather).reference(done.case, done.inputs, CPU).outputs

    assert taken.tolist() == [[[block[i] for i in row] for row in indices] for block in table]


def test_cost_counts_rows_read_once():
    host = host_for("GatherV2", gather)
    case = host.make_case(host.spec(), make_row("GatherV2", example_row("4,8;1000;1", "FLOAT;INT64;INT64")))

    # 1000 indices of 8 bytes, 4 rows of 32 bytes read, 1000 written.
    assert host.estimate_cost(case).nbytes == pytest.approx(8000 + 128 + 32000)


@settings(max_examples=25, deadline=None)
@given(
    shape=st.lists(st.integers(1, 6), min_size=1, max_size=4),
    picked=st.lists(st.integers(1, 5), min_size=1, max_size=3),
    axis=st.integers(0, 3),
)
def test_any_axis_replays(shape, picked, axis):
    axis %= len(shape)
    out = [*shape[:axis], *picked, *shape[axis + 1 :]]
    x, indices = ",".join(map(str, shape)), ",".join(map(str, picked))

    done = run(f"{x};{indices};1", "FLOAT;INT64;INT64", ",".join(map(str, out)), "FLOAT")

    assert done.wrong is None
