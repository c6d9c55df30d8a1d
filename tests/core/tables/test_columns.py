"""Durations in cells: what counts as measured."""

from __future__ import annotations

import pytest

from perfcollect_core.tables.columns import duration_us, has_valid_duration


@pytest.mark.parametrize(
    ("text", "value"), [("61.0", 61.0), (" 12.5\t", 12.5), ("6.1E+01", 61.0), ('"7"', 7.0)]
)
def test_positive_numbers_are_durations(text, value):
    assert duration_us(text) == value


@pytest.mark.parametrize("text", [None, "", "0", "0.000000", "-1", "nan", "inf", "N/A", "1_0", "61,4", "bad"])
def test_anything_else_is_not_measured(text):
    assert duration_us(text) is None


@pytest.mark.parametrize(
    ("column", "valid"),
    [
        ("Average Duration(us)", True),
        ("Cold Average Duration(us)", True),
        ("Profiling Average Duration(us)", True),
        ("Profiling Median Duration(us)", False),
        ("MicroBench aicore_time(us)", False),
    ],
)
def test_three_columns_say_whether_a_row_was_measured(column, valid):
    assert has_valid_duration({column: "61.0", "Input Shapes": "1,2"}) is valid
