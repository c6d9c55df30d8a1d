"""Errors end as one sentence and a hint, with the exit code that says what happened."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from perfcollect_core.cli import COMMANDS, main, perfcollect
from perfcollect_core.testing import write_distribution

PROGRAM = [sys.executable, "-c", "import sys; from perfcollect_core.cli import main; sys.exit(main())"]


def run(*arguments, path=(), **environment):
    """Run the program in a process of its own."""
    variables = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([*map(str, path), *filter(None, sys.path)]),
        **environment,
    }
    return subprocess.run(
        [*PROGRAM, *arguments], env=variables, capture_output=True, text=True, errors="replace", check=False
    )


@pytest.fixture
def command(fake_distribution):
    """Install a command ``tool`` whose body is given."""

    def make(body: str) -> None:
        source = f"import click\n\n@click.command()\n@click.pass_context\ndef tool(ctx):\n    {body}\n"
        fake_distribution("ops-tool", commands={"tool": "ops_tool:tool"}, files={"ops_tool.py": source})

    return make


def test_an_unknown_command_gets_a_suggestion(capsys):
    assert main(["opps"]) == 2
    assert capsys.readouterr().err == (
        "error: there is no command 'opps'; did you mean ops?\nhint: perfcollect --help lists the options\n"
    )


def test_an_unknown_option_gets_a_suggestion(capsys):
    assert main(["ops", "--fromat", "json"]) == 2
    assert capsys.readouterr().err.splitlines() == [
        "error: no such option '--fromat'. Did you mean '--format'?",
        "hint: perfcollect ops --help lists the options",
    ]


@pytest.mark.parametrize("group", [[], ["db"], ["plugin"]])
def test_a_group_without_a_command_shows_its_help(capsys, group):
    assert main(group) == 2

    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(" ".join(["Usage: perfcollect", *group]))
    assert "error:" not in err


def test_an_expected_error_is_one_sentence_and_a_hint(capsys):
    assert main(["ops", "show", "NoSuchKernel"]) == 1

    error, hint = capsys.readouterr().err.splitlines()
    assert error == "error: operator 'NoSuchKernel' is not provided by any installed distribution"
    assert hint.startswith("hint: ")


@pytest.mark.parametrize(
    "arguments", [["-v", "ops", "show", "NoSuchKernel"], ["ops", "show", "NoSuchKernel", "-v"]]
)
def test_verbose_shows_the_traceback(capsys, arguments):
    assert main(arguments) == 1
    assert "Traceback (most recent call last)" in capsys.readouterr().err


def test_a_bug_exits_70_and_prints_where_its_log_is(capsys, command, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    command("raise KeyError('duration')")

    assert main(["tool"]) == 70

    error, hint = capsys.readouterr().err.splitlines()
    (log,) = (tmp_path / "state" / "perfcollect").glob("error_*.log")
    assert error == "error: internal error: KeyError: 'duration'"
    assert hint == f"hint: this is a bug in perfcollect or in a plugin; report it with the log {log}"
    assert "raise KeyError('duration')" in log.read_text(encoding="utf-8")


def test_a_bug_is_logged_elsewhere_where_home_cannot_be_written(capsys, command, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("not a directory")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    command("raise KeyError('duration')")

    assert main(["tool"]) == 70
    assert str(next(tmp_path.glob("error_*.log"))) in capsys.readouterr().err


def test_an_interrupt_exits_130(capsys, command):
    command("raise KeyboardInterrupt")

    assert main(["tool"]) == 130
    assert capsys.readouterr().err.strip() == "interrupted"


@pytest.mark.parametrize(
    ("body", "code"), [("return 3", 3), ("ctx.exit(4)", 4), ("return None", 0), ("return True", 0)]
)
def test_a_command_gives_its_exit_code(command, body, code):
    command(body)

    assert main(["tool"]) == code


def test_a_file_that_cannot_be_opened_is_one_sentence(capsys, command, tmp_path):
    command(f"open({str(tmp_path / 'gone.csv')!r})")

    assert main(["tool"]) == 1
    assert (
        capsys.readouterr().err == f"error: cannot use {tmp_path / 'gone.csv'}: no such file or directory\n"
    )


def test_a_command_of_a_plugin_is_listed_without_importing_it(tmp_path):
    made = write_distribution(
        tmp_path, "ops-tool", "1.0", {"commands": {"tool": "ops_tool:tool"}}, files={"ops_tool.py": "1 / 0\n"}
    )

    done = run("--help", path=[made.path])

    assert done.returncode == 0
    assert "From ops-tool." in done.stdout


def test_a_reader_that_goes_away_is_no_error():
    reader, writer = os.pipe()
    os.close(reader)

    done = subprocess.run([*PROGRAM, "ops"], stdout=writer, stderr=subprocess.PIPE, text=True, check=False)

    os.close(writer)
    assert done.returncode == 1
    assert done.stderr == ""


def test_version_names_the_distributions_and_the_hook_api(capsys, fake_distribution):
    fake_distribution("ops-a", "1.0", operators={"Twin": "ops_a"})

    assert main(["--version"]) == 0

    first, *others = capsys.readouterr().out.splitlines()
    assert first == "perfcollect 0.1.0 (hook API 1.0)"
    assert "  ops-a 1.0" in others
    assert "  perfcollect-core 0.1.0" in others


def test_a_plain_ascii_terminal_gets_every_character_somehow(tmp_path):
    made = write_distribution(
        tmp_path, "ops-ключ", "1.0", {"operators": {"Twin": "ops_a", "Bad Öp": "ops_a"}}
    )

    done = run(
        "ops", path=[made.path], LC_ALL="C", PYTHONUTF8="0", PYTHONCOERCECLOCALE="0", PYTHONIOENCODING=""
    )

    assert done.returncode == 0, done.stderr
    assert "Twin" in done.stdout
    assert "Traceback" not in done.stderr


def test_the_table_of_commands_says_what_the_commands_say():
    for name, lazy in COMMANDS.items():
        command = perfcollect.get_command(
            perfcollect.make_context("perfcollect", ["--help"], resilient_parsing=True), name
        )

        assert command is not None
        assert command.get_short_help_str(200) == lazy.summary, name


def test_completion_offers_commands_and_options():
    done = run(_PERFCOLLECT_COMPLETE="bash_complete", COMP_WORDS="perfcollect o", COMP_CWORD="1")

    assert "plain,ops" in done.stdout.splitlines()
