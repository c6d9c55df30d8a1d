"""Check the software an NPU needs: driver, CANN and what states its version, msprof, custom operators, NNAL, Triton."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from perfcollect_core.families.ascend_environment import find_worker_environment
from perfcollect_core.families.ascend_probe import AscendMachine
from perfcollect_core.families.ascend_visible import VARIABLE, classify_visible_devices
from perfcollect_core.tables.versions import cann_sources, same_version

from .findings import Finding, Level, Scope

__all__ = ["ascend_stack", "ascend_visible_devices"]

_CHECK = "ascend"
_CUSTOM_OPP = "ASCEND_CUSTOM_OPP_PATH"
_CUSTOM_LIBRARY = "op_api/lib/libcust_opapi.so"
_SIGNS = ("ASCEND_HOME_PATH", "ASCEND_TOOLKIT_HOME", "ASCEND_OPP_PATH", _CUSTOM_OPP, VARIABLE)


def ascend_stack(scope: Scope, machine: AscendMachine | None = None) -> Iterator[Finding]:
    """Say what of the Ascend stack is here and which parts contradict each other; silent where nothing hints at one."""
    machine = machine or AscendMachine()
    if scope.family != "ascend" and not _any_sign(machine):
        return
    yield from _cann(machine)
    msprof = machine.msprof()
    # Its absence is told with the other things the family lacks.
    if msprof:
        yield Finding(_CHECK, "ok", "msprof", msprof)
    worker = find_worker_environment(
        machine.environ, torch_version=machine.installed("torch") or "", root=machine.root
    )
    environ = {**machine.environ, **worker.env}
    yield from _custom_operators(machine, environ)
    yield from _atb(environ)
    yield from _triton(machine)


def ascend_visible_devices(scope: Scope, machine: AscendMachine | None = None) -> Iterator[Finding]:
    """Judge the list in ``ASCEND_RT_VISIBLE_DEVICES`` against the devices of this machine or container."""
    machine = machine or AscendMachine()
    text = machine.environ.get(VARIABLE)
    physical = machine.physical_devices()
    if text is None and not physical:
        return
    visible = classify_visible_devices(text, physical)
    if visible.finding == "ok":
        ids = ", ".join(map(str, visible.ids))
        yield Finding(
            _CHECK, "ok", VARIABLE, f"devices {ids}" if text is not None else f"is not set: devices {ids}"
        )
        return
    level: Level = "error" if scope.family == "ascend" else "warning"
    yield Finding(_CHECK, level, VARIABLE, visible.say, f"correct {VARIABLE} or unset it")


def _any_sign(machine: AscendMachine) -> bool:
    named = any(machine.environ.get(name) for name in _SIGNS)
    return named or bool(machine.physical_devices()) or machine.installed("torch-npu") is not None


def _cann(machine: AscendMachine) -> Iterator[Finding]:
    said: dict[str, str] = {}
    for source, version in cann_sources(machine.environ.get):
        said.setdefault(source if source == "torch_npu" else os.path.realpath(source), version)
    if not said:
        yield Finding(
            _CHECK,
            "warning",
            "CANN",
            "no version is stated by torch_npu or by a toolkit's version file",
            "source CANN's set_env.sh, or give --cann-version and --database-path",
        )
        return
    (first, counts), *others = said.items()
    yield Finding(_CHECK, "ok", "CANN", f"{counts} (stated by {first})")
    for source, version in others:
        if not same_version(version, counts):
            yield Finding(
                _CHECK,
                "warning",
                "CANN",
                f"{first} says {counts} and counts, {source} says {version}",
                f"source the set_env.sh of the CANN you mean, or give --cann-version {version}",
            )


def _custom_operators(machine: AscendMachine, environ: dict[str, str]) -> Iterator[Finding]:
    value = environ.get(_CUSTOM_OPP, "")
    if not value:
        yield Finding(
            _CHECK,
            "info",
            _CUSTOM_OPP,
            "is not set and no vllm_ascend with custom operators is found",
            f"build vllm-ascend's custom operators and export {_CUSTOM_OPP}=<vendor directory>",
        )
        return
    for part in filter(None, value.split(os.pathsep)):
        if (Path(part) / _CUSTOM_LIBRARY).is_file():
            found = "" if machine.environ.get(_CUSTOM_OPP) else " (found in vllm_ascend; workers get it)"
            yield Finding(_CHECK, "ok", _CUSTOM_OPP, f"{part}{found}")
        else:
            yield Finding(
                _CHECK,
                "warning",
                _CUSTOM_OPP,
                f"{part} holds no {_CUSTOM_LIBRARY}",
                "name the vendor directory of an installed custom operator package",
            )


def _atb(environ: dict[str, str]) -> Iterator[Finding]:
    places = [part for part in environ.get("LD_LIBRARY_PATH", "").split(os.pathsep) if part]
    found = next((part for part in places if (Path(part) / "libatb.so").is_file()), None)
    if found:
        yield Finding(_CHECK, "ok", "NNAL", f"{found}/libatb.so")
    else:
        yield Finding(
            _CHECK,
            "info",
            "NNAL",
            "libatb.so is in no directory of LD_LIBRARY_PATH",
            "install NNAL and run `source <nnal>/atb/set_env.sh` in this shell",
        )


def _triton(machine: AscendMachine) -> Iterator[Finding]:
    ascend, plain = machine.installed("triton-ascend"), machine.installed("triton")
    if ascend and plain:
        yield Finding(
            _CHECK,
            "warning",
            "triton-ascend",
            f"triton {plain} and triton-ascend {ascend} share one folder, the one installed last wins",
            "pip uninstall -y triton triton-ascend, then install triton-ascend alone",
        )
    elif ascend:
        yield Finding(_CHECK, "ok", "triton-ascend", ascend)
    else:
        yield Finding(
            _CHECK,
            "info",
            "triton-ascend",
            f"is not installed{f', only triton {plain}, which knows no NPU' if plain else ''}",
            "install the triton-ascend of this vLLM-Ascend",
        )
