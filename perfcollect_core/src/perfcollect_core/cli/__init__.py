"""The command line: a group that imports a command only when it runs, and the boundary where errors end."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence
from typing import NamedTuple

import click

from perfcollect_core.errors import PerfcollectError

from .arguments import expand_arguments
from .output import make_streams_safe, note, print_error, set_verbosity, verbosity

__all__ = ["COMMANDS", "LazyGroup", "main", "perfcollect"]


class LazyCommand(NamedTuple):
    """Where a command is (``module:attribute`` below ``perfcollect_core.cli``) and its line in ``--help``."""

    target: str
    summary: str


#: A command's function returns its exit code as an int, or ``None`` for 0; it may also call ``ctx.exit(code)``.
COMMANDS = {
    "db": LazyCommand("db:db", "Make, list and check databases."),
    "doctor": LazyCommand("doctor:doctor", "Check the plugins and the machine, with a fix for each finding."),
    "grid": LazyCommand(
        "grid:grid",
        "Extend the tables of a database with shapes that models produce, for a later run to measure.",
    ),
    "ops": LazyCommand("ops:ops", "List the operators that are installed."),
    "parse": LazyCommand("parse:parse", "Turn profiler output into the tables of a database."),
    "plugin": LazyCommand("plugin:plugin", "Start a plugin of your own."),
    "replay": LazyCommand("replay:replay", "Launch the rows of a database without measuring them, to debug."),
    "run": LazyCommand(
        "run:run", "Replay the rows of a database, measure them and write the durations back."
    ),
    "trace-to-csv": LazyCommand(
        "trace_to_csv:trace_to_csv",
        "Turn the Chrome trace of a TensorCast simulation into CSV, one row for each event.",
    ),
}


class LazyGroup(click.Group):
    """Commands by name only: listing them imports nothing, and one that runs imports its own module."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        from perfcollect_core.discovery import plugin_index

        return sorted({*COMMANDS, *plugin_index().names("commands")})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name in COMMANDS:
            module, _, attribute = COMMANDS[cmd_name].target.partition(":")
            command = getattr(importlib.import_module(f"{__name__}.{module}"), attribute)
        else:
            from perfcollect_core.discovery import plugin_index
            from perfcollect_core.loading import load_provider

            if not plugin_index().providers("commands", cmd_name):
                return None
            command = load_provider(plugin_index().require("commands", cmd_name)).plugin
        if not isinstance(command, click.Command):
            raise TypeError(f"command {cmd_name!r} is a {type(command).__name__}, expected a click command")
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        known = self.list_commands(ctx)
        if args and not args[0].startswith("-") and args[0] not in known:
            import difflib

            close = difflib.get_close_matches(args[0], known, n=2)
            hint = f"; did you mean {' or '.join(close)}?" if close else f"; there are {', '.join(known)}"
            raise click.UsageError(f"there is no command {args[0]!r}{hint}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        rows = []
        for name in self.list_commands(ctx):
            known = COMMANDS.get(name)
            rows.append((name, known.summary if known else _plugin_summary(name)))
        with formatter.section("Commands"):
            formatter.write_dl(rows)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, expand_arguments(self, args, complete=not ctx.resilient_parsing))


def _plugin_summary(name: str) -> str:
    from perfcollect_core.discovery import plugin_index

    # Its own help line would have to be imported.
    return f"From {', '.join(p.distribution for p in plugin_index().providers('commands', name))}."


def _print_version(ctx: click.Context, parameter: click.Parameter, value: bool) -> None:
    if not value or ctx.resilient_parsing:
        return
    from perfcollect_core import HOOK_API, __version__
    from perfcollect_core.discovery import plugin_index

    versions = {"perfcollect-core": __version__, **plugin_index().distributions()}
    click.echo(f"perfcollect {__version__} (hook API {HOOK_API[0]}.{HOOK_API[1]})")
    for distribution, version in versions.items():
        click.echo(f"  {distribution} {version}")
    ctx.exit()


@click.group(
    cls=LazyGroup,
    epilog="Example: perfcollect run --ops MatMulV2 --database-path ./data/CPU_X86_64/torch2.13.0",
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_version,
    help="Show the installed distributions and the hook API, and exit.",
)
@click.option("-v", "--verbose", is_flag=True, help="Say more; show the traceback of an error.")
@click.option("-q", "--quiet", is_flag=True, help="Say only results, warnings and errors.")
def perfcollect(verbose: bool, quiet: bool) -> None:
    """Build and refresh operator performance databases for LLM serving."""
    set_verbosity(1 if verbose else -1 if quiet else 0)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code (decision 9); the one place where every error ends."""
    make_streams_safe()
    set_verbosity(0)
    try:
        code = perfcollect.main(
            args=None if arguments is None else list(arguments),
            prog_name="perfcollect",
            standalone_mode=False,
        )
        return code if isinstance(code, int) and not isinstance(code, bool) else 0
    except PerfcollectError as error:
        _show_traceback()
        print_error(str(error), error.hint)
        return error.exit_code
    except click.ClickException as error:
        return _usage_error(error)
    except (click.Abort, KeyboardInterrupt):
        note("interrupted")
        return 130
    except BrokenPipeError:
        # The reader went away (a pager, head): say nothing, and keep the interpreter's last flush from saying it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as error:
        if error.errno is None or error.filename is None:
            return _bug(error)
        _show_traceback()
        print_error(
            f"cannot use {os.fspath(error.filename)!s}: {(error.strerror or 'unknown error').lower()}"
        )
        return 1
    except Exception as error:
        return _bug(error)


def _show_traceback() -> None:
    if verbosity() > 0:
        import traceback

        traceback.print_exc()


def _usage_error(error: click.ClickException) -> int:
    if type(error).__name__ == "NoArgsIsHelpError":
        # Its message is the help of a group that was called without a command.
        click.echo(error.format_message(), err=True)
        return 2
    message = error.format_message().strip().rstrip(".")
    context = error.ctx if isinstance(error, click.UsageError) else None
    path = context.command_path if context is not None else "perfcollect"
    print_error(message[:1].lower() + message[1:], f"{path} --help lists the options")
    return 2


def _bug(error: Exception) -> int:
    _show_traceback()
    log = _write_bug_log(error)
    print_error(
        f"internal error: {type(error).__name__}: {' '.join(str(error).split())}",
        f"this is a bug in perfcollect or in a plugin; report it with the log {log}",
    )
    return 70


def _write_bug_log(error: Exception) -> str:
    import tempfile
    import time
    import traceback
    from pathlib import Path

    state = Path(os.environ.get("XDG_STATE_HOME") or "~/.local/state").expanduser()
    name = f"error_{time.strftime('%Y%m%dT%H%M%S')}_{os.getpid()}.log"
    text = f"arguments: {sys.argv!r}\n" + "".join(traceback.format_exception(error))
    for directory in (state / "perfcollect", Path(tempfile.gettempdir())):
        try:
            directory.mkdir(parents=True, exist_ok=True)
            (directory / name).write_text(text, encoding="utf-8", errors="backslashreplace")
            return str(directory / name)
        except OSError:
            continue
    return "(no log could be written; run again with -v)"
