"""Options that take several values: ``--ops A B C`` is rewritten to ``--ops A --ops B --ops C`` before click sees it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import click

__all__ = [
    "MultiOption",
    "complete_device",
    "complete_family",
    "complete_operator",
    "expand_arguments",
    "multi_option",
    "walk_commands",
]

_F = TypeVar("_F", bound=Callable[..., Any])

#: General options that may stand anywhere; they are moved in front of the command.
_GENERAL = ("-v", "--verbose", "-q", "--quiet")


class MultiOption(click.Option):
    """An option whose values run up to the next token that starts with ``-``; the command gets a tuple."""


def multi_option(*names: str, **attributes: Any) -> Callable[[_F], _F]:
    """Declare an option that takes one or more values; use it like ``click.option``."""
    attributes.setdefault("metavar", "NAME...")
    return click.option(*names, cls=MultiOption, multiple=True, **attributes)


def complete_operator(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """Offer a shell the operators that are installed, from metadata alone."""
    return _names("operators", incomplete)


def complete_family(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """Offer a shell the device families that are installed."""
    return [name for name in ("auto", *_names("families", "")) if name.startswith(incomplete)]


def complete_device(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """Offer a shell the device names of Ascend."""
    from perfcollect_core.tables.layout import ASCEND_DEVICES

    return [name for name in ASCEND_DEVICES if name.startswith(incomplete.upper())]


def _names(group: str, incomplete: str) -> list[str]:
    from perfcollect_core.discovery import plugin_index

    return [name for name in plugin_index().names(group) if name.startswith(incomplete)]


def expand_arguments(group: click.Group, arguments: Sequence[str], *, complete: bool = True) -> list[str]:
    """Rewrite *arguments* of *group* so that click's one value an option is enough.

    A shell that completes a line has not got all of it yet: ``complete=False``.

    Raises:
        click.BadOptionUsage: An option that needs values got none, and the line is complete.
    """
    context = click.Context(group, info_name=group.name)
    command: click.Command = group
    general: list[str] = []
    done: list[str] = []
    rest = list(arguments)
    while rest:
        token = rest.pop(0)
        if token == "--":
            done += [token, *rest]
            break
        parameter = _option(command, token)
        if token in _GENERAL and (command is group or parameter is None):
            general.append(token)
        elif isinstance(parameter, MultiOption):
            done += _expand(parameter, token, rest, context) if rest or complete else [token]
        elif parameter is not None:
            done.append(token)
            # An option whose value may be left out (--resume [RUN]) takes none that looks like an option.
            left_out = parameter._flag_needs_value and rest and rest[0].startswith("-")
            if "=" not in token and not parameter.is_flag and not parameter.count and not left_out:
                done += rest[: parameter.nargs]
                del rest[: parameter.nargs]
        else:
            done.append(token)
            if isinstance(command, click.Group) and not token.startswith("-"):
                command = command.get_command(context, token) or command
    return [*general, *done]


def _expand(option: MultiOption, token: str, rest: list[str], context: click.Context) -> list[str]:
    name, equals, _ = token.partition("=")
    if equals:
        return [token]
    values = []
    while rest and not rest[0].startswith("-"):
        values.append(rest.pop(0))
    if not values:
        raise click.BadOptionUsage(name, f"option {name!r} needs at least one value", context)
    return [word for value in values for word in (name, value)]


def _option(command: click.Command, token: str) -> click.Option | None:
    if not token.startswith("-"):
        return None
    name = token.partition("=")[0]
    for parameter in command.params:
        if isinstance(parameter, click.Option) and name in (*parameter.opts, *parameter.secondary_opts):
            return parameter
    return None


def walk_commands(
    group: click.Group, path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Yield every command below *group* with its path, groups too; imports each command's module."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if command is None:
            continue
        yield (*path, name), command
        if isinstance(command, click.Group):
            yield from walk_commands(command, (*path, name))
