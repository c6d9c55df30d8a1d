"""Outputs against references: what agrees, what differs and how that is said."""

from __future__ import annotations

import math

import pytest

from perfcollect_core import checking
from perfcollect_core.checking import difference
from perfcollect_core.measurements import Reference, Tolerance

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

BF16 = Tolerance(2e-2, 2e-2)
EXACT = Tolerance(0.0, 0.0)
INF = math.inf


def wrong(got: object, want: object, tolerance: Tolerance = BF16) -> str | None:
    return difference((torch.as_tensor(got),), Reference((torch.as_tensor(want),), (tolerance,)))


def test_a_bfloat16_product_agrees_with_its_double_reference():
    left, right = torch.randn(64, 512), torch.randn(512, 64)
    want = left.to(torch.bfloat16).double() @ right.to(torch.bfloat16).double()

    got = left.to(torch.bfloat16) @ right.to(torch.bfloat16)

    assert difference((got,), Reference((want,), (Tolerance(1e-2, 1e-1),))) is None


def test_the_worst_element_is_named_with_both_values():
    got, want = torch.zeros(2, 4), torch.zeros(2, 4)
    got[0, 1], got[1, 2] = 0.5, -3.0

    assert wrong(got, want) == "output 0: 2 of 8 elements differ, worst at 6: -3, expected 0"


def test_another_shape_is_a_difference():
    assert wrong(torch.zeros(4, 2), torch.zeros(2, 4)) == "output 0: shape (4, 2), expected (2, 4)"


@pytest.mark.parametrize(
    ("got", "want", "agrees"),
    [
        (1.02, 1.0, True),
        (1.05, 1.0, False),
        (-INF, -INF, True),
        (INF, -INF, False),
        (0.0, INF, False),
        (INF, 0.0, False),
        (math.nan, 0.0, False),
        (math.nan, math.nan, False),
        (0.0, math.nan, False),
    ],
)
def test_agreement_of_one_element(got, want, agrees):
    assert (wrong([got], [want]) is None) == agrees


def test_large_integers_are_compared_exactly():
    assert wrong([2**60 + 1], [2**60], EXACT) == (
        f"output 0: 1 of 1 elements differ, worst at 0: {2**60 + 1}, expected {2**60}"
    )


def test_quantised_integers_may_be_one_apart_where_the_tolerance_says_so():
    got, want = torch.tensor([127, -3], dtype=torch.int8), torch.tensor([126, -2], dtype=torch.int8)

    assert wrong(got, want, Tolerance(0.0, 1.0)) is None
    assert wrong(got, want, EXACT) is not None


def test_booleans_are_compared_as_such():
    assert wrong([True, False], [True, False], EXACT) is None
    assert wrong([True, True], [True, False], EXACT) == (
        "output 0: 1 of 2 elements differ, worst at 1: True, expected False"
    )


def test_complex_numbers_differ_in_their_imaginary_part():
    assert wrong([1 + 1j], [1 + 2j]) is not None
    assert wrong([1 + 1j], [1 + 1j]) is None


def test_eight_bit_floats_are_compared():
    values = torch.tensor([0.5, 1.5]).to(torch.float8_e4m3fn)

    assert wrong(values, [0.5, 1.5]) is None


def test_a_share_of_outliers_is_allowed_but_never_a_nan():
    want = torch.zeros(1000)
    got = want.clone()
    got[5] = 1.0

    assert wrong(got, want, Tolerance(0.0, 1e-3, outliers=1e-3)) is None

    got[5] = math.nan
    assert wrong(got, want, Tolerance(0.0, 1e-3, outliers=1e-3)) is not None


def test_a_missing_output_is_a_difference():
    reference = Reference((torch.zeros(1), torch.zeros(1)), (BF16, BF16))

    assert difference((torch.zeros(1),), reference) == "1 outputs, expected 2"
    assert difference((torch.zeros(1), None), reference) == "output 1 is missing"


def test_an_output_nobody_compares_may_be_missing():
    assert difference((torch.zeros(1), None), Reference((torch.zeros(1), None), (BF16,))) is None


def test_one_tolerance_holds_for_all_outputs():
    reference = Reference((torch.zeros(1), torch.zeros(1)), (BF16,))

    found = difference((torch.zeros(1), torch.ones(1)), reference)

    assert found == "output 1: 1 of 1 elements differ, worst at 0: 1, expected 0"


def test_the_operators_own_comparison_replaces_the_element_wise_one():
    reference = Reference((), (), compare=lambda actual: "set of indices differs")

    assert difference((), reference) == "set of indices differs"


def test_blocks_give_what_the_whole_gives(monkeypatch):
    monkeypatch.setattr(checking, "_BLOCK", 7)
    want = torch.arange(40, dtype=torch.float32)
    got = want.clone()
    got[3] += 1
    got[33] -= 5

    assert wrong(got, want) == "output 0: 2 of 40 elements differ, worst at 33: 28, expected 33"


def test_outputs_out_of_order_in_memory_are_compared_by_position():
    want = torch.arange(12.0).reshape(3, 4)

    assert wrong(want.T.contiguous().T, want, EXACT) is None


def test_empty_outputs_agree():
    assert wrong(torch.zeros(0, 4), torch.zeros(0, 4)) is None
