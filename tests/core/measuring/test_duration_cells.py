"""What a measurement writes into its row by default."""

from __future__ import annotations

import math

import attrs
import pytest

from perfcollect_core.cases import Case, Row, RowRef
from perfcollect_core.host import LoadedPlugin, compose
from perfcollect_core.measurements import Measurement, Samples
from perfcollect_core.runner.statistics import summarise
from perfcollect_core.specs import OperatorSpec
from perfcollect_core.tensors import Signature
from perfcollect_core.testing.stub_family import StubFamily

WARM = Samples((20.2,) * 30)
COLD = Samples((27.4,) * 30, cache="cold")


class Operator:
    def perfcollect_operator_spec(self, operator: str) -> OperatorSpec:
        return OperatorSpec(operator)


def cells_of(
    samples: Samples, old: dict[str, str] | None = None, statistic: str = "median"
) -> dict[str, str]:
    """Return the row after *samples* were written into it."""
    row = Row(RowRef("MatMulV2.csv", ("a",)), old or {})
    made = summarise(samples.durations_us)
    measurement = Measurement(
        samples, made, statistic, "MatMulV3", "CPU", f"cpu, perfcollect 0.1.0, {statistic}, n={made.n}"
    )
    host = compose(LoadedPlugin("MatMulV2", Operator(), "test"), LoadedPlugin("stub", StubFamily(), "core"))
    (patch,) = host.write_back(Case("MatMulV2", row.ref, Signature()), measurement, [row])
    return {**row.cells, **patch}


def test_a_warm_value_is_written_with_six_decimals_and_where_it_comes_from():
    assert cells_of(WARM) == {
        "Average Duration(us)": "20.200000",
        "Accelerator Core": "CPU",
        "Observed Kernel": "MatMulV3",
        "Cache Policy": "warm",
        "Measured With": "cpu, perfcollect 0.1.0, median, n=30",
    }


@pytest.mark.parametrize("order", [(WARM, COLD), (COLD, WARM), (WARM, COLD, WARM, COLD)])
def test_warm_and_cold_are_two_values_with_their_policy_beside_them(order):
    cells: dict[str, str] = {}
    for samples in order:
        cells = cells_of(samples, cells)

    assert cells["Average Duration(us)"] == "20.200000"
    assert cells["Cold Average Duration(us)"] == "27.400000"
    assert cells["Cache Policy"] == "warm; cold"
    assert cells["Measured With"] == (
        "cpu, perfcollect 0.1.0, median, n=30; cold: cpu, perfcollect 0.1.0, median, n=30"
    )


def test_a_cold_run_that_did_not_get_cold_says_so_and_leaves_the_warm_value():
    failed = attrs.evolve(COLD, cache="cold requested, not achieved")

    cells = cells_of(failed, cells_of(COLD, cells_of(WARM)))

    assert cells["Cache Policy"] == "warm; cold requested, not achieved"
    assert cells["Average Duration(us)"] == "20.200000"


def test_another_statistic_replaces_the_provenance_of_its_own_value_only():
    cells = cells_of(WARM, cells_of(COLD, cells_of(WARM)), statistic="min")

    assert cells["Measured With"] == (
        "cpu, perfcollect 0.1.0, min, n=30; cold: cpu, perfcollect 0.1.0, median, n=30"
    )


def test_each_counter_becomes_a_column_of_its_name_with_the_mean_of_present_values():
    samples = attrs.evolve(
        WARM,
        counters={
            "Power(W)": (300.0, 310.0, math.nan),
            "Clock(MHz)": 1980.0,
            "MicroBench aicore_time(us)": (),
            "MicroBench aiv_time(us)": (math.nan,),
        },
    )

    cells = cells_of(samples)

    assert cells["Power(W)"] == "305.000000"
    assert cells["Clock(MHz)"] == "1980.000000"
    assert not any(name.startswith("MicroBench") for name in cells)
