"""The guide for plugin authors shows the files that `perfcollect plugin new` writes, and code that is valid."""

from __future__ import annotations

import ast
import re

import pytest
from shell_blocks import REPOSITORY

import perfcollect_core
from perfcollect_core.cli import main

PAGE = (REPOSITORY / "docs" / "writing-a-plugin.md").read_text(encoding="utf-8")
SHOWN = re.findall(r"^<!-- template: (\S+) -->\n```\w+\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
PYTHON = re.findall(r"^```python\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    directory = tmp_path_factory.mktemp("guide") / "project"
    assert main(["plugin", "new", "MyKernel", "--directory", str(directory)]) == 0
    return directory


def test_the_guide_shows_the_module_the_entry_point_and_the_test():
    assert [name.rsplit("/", 1)[-1] for name, _ in SHOWN] == [
        "pyproject.toml",
        "my_kernel.py",
        "test_conformance.py",
    ]


@pytest.mark.parametrize(("name", "text"), SHOWN)
def test_what_the_guide_shows_is_what_the_template_writes(project, name, text):
    assert text.strip() in (project / name).read_text(encoding="utf-8")


@pytest.mark.parametrize("text", PYTHON, ids=range(len(PYTHON)))
def test_the_code_of_the_guide_parses_and_imports_what_there_is(text):
    tree = ast.parse(re.sub(r"(?m)\A( {4}.*\n?)+", lambda m: "class Test:\n" + m[0], text))

    imported = [
        alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module == "perfcollect_core"
        for alias in node.names
    ]
    assert [name for name in imported if not hasattr(perfcollect_core, name)] == []
