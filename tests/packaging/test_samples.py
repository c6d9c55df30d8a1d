"""The bundled sample database is made of the operators' own example rows."""

from __future__ import annotations

from pathlib import Path

import pytest

from perfcollect_core.discovery import plugin_index
from perfcollect_core.loading import load_operator
from perfcollect_core.tables.columns import has_valid_duration, is_measurement
from perfcollect_core.tables.read import read_table

DATABASE = Path(__file__).parents[2] / "samples" / "database"
OPERATORS = sorted(name for name in plugin_index().names("operators") if not name.startswith("hcom_"))


def test_the_sample_database_holds_a_table_of_each_operator_and_no_other():
    assert sorted(path.stem for path in DATABASE.glob("*.csv")) == OPERATORS
    assert len(OPERATORS) == 36


@pytest.mark.parametrize("operator", OPERATORS)
def test_the_rows_are_the_examples_of_the_operator_and_claim_no_duration(operator):
    spec = load_operator(operator).plugin.perfcollect_operator_spec(operator=operator)

    table = read_table(DATABASE / f"{operator}.csv")

    def words(cells):
        return {c: v.strip('"') for c, v in cells.items() if v and c != "OP State" and not is_measurement(c)}

    expected = [words(row) for row in spec.examples]
    found = [words(row.cells) for row in table.rows]
    assert len(found) >= 3
    assert sorted(map(sorted, (f.items() for f in found))) == sorted(
        map(sorted, (e.items() for e in expected))
    ), "run make samples"
    assert not any(has_valid_duration(row.cells) for row in table.rows)
