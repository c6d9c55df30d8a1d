"""The help of every command shows an example, and the program takes it."""

from __future__ import annotations

import re

import click
import pytest
from shell_blocks import parse_command

from perfcollect_core.cli import perfcollect
from perfcollect_core.cli.arguments import walk_commands

COMMANDS = {" ".join(path): command for path, command in walk_commands(perfcollect)}


def example_of(command: click.Command) -> str:
    text = " ".join(f"{command.help or ''}\n{command.epilog or ''}".split())
    found = re.search(r"Example: ((?:[A-Z]+=\S+ )*perfcollect .*)$", text)
    return found[1] if found else ""


@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_of_a_command_shows_an_example_that_parses(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    # An option may ask for a file that exists.
    (tmp_path / "correction.json").write_text("{}")

    example = example_of(COMMANDS[name])

    assert re.search(rf"perfcollect {name.split()[0]}\b", example), name
    parse_command(example)


def test_help_stands_at_every_command():
    for name, command in COMMANDS.items():
        assert command.get_help(click.Context(command, info_name=name)).startswith(f"Usage: {name} "), name
