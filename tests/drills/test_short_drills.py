"""The drills in short; ``make drill-kill drill-faults drill-writes`` are the long forms."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest


def load(name: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Load a drill script, which finds its neighbours through ``sys.path`` when it runs by itself."""
    here = Path(__file__).resolve().parent
    monkeypatch.syspath_prepend(str(here))
    spec = importlib.util.spec_from_file_location(f"drill_{name}", here / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_kills_at_random_moments_lose_no_row_and_measure_none_twice(tmp_path, monkeypatch):
    tally, reached = load("kill", monkeypatch).drill(tmp_path, kills=4, rows=60, seconds=300, seed=1)

    assert reached
    assert tally.kills == 4


def test_faults_of_every_kind_among_healthy_cases_blame_only_themselves(tmp_path, monkeypatch):
    line = load("faults", monkeypatch).drill(tmp_path, cases=130, share=0.1, seed=1, devices=2)

    assert "130 cases, 13 faults of 13 kinds" in line


def test_failures_of_single_writes_leave_valid_tables(tmp_path, monkeypatch):
    line = load("writes", monkeypatch).drill(tmp_path, rows=1, every=17, first=4)

    assert "tables valid every time" in line
