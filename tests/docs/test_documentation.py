"""The documentation describes what there is: hooks, files, links, decisions."""

from __future__ import annotations

import inspect
import re

import pytest
from isolated import REPOSITORY

from perfcollect_core import HOOK_API, hookspecs

DOCS = REPOSITORY / "docs"
PAGES = sorted([*REPOSITORY.glob("*.md"), *DOCS.rglob("*.md")])


@pytest.mark.parametrize("hook", hookspecs.HOOKS)
def test_every_hook_is_documented_with_its_arguments_and_its_docstring(hook):
    page = (DOCS / "hooks.md").read_text(encoding="utf-8")
    function = getattr(hookspecs, hook)

    assert f"## `{hook}({', '.join(inspect.signature(function).parameters)})`" in page
    assert inspect.cleandoc(function.__doc__).replace("``", "`") in page


def test_no_hook_is_documented_that_does_not_exist():
    page = (DOCS / "hooks.md").read_text(encoding="utf-8")

    assert set(re.findall(r"^## `(perfcollect_\w+)\(", page, re.MULTILINE)) == set(hookspecs.HOOKS)
    assert f"Hook API {HOOK_API[0]}.{HOOK_API[1]}." in page


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(REPOSITORY)))
def test_every_relative_link_leads_somewhere(page):
    links = re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8"))

    assert [link for link in links if "://" not in link and not (page.parent / link).exists()] == []


@pytest.mark.parametrize("record", sorted((DOCS / "adr").glob("*.md")), ids=lambda path: path.stem)
def test_a_decision_is_short_and_has_its_three_parts(record):
    text = record.read_text(encoding="utf-8")

    assert len(text.splitlines()) <= 40
    assert [part for part in ("**Context.**", "**Decision.**", "**Consequences.**") if part not in text] == []
    assert text.startswith(f"# {int(record.stem[:4])}. ")


def test_the_packages_of_core_are_all_described():
    page = (DOCS / "architecture.md").read_text(encoding="utf-8")
    core = REPOSITORY / "perfcollect_core" / "src" / "perfcollect_core"
    names = {path.stem for path in core.iterdir() if path.suffix == ".py" or (path / "__init__.py").is_file()}

    assert sorted(name for name in names - {"__init__"} if not re.search(rf"`{name}/?`", page)) == []


@pytest.mark.parametrize(
    "distribution",
    ["perfcollect_core", "perfcollect_ops_builtin", "perfcollect_ops_vllm_ascend", "perfcollect_comm"],
)
def test_each_distribution_carries_the_licence(distribution):
    assert (REPOSITORY / distribution / "LICENSE").read_bytes() == (REPOSITORY / "LICENSE").read_bytes()


def test_a_fragment_of_the_changelog_is_one_line_with_a_known_kind():
    for fragment in (REPOSITORY / "changelog.d").glob("*"):
        assert re.fullmatch(r"\d+\.[\w-]+\.(added|fixed|changed)\.md", fragment.name), fragment.name
        assert len(fragment.read_text(encoding="utf-8").strip().splitlines()) == 1, fragment.name
