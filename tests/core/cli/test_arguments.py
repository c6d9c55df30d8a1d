"""Options of several values take them up to the next option, wherever they are declared."""

from __future__ import annotations

import click
import pytest

from perfcollect_core.cli import main, perfcollect
from perfcollect_core.cli.arguments import MultiOption, expand_arguments, multi_option, walk_commands

HELP = click.Option(["-v", "--verbose"], is_flag=True)


def group():
    """Make a program with one command and one command of a group."""

    @click.command()
    @click.argument("directory", required=False)
    @multi_option("--ops", "-o")
    @multi_option("--devices")
    @click.option("--limit", type=int)
    @click.option("--pair", nargs=2)
    @click.option("--dry-run", is_flag=True)
    def work(**values):
        return values

    return click.Group(
        "program",
        commands={"work": work, "more": click.Group("more", commands={"work": work})},
        params=[HELP],
    )


def values(*arguments):
    program = group()
    return program.main(expand_arguments(program, arguments), standalone_mode=False)


@pytest.mark.parametrize("path", [["work"], ["more", "work"]])
def test_values_run_up_to_the_next_option(path):
    found = values(*path, "--ops", "Add", "MatMulV2", "--limit", "3", "--devices", "0", "1")

    assert found["ops"] == ("Add", "MatMulV2")
    assert found["devices"] == ("0", "1")
    assert found["limit"] == 3


@pytest.mark.parametrize(
    ("arguments", "ops"),
    [
        (["--ops", "Add", "--ops", "Sort", "Index"], ("Add", "Sort", "Index")),
        (["-o", "Add", "Sort"], ("Add", "Sort")),
        (["--ops=Add", "--limit", "1"], ("Add",)),
        (["--dry-run", "--ops", "Add"], ("Add",)),
        (["--pair", "--ops", "x", "--ops", "Add"], ("Add",)),
        ([], ()),
    ],
)
def test_values_gather_however_they_are_written(arguments, ops):
    assert values("work", *arguments)["ops"] == ops


def test_an_argument_before_the_option_stays_one():
    found = values("work", "db", "--ops", "Add")

    assert found["directory"] == "db"
    assert found["ops"] == ("Add",)


def test_everything_after_two_dashes_is_left_alone():
    assert values("work", "--ops", "Add", "--", "--ops")["directory"] == "--ops"


@pytest.mark.parametrize("arguments", [["--ops"], ["--ops", "--limit", "3"]])
def test_an_option_without_a_value_is_an_error(arguments):
    with pytest.raises(click.BadOptionUsage) as caught:
        values("work", *arguments)

    assert caught.value.format_message() == "option '--ops' needs at least one value"


def test_general_options_may_stand_anywhere():
    assert expand_arguments(group(), ["more", "work", "--ops", "Add", "-v"]) == [
        "-v",
        "more",
        "work",
        "--ops",
        "Add",
    ]


def test_a_value_that_looks_like_a_general_option_is_a_value():
    assert expand_arguments(group(), ["work", "--limit", "-v"]) == ["work", "--limit", "-v"]


def multi_options():
    return [
        (path, option.opts[0])
        for path, command in walk_commands(perfcollect)
        for option in command.params
        if isinstance(option, MultiOption)
    ]


@pytest.mark.parametrize(
    ("path", "option"),
    multi_options(),
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else value,
)
def test_every_option_of_several_values_takes_them(path, option):
    arguments = expand_arguments(perfcollect, [*path, option, "one", "two", "three"])

    assert arguments == [*path, option, "one", option, "two", option, "three"]


@pytest.mark.parametrize(
    ("path", "option"),
    multi_options(),
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else value,
)
def test_every_option_of_several_values_needs_one(path, option, capsys):
    assert main([*path, option]) == 2
    assert f"option {option!r} needs at least one value" in capsys.readouterr().err


def test_no_option_declares_many_values_another_way():
    others = [
        f"{' '.join(path)} {option.opts[0]}"
        for path, command in walk_commands(perfcollect)
        for option in command.params
        if isinstance(option, click.Option) and option.multiple and not isinstance(option, MultiOption)
    ]

    assert [name for name in others if not name.endswith("--table")] == []


def test_every_command_shows_a_real_example():
    lacking = []
    for path, command in walk_commands(perfcollect):
        told = command.get_help(click.Context(command, info_name=path[-1]))
        if f"perfcollect {path[0]}" not in told:
            lacking.append(" ".join(path))

    assert lacking == []
