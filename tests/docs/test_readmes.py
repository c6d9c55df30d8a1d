"""Both READMEs say the same, and what the program says."""

from __future__ import annotations

import re

import pytest
from option_tables import HEADERS, REPOSITORY, program_tables, read_tables

ENGLISH, CHINESE = HEADERS


def text(name: str) -> str:
    return (REPOSITORY / name).read_text(encoding="utf-8")


def code_lines(name: str) -> list[str]:
    """Return the commands in the fenced blocks of *name*, comments cut."""
    blocks = re.findall(r"```sh[^\n]*\n(.*?)```", text(name), re.DOTALL)
    return [line.partition("#")[0].strip() for block in blocks for line in block.splitlines()]


@pytest.mark.parametrize("readme", HEADERS)
def test_every_command_with_options_has_its_table(readme):
    assert sorted(read_tables(readme)) == sorted(program_tables())


@pytest.mark.parametrize("readme", HEADERS)
@pytest.mark.parametrize("command", sorted(program_tables()))
def test_a_table_lists_the_options_and_defaults_of_the_program(readme, command):
    documented = [row[:2] for row in read_tables(readme).get(command, ())]

    assert documented == [row[:2] for row in program_tables()[command]]


def test_the_english_meanings_are_those_of_the_help():
    assert read_tables(ENGLISH) == {name: program_tables()[name] for name in read_tables(ENGLISH)}


def test_every_meaning_is_translated():
    untranslated = [
        f"{command} {option}"
        for command, rows in read_tables(CHINESE).items()
        for option, _, meaning in rows
        if not re.search(r"[\u4e00-\u9fff]", meaning)
    ]

    assert untranslated == []


def test_the_readmes_show_the_same_commands():
    assert code_lines(ENGLISH) == code_lines(CHINESE)


def test_the_readmes_have_the_same_sections():
    levels = [[len(mark) for mark in re.findall(r"^(#+) ", text(name), re.MULTILINE)] for name in HEADERS]

    assert levels[0] == levels[1]


@pytest.mark.parametrize("readme", HEADERS)
def test_a_readme_opens_with_the_two_commands(readme):
    first = re.search(r"```sh make\n(.*?)```", text(readme), re.DOTALL)

    assert first is not None
    assert [line.partition("#")[0].strip() for line in first[1].splitlines()] == ["make demo", "make test"]
    assert first.start() < 600


@pytest.mark.parametrize("readme", HEADERS)
def test_the_exit_codes_are_all_there(readme):
    codes = [int(code) for code in re.findall(r"^\| (\d+) \|", text(readme), re.MULTILINE)]

    assert codes == [0, 1, 2, 3, 4, 5, 6, 70, 130]
