"""On another system than Linux the commands that measure say so in one line; the others work."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from perfcollect_core.cli import main

SAMPLES = Path(__file__).parents[3] / "samples" / "database"


@pytest.fixture(params=[("darwin", "Darwin"), ("win32", "Windows")])
def elsewhere(request, monkeypatch) -> str:
    # Only what the program asks about the system is changed: there is none of these here.
    monkeypatch.setattr("perfcollect_core.cli.platforms.sys", type(sys)("sys"))
    monkeypatch.setattr("perfcollect_core.cli.platforms.sys.platform", request.param[0], raising=False)
    monkeypatch.setattr("platform.system", lambda: request.param[1])
    return str(request.param[1])


@pytest.mark.parametrize("command", ["run", "replay"])
def test_a_run_says_that_it_measures_on_linux_only(elsewhere, capsys, tmp_path, command):
    assert main([command, "--database-path", str(tmp_path)]) == 1

    assert capsys.readouterr().err == (
        f"error: perfcollect {command} measures on Linux only, this is {elsewhere}\n"
        "hint: parse, grid, db and ops work here\n"
    )


def test_comm_says_that_it_measures_on_linux_only(elsewhere, capsys):
    pytest.importorskip("perfcollect_comm")

    assert main(["comm", "run", "--backend", "gloo", "--nproc", "2"]) == 1

    assert capsys.readouterr().err.splitlines()[0] == (
        f"error: perfcollect comm measures on Linux only, this is {elsewhere}"
    )


def test_tables_are_derived_and_looked_at_anywhere(elsewhere, capsys, tmp_path):
    if not SAMPLES.is_dir():
        pytest.skip("the sample database is not beside these tests")

    assert main(["db", "derive", str(SAMPLES), str(tmp_path / "cpu"), "--device", "CPU_X86_64"]) == 0
    assert main(["db", "info", str(tmp_path / "cpu")]) == 0
    assert main(["ops"]) == 0
