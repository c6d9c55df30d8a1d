"""Fixtures of the parsing tests: the modules beside this file, and the command line in this process."""

from __future__ import annotations

import csv
import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType

import attrs
import pytest

from perfcollect_core.cli import main


def _load(name: str) -> ModuleType:
    path = Path(__file__).with_name(f"{name}.py")
    spec = importlib.util.spec_from_file_location(f"profiles_{name}", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def made() -> ModuleType:
    return _load("made_profiles")


@pytest.fixture(scope="session")
def slow() -> ModuleType:
    return _load("slow_rules")


@pytest.fixture(scope="session")
def oracle() -> ModuleType:
    return _load("lookup_oracle")


@attrs.frozen
class Finished:
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> dict:
        return json.loads(self.out)


@pytest.fixture
def perfcollect(capfd):
    """Run the command line; a tuple of paths after an option is spread."""

    def run(*arguments: object) -> Finished:
        capfd.readouterr()
        code = main([str(argument) for argument in arguments])
        out, err = capfd.readouterr()
        assert "Traceback" not in err
        return Finished(code, out, err)

    return run


@pytest.fixture
def parse(perfcollect):
    """Run ``perfcollect parse`` on a path into a database, and give its JSON report where it succeeds."""

    def run(path: object, database: Path, *options: object) -> Finished:
        return perfcollect(
            "parse", "--profiling-path", path, "--database-path", database, "--format", "json", *options
        )

    return run


@pytest.fixture
def read_rows():
    """Read a table as a plain reader would."""

    def read(path: Path) -> list[dict[str, str]]:
        with path.open(encoding="utf-8-sig", newline="") as stream:
            return list(csv.DictReader(stream))

    return read
