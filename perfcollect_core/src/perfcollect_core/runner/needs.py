"""Check what an operator needs outside perfcollect (parent side: torch is only ever imported in a child)."""

from __future__ import annotations

import ctypes.util
import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path

from perfcollect_core.environment import Missing, Need

__all__ = ["missing_needs"]

_PROBE_SECONDS = 120.0
_SCHEMA_PROBE = """
import importlib, json, sys
import torch
for module in ("torch_npu", "vllm_ascend"):
    try:
        importlib.import_module(module)
    except Exception:
        pass
try:
    from vllm_ascend.utils import enable_custom_op
    enable_custom_op()
except Exception:
    pass
found = {}
for name in json.loads(sys.argv[1]):
    namespace, _, operator = name.partition("::")
    found[name] = hasattr(getattr(torch.ops, namespace), operator)
print("\\n" + json.dumps(found))
"""
_LIBRARY_PROBE = "import ctypes, sys; ctypes.CDLL(sys.argv[1])"


def missing_needs(
    needs: Iterable[Need], family: str, environ: Mapping[str, str] | None = None
) -> tuple[Missing, ...]:
    """Return which of *needs* are not met here for *family*, in their order.

    *environ* is the environment workers will have, where it is not this process's own.
    """
    environment = dict(os.environ if environ is None else environ)
    wanted = [need for need in dict.fromkeys(needs) if family in need.families]
    # "a::x|b::x": either will do.
    schemas = tuple(name for need in wanted if need.kind == "schema" for name in need.name.split("|"))
    registered = _schemas(schemas, tuple(sorted(environment.items()))) if schemas else {}
    missing = []
    for need in wanted:
        match need.kind:
            case "env":
                found = _environment(need, environment)
            case "module":
                found = _module(need, environment)
            case "library":
                found = _library(need, environment)
            case "schema":
                found = _schema(need, registered)
        if found is not None:
            missing.append(found)
    return tuple(missing)


def _environment(need: Need, environ: Mapping[str, str]) -> Missing | None:
    value = environ.get(need.name)
    # Some of these hold several paths; one that exists is enough.
    if value and any(Path(part).exists() for part in value.split(os.pathsep) if part):
        return None
    looked = f"{need.name}={value}, which does not exist" if value else f"{need.name} is not set"
    fix = need.hint or f"export {need.name}=PATH, then start again"
    return Missing(f"environment variable {need.name}", looked, fix)


def _module(need: Need, environ: Mapping[str, str]) -> Missing | None:
    top = need.name.partition(".")[0]
    try:
        if importlib.util.find_spec(top) is not None:
            return None
    except (ImportError, ValueError):
        pass
    for part in filter(None, environ.get("PYTHONPATH", "").split(os.pathsep)):
        if Path(part, top).is_dir() or Path(part, f"{top}.py").is_file():
            return None
    return Missing(
        f"module {need.name}",
        f"not importable by {sys.executable}",
        need.hint or f"install {top} into this environment",
    )


def _library(need: Need, environ: Mapping[str, str]) -> Missing | None:
    name = need.name
    if ctypes.util.find_library(name.removeprefix("lib").partition(".so")[0]):
        return None
    try:
        # In a child: a vendor library may run code, or crash, when it is loaded.
        done = subprocess.run(
            [sys.executable, "-c", _LIBRARY_PROBE, name],
            capture_output=True,
            timeout=_PROBE_SECONDS,
            check=False,
            env=dict(environ),
        )
        if done.returncode == 0:
            return None
    except (OSError, subprocess.TimeoutExpired):
        pass
    path = environ.get("LD_LIBRARY_PATH") or "not set"
    return Missing(
        f"library {name}",
        f"not loadable with LD_LIBRARY_PATH {path}",
        need.hint or f"put the directory of {name} into LD_LIBRARY_PATH, then start again",
    )


def _schema(need: Need, registered: dict[str, bool]) -> Missing | None:
    names = need.name.split("|")
    if any(registered.get(name) for name in names):
        return None
    full = [_full_name(name) for name in names]
    paths = " nor ".join(f"torch.ops.{name.replace('::', '.')}" for name in full)
    looked = f"{paths} is not registered by the torch of {sys.executable}"
    if len(full) > 1:
        looked = f"neither {looked.replace(' is not registered', ' is registered')}"
    return Missing(
        f"torch operator {' or '.join(full)}", looked, need.hint or "install the package that registers it"
    )


def _full_name(name: str) -> str:
    return name if "::" in name else name.removeprefix("torch.ops.").replace(".", "::", 1)


@lru_cache(maxsize=8)
def _schemas(names: Sequence[str], environ: tuple[tuple[str, str], ...]) -> dict[str, bool]:
    asked = {name: _full_name(name) for name in names}
    try:
        done = subprocess.run(
            [sys.executable, "-c", _SCHEMA_PROBE, json.dumps(list(asked.values()))],
            capture_output=True,
            timeout=_PROBE_SECONDS,
            check=False,
            text=True,
            env=dict(environ),
        )
        found = json.loads(done.stdout.splitlines()[-1])
    except (OSError, subprocess.TimeoutExpired, ValueError, IndexError):
        return {}
    return {name: bool(found.get(full)) for name, full in asked.items()}
