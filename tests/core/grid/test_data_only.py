"""Rules of kernels that no operator replays."""

from __future__ import annotations

import pytest

from perfcollect_core.grid.axes import rows_axis
from perfcollect_core.grid.cells import row_of
from perfcollect_core.grid.coverage import CoverageMeter
from perfcollect_core.grid.data_only import DATA_ONLY
from perfcollect_core.grid.generate import variant_of
from perfcollect_core.grid.standard import read_standard
from perfcollect_core.specs import GridRequest, OperatorSpec

RULES = {rule.name: (kernel, rule) for kernel, rule in DATA_ONLY.items()}


def rows_of(kernel):
    return list(DATA_ONLY[kernel](OperatorSpec(kernel), (), GridRequest()))


@pytest.mark.parametrize("kernel", sorted(kernel for kernel, rule in RULES.values()))
def test_every_rule_yields_rows_whose_slots_agree_and_that_say_where_they_stand(kernel):
    rows = rows_of(kernel)

    for row in rows[:: max(1, len(rows) // 50)]:
        assert len(row.inputs) == len(row.form.input_dtypes)
        assert len(row.outputs) == len(row.form.output_dtypes)
        assert rows_axis(DATA_ONLY[kernel].axes, row_of("", kernel, row)) == row.at
        assert row.rule.endswith("(not replayable)")


@pytest.mark.parametrize("kernel", sorted(kernel for kernel, rule in RULES.values() if rule.name != "matmul"))
def test_every_rule_holds_the_density_standard(kernel):
    meter = CoverageMeter(DATA_ONLY[kernel].axes, read_standard())
    for row in rows_of(kernel):
        meter.add_at(variant_of(row), row.at, True)

    assert list(meter.result(f"{kernel}.csv").findings()) == []


@pytest.mark.parametrize(
    ("kernel", "count"),
    [
        ("Mul", 481),
        ("AttentionUpdate", 432),
        ("AsStrided", 147),
        ("Tile", 78),
        ("ConcatD", 91),
        ("GatherV3", 6253),
    ],
)
def test_a_rule_has_as_many_rows_as_its_axes_say(kernel, count):
    assert len(rows_of(kernel)) == count


def test_the_bias_and_the_third_output_of_the_gate_have_one_value_an_expert():
    row = rows_of("MoeGatingTopK")[0]

    assert (row.inputs[1], row.outputs[2]) == ((64,), (1, 64))
