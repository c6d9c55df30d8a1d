"""Keep the option tables of README.md and README.zh.md as the program is.

Run: `python tests/support/option_tables.py` rewrites the tables between `<!-- options: COMMAND -->` marks. Meanings in
README.zh.md are kept by option; one that is missing comes in as English text and is listed on stderr. A command that is
new gets a section, one that is gone is for a person to remove.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import click

from perfcollect_core.cli import perfcollect
from perfcollect_core.cli.arguments import walk_commands

REPOSITORY = Path(__file__).resolve().parents[2]
HEADERS = {"README.md": ("option", "default", "meaning"), "README.zh.md": ("选项", "默认值", "含义")}
_SECTION = re.compile(r"<!-- options: (?P<command>[a-z -]+) -->\n(?P<table>.*?)<!-- /options -->", re.DOTALL)

Row = tuple[str, str, str]


def program_tables() -> dict[str, tuple[Row, ...]]:
    """Return (option, default, meaning) of every option of every command, general ones under ``general``."""
    tables = {"general": tuple(_rows(perfcollect))}
    for path, command in walk_commands(perfcollect):
        rows = tuple(_rows(command))
        if rows:
            tables[" ".join(path)] = rows
    return tables


def _rows(command: click.Command) -> Iterator[Row]:
    for option in command.params:
        # --format is the same everywhere and described once.
        if not isinstance(option, click.Option) or option.hidden or "--format" in option.opts:
            continue
        metavar = "" if option.is_flag else f" {_metavar(option)}"
        shown = option.show_default and not option.is_flag and option.default not in (None, ())
        value = " ".join(map(str, option.default)) if isinstance(option.default, tuple) else option.default
        default = f"`{value}`" if shown else ""
        names = ", ".join((*option.opts, *option.secondary_opts))
        yield f"`{names}{metavar}`".replace("|", "\\|"), default, _cell(option.help or "")


def _metavar(option: click.Option) -> str:
    if option.metavar is not None:
        return option.metavar
    if isinstance(option.type, click.Choice):
        return "|".join(option.type.choices)
    return option.type.name.upper()


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|").replace("<", "\\<")


def read_tables(readme: str) -> dict[str, tuple[Row, ...]]:
    """Return the tables that stand in *readme*."""
    text = (REPOSITORY / readme).read_text(encoding="utf-8")
    return {match["command"]: tuple(_table_rows(match["table"])) for match in _SECTION.finditer(text)}


def _table_rows(table: str) -> Iterator[Row]:
    for line in table.splitlines()[2:]:
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        if len(cells) == 3:
            yield cells[0], cells[1], cells[2]


def _add_sections(path: Path) -> None:
    """Put an empty table for each command that has none behind the last table."""
    text = path.read_text(encoding="utf-8")
    standing = {match["command"] for match in _SECTION.finditer(text)}
    new = "".join(
        f"\n\n### {command}\n\n<!-- options: {command} -->\n<!-- /options -->"
        for command in program_tables()
        if command not in standing
    )
    mark = "<!-- /options -->"
    before, _, after = text.rpartition(mark)
    path.write_text(f"{before}{mark}{new}{after}", encoding="utf-8")


def write_tables(readme: str) -> list[str]:
    """Rewrite the tables of *readme*; return the options whose meaning had to be left in English."""
    path = REPOSITORY / readme
    _add_sections(path)
    program, standing = program_tables(), read_tables(readme)
    untranslated = []

    english = {(command, row[0]): row[2] for command, rows in program.items() for row in rows}
    # An option that several commands describe alike is translated once.
    translated = {
        (row[0], english.get((command, row[0]))): row[2]
        for command, rows in standing.items()
        for row in rows
        if not row[2].isascii()
    }

    def render(match: re.Match[str]) -> str:
        command = match["command"]
        kept = {row[0]: row[2] for row in standing.get(command, ()) if not row[2].isascii()}
        lines = [f"| {' | '.join(HEADERS[readme])} |", "|---|---|---|"]
        for option, default, meaning in program.get(command, ()):
            told = meaning
            if readme != "README.md":
                told = kept.get(option) or translated.get((option, meaning)) or meaning
                if told == meaning:
                    untranslated.append(f"{command} {option}")
            lines.append(f"| {option} | {default} | {told} |")
        return "\n".join([f"<!-- options: {command} -->", *lines, "<!-- /options -->"])

    path.write_text(_SECTION.sub(render, path.read_text(encoding="utf-8")), encoding="utf-8")
    return untranslated


if __name__ == "__main__":
    for name in HEADERS:
        for missing in write_tables(name):
            print(f"{name}: no meaning for {missing}", file=sys.stderr)
