"""The code that parse, grid and db use runs where no POSIX-only module is."""

from __future__ import annotations

import subprocess
import sys

SCRIPT = """
import pkgutil, sys, importlib
import click, filelock  # theirs may look for what is there
for name in ("fcntl", "resource", "pwd", "grp", "termios"):
    sys.modules[name] = None
import perfcollect_core.tables
for module in pkgutil.iter_modules(perfcollect_core.tables.__path__):
    importlib.import_module(f"perfcollect_core.tables.{module.name}")
import perfcollect_core.cli.db, perfcollect_core.cli.database_options
heavy = {"torch", "polars", "numpy"} & set(sys.modules)
print(sorted(heavy))
"""


def test_tables_and_db_import_no_posix_only_and_no_heavy_module():
    ran = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True)

    assert (ran.stdout, ran.stderr) == ("[]\n", "")
