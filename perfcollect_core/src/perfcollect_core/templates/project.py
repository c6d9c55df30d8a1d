"""Write a plugin project from the template files beside this module."""

from __future__ import annotations

import keyword
from collections.abc import Sequence
from importlib import resources
from pathlib import Path

from perfcollect_core import __version__

__all__ = ["write_project"]


def write_project(directory: Path, *, operator: str, words: Sequence[str]) -> tuple[Path, ...]:
    """Write the project of *operator* into *directory* and return its files; *words* name package and module."""
    module = "_".join(words)
    if keyword.iskeyword(module) or module[0].isdigit():
        module = f"op_{module}"
    values = {
        "operator": operator,
        "distribution": f"perfcollect-ops-{'-'.join(words)}",
        "package": f"perfcollect_ops_{'_'.join(words)}",
        "module": module,
        "core_version": __version__,
    }
    root = resources.files(__package__) / "operator_plugin"
    written = []
    for source in _template_files():
        text = root.joinpath(source).read_text(encoding="utf-8")
        for name, value in values.items():
            text = text.replace(f"@{name}@", value)
        path = directory / source.removesuffix(".txt").replace("src/package", f"src/{values['package']}")
        path = path.with_name(path.name.replace("module.", f"{module}."))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8", newline="\n")
        written.append(path)
    return tuple(written)


def _template_files() -> tuple[str, ...]:
    # Named .txt, so that neither type checker, test runner nor build backend takes them for code of ours.
    return (
        "README.md.txt",
        "pyproject.toml.txt",
        "src/package/__init__.py.txt",
        "src/package/examples/module.csv.txt",
        "src/package/module.py.txt",
        "tests/test_conformance.py.txt",
    )
