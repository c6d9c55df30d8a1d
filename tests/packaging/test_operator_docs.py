"""docs/operators.md says everything about every operator and is what the specs say today."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

pytest.importorskip("perfcollect_ops_builtin")
pytest.importorskip("perfcollect_ops_vllm_ascend")

SCRIPT = Path(__file__).parents[2] / "docs" / "generate_operators.py"
_spec = importlib.util.spec_from_file_location("generate_operators", SCRIPT)
page = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(page)

OPERATORS = [name for distribution in page.DISTRIBUTIONS for name in page.operator_names(distribution)]


def test_both_distributions_offer_36_operators():
    assert len(OPERATORS) == 36


@pytest.mark.parametrize("operator", OPERATORS)
def test_no_field_of_an_operator_is_empty(operator):
    fields = page.describe(operator)

    assert [name for name, text in fields.items() if not text.strip()] == []
    assert set(fields) >= {"Summary", *page.FIELDS}


def test_the_page_is_current():
    assert page.PAGE.read_text(encoding="utf-8") == page.render(), "run python docs/generate_operators.py"


def test_check_tells_a_stale_page_from_a_current_one(tmp_path, monkeypatch):
    monkeypatch.setattr("sys.argv", ["generate_operators.py", "--check"])
    monkeypatch.setattr(page, "PAGE", tmp_path / "operators.md")

    before = page.main()
    page.PAGE.write_text(page.render(), encoding="utf-8")

    assert (before, page.main()) == (1, 0)
