"""Shells complete commands, options and values; the list of operators comes from metadata."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(sys.executable).with_name("perfcollect")
pytestmark = pytest.mark.skipif(not PROGRAM.exists(), reason="the console script is not installed here")


def ask(shell: str, words: str, count: int | str) -> list[str]:
    """Ask the program as a shell does; return the words it offers."""
    variables = {
        "COMP_WORDS": words,
        "COMP_CWORD": str(count),
        "_PERFCOLLECT_COMPLETE": f"{shell}_complete",
    }
    done = subprocess.run(
        [PROGRAM], env={**os.environ, **variables}, capture_output=True, text=True, check=False
    )
    assert done.stderr == ""
    lines = done.stdout.splitlines()
    if shell == "zsh":
        return lines[1::3]
    return [line.split(",", 1)[1].split("\t")[0] for line in lines]


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("perfcollect pa", ["parse"]),
        ("perfcollect run --upd", ["--update-mode"]),
        ("perfcollect run --update-mode ", ["all", "missing-only"]),
        ("perfcollect run --family c", ["cpu", "cuda"]),
        ("perfcollect doctor --family a", ["auto", "ascend"]),
        (
            "perfcollect parse --device ATLAS_800_A3",
            ["ATLAS_800_A3_752T_128G_DIE", "ATLAS_800_A3_560T_128G_DIE"],
        ),
        ("perfcollect db der", ["derive"]),
    ],
)
def test_bash_is_offered_what_may_follow(words, offered):
    assert ask("bash", words, words.count(" ")) == offered


@pytest.mark.parametrize("command", ["run", "replay"])
def test_operators_are_offered_by_name(command):
    offered = ask("bash", f"perfcollect {command} --ops hcom_all", 3)

    if not offered:
        pytest.skip("no collectives are installed here")
    assert set(offered) >= {"hcom_allReduce_", "hcom_allGather_"}


def test_zsh_and_fish_get_the_same_words():
    assert ask("zsh", "perfcollect run --update-mode ", 3) == ["all", "missing-only"]
    assert ask("fish", "perfcollect run --update-mode", "") == ["all", "missing-only"]


@pytest.mark.parametrize(
    ("shell", "line"),
    [
        ("bash", "complete -o nosort -F _perfcollect_completion perfcollect"),
        ("zsh", "#compdef perfcollect"),
        ("fish", 'complete --no-files --command perfcollect --arguments "(_perfcollect_completion)"'),
    ],
)
def test_each_shell_gets_its_script(shell, line):
    script = subprocess.run(
        [PROGRAM],
        env={**os.environ, "_PERFCOLLECT_COMPLETE": f"{shell}_source"},
        capture_output=True,
        text=True,
        check=True,
    ).stdout

    assert any(line in written for written in script.splitlines())


def test_bash_itself_completes_after_the_line_of_the_readme():
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("there is no bash")
    session = (
        'eval "$(_PERFCOLLECT_COMPLETE=bash_source perfcollect)"\n'
        "COMP_WORDS=(perfcollect run --update-mode miss); COMP_CWORD=3\n"
        "_perfcollect_completion perfcollect\n"
        'printf "%s\\n" "${COMPREPLY[@]}"\n'
    )
    path = f"{PROGRAM.parent}{os.pathsep}{os.environ['PATH']}"

    done = subprocess.run(
        [bash, "--norc", "-c", session],
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        check=True,
    )

    assert done.stdout == "missing-only\n"
