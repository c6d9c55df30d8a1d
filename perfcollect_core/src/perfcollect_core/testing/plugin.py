"""The pytest fixtures for authors of plugins; opt in with ``pytest_plugins = ["perfcollect_core.testing.plugin"]``."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Protocol

import pytest

from perfcollect_core.discovery import PluginIndex, plugin_index

from .distributions import FakeDistribution, write_distribution

# Plain asserts in the kit then show values as a test module's own do.
pytest.register_assert_rewrite(
    "perfcollect_core.testing.conformance", "perfcollect_core.testing.tensor_checks"
)

__all__ = ["MakeDistribution", "fake_distribution", "index"]


class MakeDistribution(Protocol):
    """What the ``fake_distribution`` fixture is."""

    def __call__(
        self,
        name: str,
        version: str = "1.0",
        *,
        files: Mapping[str, str] | None = None,
        requires: Sequence[str] = (),
        **groups: Mapping[str, str],
    ) -> FakeDistribution:
        """Write distribution *name* into a directory of its own and put that onto ``sys.path``."""


@pytest.fixture
def fake_distribution(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[MakeDistribution]:
    """Install distributions for one test: real metadata on ``sys.path``, nothing left afterwards.

    ``fake_distribution("ops-a", "1.0", operators={"Foo": "ops_a"}, files={"ops_a.py": "..."})``; the groups are
    ``operators``, ``families``, ``executors``, ``wrappers``, ``commands`` and ``comm_backends``.
    """
    made: list[FakeDistribution] = []
    before = set(sys.modules)

    def make(
        name: str,
        version: str = "1.0",
        *,
        files: Mapping[str, str] | None = None,
        requires: Sequence[str] = (),
        **groups: Mapping[str, str],
    ) -> FakeDistribution:
        directory = tmp_path / "distributions" / f"{len(made)}-{name}"
        made.append(write_distribution(directory, name, version, groups, files=files, requires=requires))
        monkeypatch.syspath_prepend(str(directory))
        plugin_index.cache_clear()
        return made[-1]

    yield make
    roots = tuple(str(distribution.path) for distribution in made)
    for module_name in set(sys.modules) - before:
        module = sys.modules[module_name]
        # A package without __init__.py has no file, only places.
        places = [getattr(module, "__file__", None), *getattr(module, "__path__", ())]
        if roots and any(place and place.startswith(roots) for place in places):
            del sys.modules[module_name]
    monkeypatch.undo()
    importlib.invalidate_caches()
    plugin_index.cache_clear()


@pytest.fixture
def index() -> Iterator[Callable[[], PluginIndex]]:
    """Return a function that scans what is installed now."""

    def scan() -> PluginIndex:
        plugin_index.cache_clear()
        return plugin_index()

    yield scan
    plugin_index.cache_clear()
