"""``perfcollect plugin``: start a plugin of one's own."""

from __future__ import annotations

import re
from pathlib import Path

import click

from perfcollect_core.errors import UsageError

from .output import emit, format_option

__all__ = ["plugin"]


@click.group(short_help="Start a plugin of your own.", epilog="Example: perfcollect plugin new MyKernel")
def plugin() -> None:
    """Start a plugin of your own."""


@plugin.command(
    "new", epilog="Example: perfcollect plugin new MyKernel --directory ~/src/perfcollect-ops-mykernel"
)
@click.argument("name")
@click.option(
    "--directory",
    type=click.Path(path_type=Path),
    help="Where to write the project.  [default: perfcollect-ops-<name> in the current directory]",
)
@format_option
def new(name: str, directory: Path | None, output_format: str) -> None:
    """Write a working project for operator NAME: hooks, example rows, conformance tests, README."""
    from perfcollect_core.templates.project import write_project

    words = _words(name)
    target = directory or Path(f"perfcollect-ops-{'-'.join(words)}")
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise UsageError(
            f"{target} is there already and not an empty directory", hint="give another --directory"
        )
    files = write_project(target, operator=name, words=words)
    lines = [f"wrote {path}" for path in files]
    lines += [
        "next:",
        f"  pip install -e '{target}[test]'",
        f"  perfcollect ops show {name}",
        f"  pytest {target}",
    ]
    emit({"directory": str(target), "files": [str(path) for path in files]}, lines, output_format)


def _words(name: str) -> tuple[str, ...]:
    """Split a kernel type into lower-case words (``MatMulV2`` into ``mat``, ``mul``, ``v2``)."""
    from perfcollect_core.discovery import is_safe_name

    if not is_safe_name(name):
        raise UsageError(
            f"operator name {name!r} is not allowed: expected letters, digits, '_', '-' and '.' only",
            hint="use the kernel type as it stands in the data",
        )
    words = re.findall(r"[A-Z]+(?![a-z])[0-9]*|[A-Z]?[a-z]+[0-9]*|[0-9]+", name)
    if not words:
        raise UsageError(f"operator name {name!r} has no letter or digit", hint="for instance MyKernel")
    return tuple(word.lower() for word in words)
