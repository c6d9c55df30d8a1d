"""The users of the predecessor parse on Windows: nothing here may need POSIX modules, and no plugin."""

from __future__ import annotations

import subprocess
import sys

import pytest

HIDDEN = """
import importlib, importlib.abc, sys

class Hide(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name in ("fcntl", "resource"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Hide())
"""
EVERY_MODULE = (
    HIDDEN
    + """
import pkgutil
import perfcollect_core.profiles as profiles
for module in pkgutil.iter_modules(profiles.__path__):
    importlib.import_module(f"{profiles.__name__}.{module.name}")
for module in ("parse", "db", "ops", "trace_to_csv"):
    importlib.import_module(f"perfcollect_core.cli.{module}")
loaded = {"polars", "torch", "numpy"} & set(sys.modules)
assert not loaded, loaded
"""
)
RUN = HIDDEN + "from perfcollect_core.cli import main; sys.exit(main(sys.argv[1:]))"


def python(code, *arguments):
    command = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, encoding="utf-8", check=False)


def test_parse_db_and_ops_import_without_posix_modules_and_without_heavy_ones():
    done = python(EVERY_MODULE)

    assert done.returncode == 0, done.stderr


@pytest.mark.skipif(sys.platform == "win32", reason="filelock uses fcntl there where it can")
def test_parse_runs_without_resource(made, tmp_path):
    shapes = ("64,5120;64,5120", "DT_BF16;DT_BF16", "64,5120", "DT_BF16")
    source = made.write(tmp_path / "kernel_details.csv", [made.kernel("Add", "10.0", *shapes)])
    code = RUN.replace('("fcntl", "resource")', '("resource",)')

    done = python(code, "parse", "--profiling-path", source, "--database-path", tmp_path / "db")

    assert done.returncode == 0, done.stderr
    assert (tmp_path / "db" / "Add.csv").exists()
