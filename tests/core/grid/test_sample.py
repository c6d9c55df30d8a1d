"""Which rows are taken under a cap."""

from __future__ import annotations

import random

import pytest

from perfcollect_core.grid.axes import GEMM_TOKENS, WIDTHS, dim
from perfcollect_core.grid.sample import order_rows, strata_counts, table_seed
from perfcollect_core.grid.standard import promise_of, read_standard
from perfcollect_core.grid.theory import TheoryRow, form
from perfcollect_core.specs import Axis

FORM = form("DT_BF16;DT_BF16", "DT_BF16")
AXES = (
    Axis("M", dim("O", 0, 0), standard="gemm_tokens"),
    Axis("N", dim("O", 0, 1), standard="width"),
    Axis("K", dim("I", 0, 1), standard="width"),
)
PROMISES = [promise_of(axis, read_standard()) for axis in AXES]


def gemm(pairs):
    return [
        TheoryRow(((m, k), (n, k)), ((m, n),), FORM, "gemm", (m, n, k)) for n, k in pairs for m in GEMM_TOKENS
    ]


GRID = gemm([(n, k) for n in WIDTHS[:12] for k in WIDTHS[:12]])


def take(rows, room, seed=7, **chosen):
    order = order_rows(rows, PROMISES, table_seed(seed, "MatMulV2.csv"), room, **chosen)
    return [pick for pick, _ in zip(order, range(room), strict=False)]


def test_every_candidate_comes_once():
    order = list(order_rows(GRID, PROMISES, table_seed(7, "MatMulV2.csv"), 1000))

    assert sorted(pick.index for pick in order) == list(range(len(GRID)))


def test_every_width_and_both_ends_of_the_tokens_are_there_first():
    picks = [GRID[pick.index].at for pick in take(GRID, 60)]

    assert {n for _, n, _ in picks} == {k for _, _, k in picks} == set(WIDTHS[:12])
    assert {m for m, _, _ in picks} >= {1, 32768}


def test_the_cap_buys_whole_curves_and_not_scattered_points():
    picks = take(GRID, 1000)

    taken = [GRID[pick.index].at for pick in picks]
    whole = sum(sum(at[1:] == pair for at in taken) == 37 for pair in {at[1:] for at in taken})
    assert whole >= 24
    assert strata_counts(picks).keys() <= {"required", "curve", "filling"}


def test_the_choice_does_not_depend_on_the_order_of_the_candidates():
    shuffled = random.Random(3).sample(GRID, len(GRID))

    first = {GRID[pick.index].at for pick in take(GRID, 500)}
    second = {shuffled[pick.index].at for pick in take(shuffled, 500)}

    assert first == second


def test_another_seed_and_another_table_choose_other_curves():
    chosen = {GRID[pick.index].at for pick in take(GRID, 500)}

    assert chosen != {GRID[pick.index].at for pick in take(GRID, 500, seed=8)}
    other = order_rows(GRID, PROMISES, table_seed(7, "MatMulV3.csv"), 500)
    assert chosen != {GRID[p.index].at for p, _ in zip(other, range(500), strict=False)}


def test_queries_come_before_everything_and_rows_of_an_earlier_run_next():
    picks = take(GRID, 100, critical=[40, 41], present=[90])

    assert [(pick.index, pick.stratum) for pick in picks[:3]] == [
        (40, "critical"),
        (41, "critical"),
        (90, "kept"),
    ]


def test_no_projection_goes_without_its_ends_where_there_is_room():
    rows = gemm([(n, 5120) for n in WIDTHS])  # 37 curves

    picks = [rows[pick.index].at for pick in take(rows, 300)]

    assert {(1, n, 5120) for n in WIDTHS} | {(32768, n, 5120) for n in WIDTHS} <= set(picks)


@pytest.mark.parametrize("room", [1, 10, 38])
def test_a_small_cap_is_filled(room):
    assert len(take(GRID, room)) == room
