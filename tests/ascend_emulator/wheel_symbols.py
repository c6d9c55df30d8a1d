"""Read from an installed torch_npu wheel which libraries, symbols and API names CANN would have to supply."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

__all__ = ["WheelSymbols", "read_symbols"]

_RUN_TIME_LIBRARIES = ("libopapi.so", "libascend_hal.so", "libruntime.so")
_API_NAME = re.compile(rb"\0((?:acl|Atb)[A-Za-z0-9]+)GetWorkspaceSize(?=\0)")
_OPTIONAL_NAME = re.compile(rb"\0((?:acl|Hccl)[A-Za-z0-9]+)(?=\0)")
# A missing symbol of torch is a mismatch of versions: it must stay visible.
_CPYTHON_AND_CXX = re.compile(
    r"^(_?Py|_ZNK?(?:2at|3c10|5torch)|_ZNSt|_ZNKSt|_ZSt|_ZTI|_ZTV|_ZTS|_Zn|_Zd|__cxa|__gxx|_Unwind)"
)


@dataclass(frozen=True)
class WheelSymbols:
    """What the wheel asks of CANN: shared libraries, functions at link time, functions at run time."""

    libraries: tuple[str, ...]
    linked: tuple[str, ...]
    looked_up: tuple[str, ...]
    two_phase: tuple[str, ...]


def read_symbols(
    packages: Sequence[Path], also_provided: Sequence[Path], *, single: Sequence[Path] = ()
) -> WheelSymbols:
    """Return what the shared objects below *packages*, and *single* ones, lack beside those in *also_provided*."""
    below = (path for package in packages for path in package.rglob("*.so*") if path.is_file())
    objects = sorted([*below, *single])
    provided_objects = sorted(path for root in also_provided for path in root.glob("*.so*") if path.is_file())
    needed = {name for path in objects for name in _needed_libraries(path)}
    present = {path.name for path in (*objects, *provided_objects)} | _system_libraries()
    missing = {name for name in needed if name not in present and not _is_system_name(name)}
    defined = _defined(objects) | _defined(provided_objects) | _defined(_system_objects())
    linked = {
        name
        for path in objects
        for name in _nm(path, "--undefined-only", kinds="U")
        if "@" not in name and name not in defined and not _CPYTHON_AND_CXX.match(name)
    }
    two_phase: set[str] = set()
    looked_up: set[str] = set()
    for path in objects:
        content = path.read_bytes()
        two_phase.update(match.decode() for match in _API_NAME.findall(content))
        looked_up.update(match.decode() for match in _OPTIONAL_NAME.findall(content))
    looked_up -= {name for base in two_phase for name in (base, f"{base}GetWorkspaceSize")}
    return WheelSymbols(
        libraries=tuple(sorted(missing | set(_RUN_TIME_LIBRARIES))),
        linked=tuple(sorted(linked)),
        looked_up=tuple(sorted(name for name in looked_up if not name.startswith("aclnn"))),
        two_phase=tuple(sorted(two_phase)),
    )


def _needed_libraries(path: Path) -> list[str]:
    output = subprocess.run(["readelf", "-d", path], capture_output=True, text=True, check=False).stdout
    return re.findall(r"\(NEEDED\).*\[(.+?)\]", output)


def _nm(path: Path, selection: str, *, kinds: str = "") -> list[str]:
    output = subprocess.run(["nm", "-D", selection, path], capture_output=True, text=True, check=False).stdout
    fields = (line.split() for line in output.splitlines())
    return [field[-1] for field in fields if len(field) >= 2 and (not kinds or field[-2] in kinds)]


def _defined(paths: Iterable[Path]) -> set[str]:
    return {name.split("@")[0] for path in paths for name in _nm(path, "--defined-only")}


def _system_libraries() -> set[str]:
    output = subprocess.run(["/sbin/ldconfig", "-p"], capture_output=True, text=True, check=False).stdout
    return set(re.findall(r"^\s*(\S+) \(", output, flags=re.MULTILINE))


def _system_objects() -> list[Path]:
    output = subprocess.run(["/sbin/ldconfig", "-p"], capture_output=True, text=True, check=False).stdout
    found = re.findall(r"^\s*(\S+) \(.*x86-64.*\) => (\S+)$", output, flags=re.MULTILINE)
    return [Path(path) for name, path in found if _is_system_name(name)]


def _is_system_name(name: str) -> bool:
    return re.match(r"(lib(c|m|dl|rt|pthread|stdc\+\+|gcc_s)\.so|ld-linux)", name) is not None
