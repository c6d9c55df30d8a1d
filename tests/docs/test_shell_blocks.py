"""What the documentation tells a reader to type works from the repository root, or at least exists."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from shell_blocks import REPOSITORY, TAGS, make_scratch, parse_command, read_blocks, run_line

from perfcollect_core.families import cpu
from perfcollect_core.tables.derive import derive_database
from perfcollect_core.tables.layout import DatabaseOptions, find_database

PAGES = sorted([*REPOSITORY.glob("*.md"), *(REPOSITORY / "docs").rglob("*.md")])
BLOCKS = {page: read_blocks(page) for page in PAGES if read_blocks(page)}
#: A translation shows the same commands, which another test compares.
RUNNING = {
    str(page.relative_to(REPOSITORY)): [block for block in blocks if not block.tag]
    for page, blocks in BLOCKS.items()
    if not page.name.endswith(".zh.md")
}
COMMANDS = sorted(
    {
        re.split(r"\s#\s", line)[0].strip()
        for blocks in BLOCKS.values()
        for block in blocks
        for line in block.lines
        if re.match(r"(torchrun .*--no-python )?perfcollect ", line)
    }
)
RECORDED = re.findall(r"^\$ (perfcollect .*)$", (REPOSITORY / "README.md").read_text("utf-8"), re.MULTILINE)


@pytest.mark.torch
@pytest.mark.parametrize("page", [page for page, blocks in RUNNING.items() if blocks])
def test_the_shell_blocks_of_a_page_run_from_the_repository_root(page, tmp_path):
    pytest.importorskip("torch")
    root = make_scratch(tmp_path)
    _leave_what_the_demo_leaves(root)
    failed = []

    for line in (line for block in RUNNING[page] for line in block.lines):
        expected = re.search(r"#.*\bexit (\d+)", line)
        code, told = run_line(line, root)
        if code != (int(expected[1]) if expected else 0):
            failed.append(f"{line}\nexit {code}\n{told}")

    assert not failed, "\n\n".join(failed)


def _leave_what_the_demo_leaves(root: Path) -> None:
    """Make a database at this machine's derived path, of two tables and without the minute that measuring it takes."""
    source = root / "demo"
    source.mkdir()
    for name in ("Add.csv", "MatMulV2.csv"):
        shutil.copy(REPOSITORY / "samples" / "database" / name, source)
    device = cpu.probe().devices[0].name
    target = (
        root / find_database(DatabaseOptions(data_root=Path("data")), family="cpu", device_name=device).path
    )
    derive_database(source, target, family="cpu", device=device)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_of_a_block_is_one_the_program_takes(command):
    parse_command(command)


@pytest.mark.parametrize("command", RECORDED)
def test_the_recording_shows_commands_the_program_takes(command):
    parse_command(command)


def test_the_recording_is_of_the_demo():
    demo = (REPOSITORY / "samples" / "demo.py").read_text(encoding="utf-8")

    operators = re.search(r'"--ops", (.*?)\)', demo)
    assert operators is not None
    assert f"perfcollect run --ops {operators[1].replace(', ', ' ').replace(chr(34), '')}" in RECORDED


def test_a_block_that_does_not_run_has_a_known_reason():
    tags = {block.tag for blocks in BLOCKS.values() for block in blocks}

    assert tags - {""} <= TAGS


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_shell_blocks_are_fenced_as_such(page):
    fences = re.findall(r"^```(bash|shell|zsh)\b", page.read_text(encoding="utf-8"), re.MULTILINE)

    assert fences == [], "write ```sh, with a tag where the block cannot run"


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md"])
def test_every_make_target_that_is_named_exists(page):
    makefile = (REPOSITORY / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([\w-]+):", makefile, re.MULTILINE))

    named = re.findall(
        r"^(?:\w+=\S+ )?make ((?:[a-z-]+ ?)+)", (REPOSITORY / page).read_text("utf-8"), re.MULTILINE
    )

    assert named
    assert {word for words in named for word in words.split()} <= targets
