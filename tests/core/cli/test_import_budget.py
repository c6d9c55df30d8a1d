"""Listing and help import neither torch, polars, rich nor a plugin: a heavy plugin slows no other command."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from perfcollect_core.testing import write_distribution

AUDIT = """
import json, sys
imported = []
sys.addaudithook(lambda event, args: imported.append(args[0]) if event == "import" else None)
from perfcollect_core.cli import main
code = main(sys.argv[1:])
print("\\n" + json.dumps([code, sorted({name.partition(".")[0] for name in imported} | {n.partition(".")[0] for n in sys.modules}), sorted(sys.modules)]))
"""
HEAVY = {"torch", "torch_npu", "numpy", "polars", "rich", "attr", "importlib.metadata"}


@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"],
        ["--version"],
        ["ops"],
        ["ops", "--format", "json"],
        ["run", "--help"],
        ["plugin", "--help"],
        ["db", "--help"],
    ],
    ids=" ".join,
)
def test_a_light_command_imports_nothing_heavy(tmp_path, arguments):
    made = write_distribution(
        tmp_path,
        "ops-heavy",
        "1.0",
        {"operators": {"Heavy": "ops_heavy"}, "commands": {"heavy": "ops_heavy:run"}},
        files={"ops_heavy.py": "1 / 0\n"},
    )
    path = os.pathsep.join([str(made.path), *filter(None, sys.path)])

    done = subprocess.run(
        [sys.executable, "-c", AUDIT, *arguments],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=True,
    )

    code, packages, modules = json.loads(done.stdout.splitlines()[-1])
    # Their options need value types; what they must not need is a table reader or a device.
    allowed = {"attr", "importlib.metadata"} if arguments[0] in ("run", "db") else set()
    assert code == 0
    assert not (HEAVY - allowed) & {*packages, *modules}
    assert not [
        name for name in packages if name.startswith(("ops_heavy", "perfcollect_ops", "perfcollect_comm"))
    ]


def test_importing_core_imports_nothing_of_it():
    code = (
        "import sys, perfcollect_core; print([n for n in sys.modules if n.startswith('perfcollect_core.')])"
    )

    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        capture_output=True,
        text=True,
        check=True,
    )

    assert done.stdout.strip() == "[]"
