"""Wheels built once for all packaging tests."""

from __future__ import annotations

from pathlib import Path

import pytest
from isolated import DISTRIBUTIONS, REPOSITORY, Environment, build_wheel, core_requirements


@pytest.fixture(scope="session")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Return the wheels of the four distributions and the umbrella, by project folder (``.`` for the umbrella)."""
    directory = tmp_path_factory.mktemp("wheels")
    return {name: build_wheel(REPOSITORY / name, directory) for name in (".", *DISTRIBUTIONS)}


@pytest.fixture(scope="session")
def core_alone(wheels: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """Return an environment with core and what it depends on."""
    environment = Environment(tmp_path_factory.mktemp("core") / "venv", core_requirements())
    environment.install(wheels["perfcollect_core"])
    return environment
