"""Stand in for the CUDA libraries that PyPI's older torch wheels name, so that they import without them.

torch 2.9.0, which vllm-ascend 0.18.0 is built for, is on PyPI as a CUDA build only. No CUDA function is needed: every
one answers 0, and the count of devices is the error "no device".
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterable
from pathlib import Path

__all__ = ["build_cuda_stubs"]

_NO_DEVICE = 100
_VERSION_NEED = re.compile(r"File: (\S+)\s+Cnt|Name: (\S+)\s+Flags")


def build_cuda_stubs(torch_libraries: Path, target: Path) -> tuple[str, ...]:
    """Write the shared libraries that *torch_libraries* lack to *target*; return their names."""
    objects = sorted(path for path in torch_libraries.glob("*.so*") if path.is_file())
    present = {path.name for path in objects}
    system = re.findall(r"^\s*(\S+) \(", _output("/sbin/ldconfig", "-p"), flags=re.MULTILINE)
    needed = {name for path in objects for name in _needed(path)}
    missing = tuple(sorted(needed - present - set(system)))
    defined = {name for path in objects for name in _symbols(path, "--defined-only", "")}
    versions = {
        version: soname for path in objects for soname, version in _versions(path) if soname in missing
    }
    versioned: dict[str, set[str]] = {}
    plain: set[str] = set()
    for path in objects:
        for symbol in _symbols(path, "--undefined-only", "U"):
            name, _, version = symbol.partition("@")
            if version in versions:
                versioned.setdefault(version, set()).add(name)
            elif not version and name not in defined:
                plain.add(name)
    target.mkdir(parents=True, exist_ok=True)
    everything = target / "libcuda_stub_all.so"
    _link(everything, sorted(plain - _system_symbols()), None)
    for soname in missing:
        own = {version: names for version, names in versioned.items() if versions[version] == soname}
        _link(target / soname, sorted(set().union(*own.values())), everything, version="".join(own))
    return missing


def _output(*command: str | Path) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout


def _needed(path: Path) -> list[str]:
    return re.findall(r"\(NEEDED\).*\[(.+?)\]", _output("readelf", "-d", path))


def _versions(path: Path) -> Iterable[tuple[str, str]]:
    """Yield which library must define which symbol version."""
    soname = ""
    for file, name in _VERSION_NEED.findall(_output("readelf", "-V", path)):
        soname = file or soname
        if name:
            yield soname, name


def _symbols(path: Path, selection: str, kind: str) -> Iterable[str]:
    for line in _output("nm", "-D", selection, path).splitlines():
        fields = line.split()
        if len(fields) >= 2 and (not kind or fields[-2] == kind):
            yield fields[-1]


def _system_symbols() -> set[str]:
    paths = re.findall(r"=> (\S*/lib(?:c|m|stdc\+\+|gcc_s)\.so\S*)", _output("/sbin/ldconfig", "-p"))
    return {symbol.split("@")[0] for path in paths for symbol in _symbols(Path(path), "--defined-only", "")}


def _link(target: Path, names: Iterable[str], needed: Path | None, *, version: str = "") -> None:
    lines = [".text"]
    for name in names:
        answer = _NO_DEVICE if name in {"cudaGetDeviceCount", "cuInit"} else 0
        lines.append(f".globl {name}; .type {name}, @function; {name}: mov ${answer}, %eax; ret")
    lines.append('.section .note.GNU-stack,"",@progbits')
    source = target.parent / f"{target.name}.S"
    source.write_text("\n".join(lines) + "\n")
    command: list[str | Path] = [
        "gcc",
        "-shared",
        "-nostdlib",
        "-o",
        target,
        f"-Wl,-soname,{target.name}",
        "-Wl,--no-as-needed",
        source,
    ]
    if version:
        script = target.parent / f"{target.name}.map"
        script.write_text(f"{version} {{ global: *; }};\n")
        command.append(f"-Wl,--version-script={script}")
    if needed is not None:
        command.append(needed)
    subprocess.run(command, check=True)
