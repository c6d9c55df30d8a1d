"""Importing operator modules costs no torch."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

SCRIPT = """
import importlib, json, pkgutil, sys
package = importlib.import_module(sys.argv[1])
names = [f"{package.__name__}.{found.name}" for found in pkgutil.iter_modules(package.__path__)]
for name in names:
    importlib.import_module(name)
print(json.dumps([names, [heavy for heavy in ("torch", "torch_npu", "numpy", "polars") if heavy in sys.modules]]))
"""


@pytest.mark.parametrize("package", ["perfcollect_ops_builtin", "perfcollect_ops_vllm_ascend"])
def test_importing_every_operator_module_imports_nothing_heavy(package):
    pytest.importorskip(package)

    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, package], capture_output=True, encoding="utf-8", check=True
    )

    names, heavy = json.loads(done.stdout)
    assert names
    assert heavy == []
