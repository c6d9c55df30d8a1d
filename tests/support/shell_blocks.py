"""Fenced shell blocks of the documentation: what they say, and how to run or parse them.

A block whose fence is `sh` runs as it stands. A tag behind it says why it cannot: `make` (builds an environment),
`needs-network` (installs), `needs-install` (belongs into a start-up file), `needs-npu`, `needs-nodes`. Its commands are
parsed all the same. A comment `exit 4` at the end of a line is the exit code it is meant to have.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import attrs
import click

from perfcollect_core.cli import perfcollect
from perfcollect_core.cli.arguments import expand_arguments

__all__ = ["REPOSITORY", "TAGS", "ShellBlock", "make_scratch", "parse_command", "read_blocks", "run_line"]

REPOSITORY = Path(__file__).resolve().parents[2]
TAGS = frozenset({"make", "needs-network", "needs-install", "needs-npu", "needs-nodes"})
_FENCE = re.compile(r"^```(?P<info>(?:sh|console)\b[^\n]*)\n(?P<body>.*?)^```$", re.DOTALL | re.MULTILINE)


@attrs.frozen
class ShellBlock:
    """One block: ``tag`` is empty where it runs; ``lines`` are its commands, comments kept."""

    page: str
    tag: str
    lines: tuple[str, ...]


def read_blocks(page: Path) -> tuple[ShellBlock, ...]:
    """Return the shell blocks of *page*; of a console block the lines behind a prompt."""
    blocks = []
    for match in _FENCE.finditer(page.read_text(encoding="utf-8")):
        language, _, tag = match["info"].partition(" ")
        body = match["body"].replace("\\\n", " ")
        lines = [line.strip() for line in body.splitlines() if line.strip() and not line.startswith("#")]
        if language == "console":
            lines = [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]
        blocks.append(ShellBlock(str(page.relative_to(REPOSITORY)), tag.strip(), tuple(lines)))
    return tuple(blocks)


def make_scratch(directory: Path) -> Path:
    """Make *directory* look like the repository's root; what is written at its top stays in it."""
    for path in REPOSITORY.iterdir():
        if path.name not in (".git", "data", "tour", "perfcollect-comm"):
            (directory / path.name).symlink_to(path)
    return directory


def run_line(line: str, cwd: Path) -> tuple[int, str]:
    """Run one line with bash as a reader would; return its exit code and all it printed."""
    scripts = Path(sys.executable).parent
    environment = {
        name: text
        for name, text in os.environ.items()
        if not name.startswith(("PERFCOLLECT", "PYTEST", "ASCEND")) and name not in ("RANK", "WORLD_SIZE")
    }
    environment |= {"PATH": f"{scripts}{os.pathsep}{environment['PATH']}", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        ["bash", "-c", line],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def parse_command(line: str) -> None:
    """Parse a ``perfcollect`` command to its last option without running it; raises ``click.ClickException``."""
    words = shlex.split(line, comments=True)
    arguments = expand_arguments(perfcollect, words[words.index("perfcollect") + 1 :])
    command: click.Command = perfcollect
    context: click.Context | None = None
    while isinstance(command, click.Group):
        context = click.Context(command, parent=context, info_name=command.name)
        while arguments and arguments[0] in ("-v", "-q", "--verbose", "--quiet"):
            arguments.pop(0)
        if not arguments or arguments[0].startswith("-"):
            return
        name = arguments.pop(0)
        found = command.get_command(context, name)
        if found is None:
            raise click.UsageError(f"there is no command {name!r}")
        command = found
    with command.make_context(command.name, arguments, parent=context):
        pass
