"""The density standard and how tables are judged by it."""

from __future__ import annotations

import pytest

from perfcollect_core.cases import Row, RowRef
from perfcollect_core.errors import DataError
from perfcollect_core.grid.axes import (
    ATTENTION_LENGTHS,
    GEMM_TOKENS,
    HEADS,
    KV_HEADS,
    MOE_TOKENS,
    PAD_TOKENS,
    TOKENS,
    WIDTHS,
    dim,
)
from perfcollect_core.grid.coverage import CoverageMeter
from perfcollect_core.grid.standard import promise_of, read_standard
from perfcollect_core.specs import Axis

AXES = (
    Axis("tokens", dim("O", 0, 0), standard="elementwise_tokens"),
    Axis("D", dim("O", 0, 1), continuous=False),
)


def row(t: int, d: int = 5120, rule: str = "elementwise grid", duration: str = "0") -> Row:
    cells = {
        "Input Shapes": f'"{t},{d}"', "Input Data Types": "DT_BF16", "Output Shapes": f'"{t},{d}"',
        "Output Data Types": "DT_BF16", "Grid Rule": rule, "Average Duration(us)": duration,
    }  # fmt: skip
    return Row(RowRef("Neg.csv", (str(t), str(d))), cells)


def judge(rows, axes=AXES):
    meter = CoverageMeter(axes, read_standard())
    for one in rows:
        meter.add(one)
    return meter.result("Neg.csv")


@pytest.mark.parametrize(
    ("name", "grid", "points"),
    [
        ("gemm_tokens", GEMM_TOKENS, 37), ("elementwise_tokens", TOKENS, 13), ("moe_tokens", MOE_TOKENS, 17),
        ("attention_length", ATTENTION_LENGTHS, 15), ("pad_tokens", PAD_TOKENS, 25), ("width", WIDTHS, 37),
        ("heads", HEADS, 16), ("kv_heads", KV_HEADS, 6),
    ],
)  # fmt: skip
def test_every_grid_keeps_ends_spacing_and_required_values_of_the_standard(name, grid, points):
    promise = promise_of(Axis(name, dim("O", 0, 0), standard=name), read_standard())

    assert promise is not None
    assert len(grid) == points
    assert set(promise.required) <= set(grid)
    assert list(promise.standard.holes(grid)) == []


@pytest.mark.parametrize(
    ("name", "values", "hole"),
    [
        ("gemm_tokens", (7, 8, 10, 13), "10 to 13 (gap at most 2)"),
        ("gemm_tokens", (1024, 2048, 8192), "2048 to 8192 (ratio at most 2)"),
        # The segment that holds the larger value governs.
        ("gemm_tokens", (8, 10), None),
        ("elementwise_tokens", (16, 64, 256), "64 to 256 (ratio at most 2)"),
        ("width", (8192, 10240, 13824), "10240 to 13824 (ratio at most 1.25)"),
    ],
)
def test_neighbours_that_are_too_far_apart_are_a_hole(name, values, hole):
    found = [str(one) for one in read_standard()[name].holes(values)]

    assert found == ([hole] if hole else [])


def test_a_full_curve_is_compliant():
    coverage = judge([row(t) for t in TOKENS])

    (axis,) = coverage.planned
    assert (axis.anchors_missing, axis.compliant, axis.owned, axis.points) == ((), 1, 1, 13)
    assert list(coverage.findings()) == []


def test_rows_removed_on_purpose_are_named_as_holes():
    coverage = judge([row(t) for t in TOKENS if t not in (512, 32768)] + [row(t, 7168) for t in TOKENS])

    assert list(coverage.findings()) == ["axis tokens: D=5120: hole 256 to 1024 (ratio at most 2); no 32768"]


def test_a_required_value_no_row_has_is_named():
    coverage = judge([row(t) for t in TOKENS if t != 1])

    assert "axis tokens: required values missing: 1" in list(coverage.findings())


def test_measured_rows_are_counted_beside_the_planned_ones():
    coverage = judge([row(t, duration="12.5" if t < 256 else "0") for t in TOKENS])

    (planned,), (measured,) = coverage.planned, coverage.measured
    assert (planned.points, measured.points) == (13, 5)
    assert (planned.compliant, measured.compliant) == (1, 0)
    assert measured.anchors_missing == (32768,)


def test_profiled_rows_beside_generated_ones_are_not_held_against_a_grid():
    coverage = judge([row(t) for t in TOKENS] + [row(136, 3584, rule="")])

    (axis,) = coverage.planned
    assert (axis.buckets, axis.owned, axis.compliant) == (2, 1, 1)


def test_a_table_without_generated_rows_is_judged_by_all_of_them():
    coverage = judge([row(136, 3584, rule="")])

    assert coverage.short


def test_an_axis_whose_ends_a_kernel_moves_is_judged_between_its_own_ends():
    axes = (Axis("tokens", dim("O", 0, 0), standard="elementwise_tokens", low=16, own_range=True), AXES[1])

    good = judge([row(t) for t in TOKENS[2:]] + [row(t, 128) for t in TOKENS[7:]], axes)
    holed = judge([row(t) for t in TOKENS[2:]] + [row(t, 128) for t in TOKENS[7:] if t != 4096], axes)

    assert list(good.findings()) == []
    assert list(holed.findings()) == ["axis tokens: D=128: hole 2048 to 8192 (ratio at most 2)"]


def test_types_spelled_in_another_way_are_one_bucket():
    rows = [row(t) for t in TOKENS]
    other = {**row(64).cells, "Input Data Types": "BFLOAT16;", "Input Shapes": '"64,5120;"'}

    coverage = judge([*(r for r in rows if r.ref.key[0] != "64"), Row(RowRef("Neg.csv", ("x",)), other)])

    assert coverage.planned[0].buckets == 1


def test_a_standard_of_ones_own_is_read(tmp_path):
    path = tmp_path / "ours.yaml"
    path.write_text('# ours\naxes:\n  tokens:\n    range: [1, 64]\n    spacing: [[64, "ratio", 2]]\n')

    standard = read_standard(path)["tokens"]

    assert (standard.low, standard.high, standard.spacing) == (1, 64, ((64, "ratio", 2.0),))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("axes:\n  tokens:\n    range: [1, sixty]\n", "line 3: '[1, sixty]' is no JSON value"),
        ("axes:\n  tokens\n", "line 2: 'tokens', expected 'name: value'"),
        ("version: 1\n", "has no axes"),
        ('axes:\n  a:\n    spacing: [[1, "gap", 1]]\n', "axis 'a' is "),
    ],
)
def test_a_standard_that_is_none_is_refused_by_line(tmp_path, text, message):
    path = tmp_path / "bad.yaml"
    path.write_text(text)

    with pytest.raises(DataError) as caught:
        read_standard(path)

    assert message in str(caught.value)


def test_an_axis_the_standard_lacks_is_named(tmp_path):
    path = tmp_path / "small.yaml"
    path.write_text("axes:\n  other:\n    range: [1, 2]\n")

    with pytest.raises(
        DataError, match="density standard has no axis 'elementwise_tokens', which axis 'tokens' keeps"
    ):
        CoverageMeter(AXES, read_standard(path))
