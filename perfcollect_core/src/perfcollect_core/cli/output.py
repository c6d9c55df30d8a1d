"""What commands print: results to stdout, everything else to stderr, plain where nobody looks on."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol, TypeVar

import click

__all__ = [
    "Progress",
    "emit",
    "format_option",
    "format_table",
    "make_streams_safe",
    "note",
    "print_error",
    "progress",
    "set_verbosity",
    "verbosity",
    "warn",
]

_F = TypeVar("_F", bound=Callable[..., Any])

_verbosity = 0


def set_verbosity(level: int) -> None:
    """Set how much is said: 1 for ``-v``, -1 for ``-q``."""
    global _verbosity
    _verbosity = level


def verbosity() -> int:
    """Return 1 after ``-v``, -1 after ``-q``, else 0."""
    return _verbosity


def make_streams_safe() -> None:
    """Keep stdout and stderr from failing on a character their encoding lacks (``LC_ALL=C``)."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is None:
            continue
        unicode = (stream.encoding or "").lower().replace("-", "") == "utf8"
        # File names that are not UTF-8 come in as surrogates and leave as the bytes they were.
        reconfigure(errors="surrogateescape" if unicode else "backslashreplace")


def format_option(function: _F) -> _F:
    """Add ``--format text|json`` to a command, as argument ``output_format``."""
    return click.option(
        "--format",
        "output_format",
        type=click.Choice(["text", "json"]),
        default="text",
        show_default=True,
        help="Text for people, or JSON for programs.",
    )(function)


def emit(result: object, text: str | Sequence[str] | Callable[[], str], output_format: str = "text") -> None:
    """Print *result* as JSON where that was asked for, else *text* (a string, lines, or what makes them)."""
    if output_format == "json":
        import json

        click.echo(json.dumps(result, indent=2, default=str))
        return
    written = text() if callable(text) else text
    click.echo(written if isinstance(written, str) else "\n".join(written))


def format_table(
    header: Sequence[str], rows: Sequence[Sequence[object]], *, right: Sequence[int] = ()
) -> str:
    """Lay *rows* out in aligned columns under *header*; the columns whose index is in *right* are right-aligned."""
    cells = [[str(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(header, *cells, strict=True)]

    def line(row: Sequence[str]) -> str:
        padded = (
            cell.rjust(width) if index in right else cell.ljust(width)
            for index, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        return "  ".join(padded).rstrip()

    return "\n".join(
        [click.style(line(header), bold=True) if sys.stdout.isatty() else line(header), *map(line, cells)]
    )


def note(message: str) -> None:
    """Say something useful on stderr, unless ``-q``."""
    if _verbosity >= 0:
        click.echo(message, err=True)


def warn(message: str) -> None:
    """Say on stderr, even with ``-q``, what the user has to know."""
    click.echo(_styled("warning: ", "yellow") + message, err=True)


def print_error(message: str, hint: str | None = None) -> None:
    """Print an error as one sentence, and what to do on a second line."""
    click.echo(_styled("error: ", "red") + message, err=True)
    if hint:
        click.echo(_styled("hint: ", "cyan") + hint, err=True)


def _styled(text: str, colour: str) -> str:
    return click.style(text, fg=colour, bold=True) if sys.stderr.isatty() else text


class Progress(Protocol):
    """What ``progress`` yields."""

    def advance(self, count: int = 1, message: str = "") -> None:
        """Count *count* more as done; *message* says what is in hand."""

    def print(self, message: str) -> None:
        """Print a line above the bar."""


class _Lines:
    """Progress where nobody looks on: one line every *every_seconds* at most, with rate and ETA."""

    def __init__(self, total: int, label: str, every_seconds: float = 10.0) -> None:
        self._total, self._label, self._every = total, label, every_seconds
        self._done = 0
        self._started = self._last = time.monotonic()

    def advance(self, count: int = 1, message: str = "") -> None:
        self._done += count
        now = time.monotonic()
        if _verbosity < 0 or now - self._last < self._every:
            return
        self._last = now
        rate = self._done / (now - self._started)
        left = (self._total - self._done) / rate if rate else 0.0
        click.echo(f"{self._label}: {self._done} of {self._total}, {rate:.1f}/s, {left:.0f} s left", err=True)

    def print(self, message: str) -> None:
        note(message)


class _Bar:
    """Progress on a terminal."""

    def __init__(self, bar: Any, task: Any) -> None:
        self._bar, self._task = bar, task
        self._done = 0
        self._started = time.monotonic()

    def advance(self, count: int = 1, message: str = "") -> None:
        self._done += count
        rate = self._done / max(time.monotonic() - self._started, 1e-6)
        self._bar.update(self._task, advance=count, message=message, rate=f"{rate:.1f}/s")

    def print(self, message: str) -> None:
        self._bar.console.print(message, markup=False, highlight=False)


@contextmanager
def progress(total: int, label: str) -> Iterator[Progress]:
    """Show progress on stderr: a bar with rate and ETA on a terminal, a line now and then elsewhere."""
    if _verbosity < 0 or not sys.stderr.isatty():
        yield _Lines(total, label)
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as RichProgress

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]}"),
        TimeRemainingColumn(),
        TextColumn("{task.fields[message]}"),
    )
    with RichProgress(*columns, console=Console(stderr=True)) as bar:
        yield _Bar(bar, bar.add_task(label, total=total, message="", rate=""))
