"""Results go to stdout, everything else to stderr, plain where nobody looks on."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from perfcollect_core.cli import output


@pytest.fixture(autouse=True)
def _quietness():
    yield
    output.set_verbosity(0)


def test_a_table_is_aligned_with_numbers_to_the_right():
    text = output.format_table(["operator", "rows"], [["MatMulV2", 1160], ["Add", 5]], right=(1,))

    assert text.splitlines() == ["operator  rows", "MatMulV2  1160", "Add          5"]


def test_a_table_without_rows_is_its_header():
    assert output.format_table(["operator", "rows"], []) == "operator  rows"


@pytest.mark.parametrize("text", ["one\ntwo", ["one", "two"], lambda: "one\ntwo"])
def test_text_comes_as_text_lines_or_what_makes_them(capsys, text):
    output.emit({"n": 1}, text)

    assert capsys.readouterr().out == "one\ntwo\n"


def test_json_is_made_instead_of_the_text(capsys):
    output.emit({"rows": 1160}, lambda: 1 / 0, "json")

    assert json.loads(capsys.readouterr().out) == {"rows": 1160}


@pytest.mark.parametrize(
    ("level", "said"), [(0, "noted\nwarning: told\n"), (-1, "warning: told\n"), (1, "noted\nwarning: told\n")]
)
def test_quiet_keeps_warnings(capsys, level, said):
    output.set_verbosity(level)

    output.note("noted")
    output.warn("told")

    assert capsys.readouterr() == ("", said)


def test_progress_without_a_terminal_is_a_line_now_and_then_with_rate_and_eta(capsys, monkeypatch):
    now = iter([0.0, 4.0, 20.0, 24.0])
    monkeypatch.setattr("time.monotonic", lambda: next(now))

    with output.progress(40, "cases") as bar:
        bar.advance()
        bar.advance(9)
        bar.advance()

    assert capsys.readouterr() == ("", "cases: 10 of 40, 0.5/s, 60 s left\n")


def test_progress_is_silent_when_quiet(capsys):
    output.set_verbosity(-1)

    with output.progress(1, "cases") as bar:
        bar.advance()
        bar.print("something")

    assert capsys.readouterr() == ("", "")


def test_a_bar_is_shown_on_a_terminal():
    pty = pytest.importorskip("pty")
    leader, follower = pty.openpty()
    code = (
        "from perfcollect_core.cli.output import progress\n"
        "with progress(2, 'cases') as bar:\n    bar.advance(1, 'MatMulV2')\n    bar.print('a line above')\n    bar.advance()\n"
    )
    environment = {**os.environ, "TERM": "xterm", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}

    done = subprocess.run(
        [sys.executable, "-c", code], stderr=follower, stdout=subprocess.PIPE, env=environment, check=True
    )

    os.close(follower)
    shown = os.read(leader, 1 << 16).decode()
    os.close(leader)
    assert done.stdout == b""
    assert "2/2" in shown
    assert "a line above" in shown
