"""Build the libraries that an installed torch_npu wheel misses, from its own symbol tables and the C core."""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import importlib.util
import os
import platform
import shlex
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

# A script's own directory is not on the path where PYTHONSAFEPATH is set, as the Makefile does.
sys.path.insert(0, str(Path(__file__).resolve().parent))

from wheel_symbols import WheelSymbols, read_symbols

__all__ = ["EmulatorUnavailableError", "build", "environment", "main"]

HERE = Path(__file__).resolve().parent
CORE = HERE / "core"
SITE_PACKAGES = Path(sysconfig.get_paths()["platlib"])
_DIRECTORIES = ("bin", "opp", "runtime", "compiler", "x86_64-linux")
_FLAGS = ("-O2", "-g1", "-fPIC", "-Wall", "-Wextra", "-Wno-deprecated-declarations")


class EmulatorUnavailableError(Exception):
    """The emulator cannot be built here; the message says why."""


def environment(home: Path, base: dict[str, str] | None = None) -> dict[str, str]:
    """Return the variables that make *home* the CANN of a process, as CANN's ``set_env.sh`` would set them."""
    old = os.environ if base is None else base
    nnal = home / "nnal" / "atb" / "cxx_abi_1"
    return {
        "ASCEND_HOME_PATH": str(home),
        "ASCEND_TOOLKIT_HOME": str(home),
        "ASCEND_OPP_PATH": str(home / "opp"),
        "ATB_HOME_PATH": str(nnal),
        "LD_LIBRARY_PATH": _prepended(old.get("LD_LIBRARY_PATH", ""), home / "lib64", nnal / "lib"),
        "PATH": _prepended(old.get("PATH", ""), home / "bin"),
    }


def build(
    cache: Path | None = None,
    *,
    hide: Collection[str] = (),
    also: Sequence[Path] = (),
    headers: Path | None = None,
) -> Path:
    """Return the directory of a built emulator for this interpreter's torch_npu; build it if it is not there.

    Args:
        cache: where builds are kept; default: the root of this interpreter's environment.
        hide: API names that this CANN is not to have (an older version).
        also: further shared objects that need CANN, such as vllm-ascend's.
        headers: directory of the ACL headers; default: this wheel's, which in older ones lack what the core names.
    """
    wheel = _check_possible()
    root = Path(sys.prefix) if cache is None else cache
    home = root / f"emulator-{_digest(wheel, hide, also)}"
    if (home / "complete").is_file():
        return home
    root.mkdir(parents=True, exist_ok=True)
    with (root / "emulator.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (home / "complete").is_file():
            shutil.rmtree(home, ignore_errors=True)
            symbols = read_symbols([wheel], [wheel.parent / "torch" / "lib"], single=also)
            _build_in(home, headers or wheel / "include", symbols, frozenset(hide))
            (home / "complete").touch()
    return home


def _check_possible() -> Path:
    if platform.machine() != "x86_64" or sys.platform != "linux":
        raise EmulatorUnavailableError(
            f"the emulated CANN passes arguments as x86-64 Linux does, not {platform.machine()} {sys.platform}"
        )
    for tool in ("gcc", "g++", "nm", "readelf"):
        if shutil.which(tool) is None:
            raise EmulatorUnavailableError(f"building the emulated CANN needs '{tool}', which is not on PATH")
    spec = importlib.util.find_spec("torch_npu")
    if spec is None or spec.origin is None:
        raise EmulatorUnavailableError(
            f"torch_npu is not installed for {sys.executable}: run 'make emulator' and use .venv-ascend/bin/python"
        )
    return Path(spec.origin).parent


def _digest(wheel: Path, hide: Iterable[str], also: Iterable[Path]) -> str:
    digest = hashlib.sha256()
    records = sorted(wheel.parent.glob("torch_npu-*.dist-info/RECORD"))
    for path in [*records, *sorted(CORE.iterdir()), *sorted(HERE.glob("*.py"))]:
        if path.suffix in {".c", ".cpp", ".h", ""} or path.name in {"build.py", "wheel_symbols.py"}:
            digest.update(path.read_bytes())
    digest.update(repr((sorted(hide), [str(path) for path in also])).encode())
    return digest.hexdigest()[:16]


def _build_in(home: Path, include: Path, symbols: WheelSymbols, hide: frozenset[str]) -> None:
    work, lib, nnal = home / "build", home / "lib64", home / "nnal" / "atb" / "cxx_abi_1" / "lib"
    for directory in (work, lib, nnal, *(home / name for name in _DIRECTORIES)):
        directory.mkdir(parents=True)
    sources = {
        "libhccl.so": ["hccl.cpp"],
        "libatb.so": ["atb.cpp"],
        "libmspti.so": ["mspti.c"],
        "libms_tools_ext.so": ["mstx.c"],
    }
    separate = {name for names in sources.values() for name in names}
    sources["libascendcl.so"] = [path.name for path in sorted(CORE.glob("*.c")) if path.name not in separate]
    objects = _compile(work, include, sources)
    defined = {name: _defined(paths) for name, paths in objects.items()}
    apis = [name for name in symbols.two_phase if name not in hide]
    trampolines = {
        "libopapi.so": [name for name in apis if not name.startswith("Atb")],
        "libatb.so": [name for name in apis if name.startswith("Atb")],
    }
    known = set().union(*defined.values())
    rest = {name for name in (*symbols.linked, *symbols.looked_up) if name not in known and name not in hide}
    atb_rest = {name for name in rest if "3atb" in name}
    stubs = {"libascendcl.so": rest - atb_rest, "libatb.so": atb_rest}
    for name in ("libascendcl.so", *sorted({*symbols.libraries, *sources} - {"libascendcl.so"})):
        parts = [*objects.get(name, ())]
        assembly = _assembly(trampolines.get(name, ()), sorted(stubs.get(name, ())))
        if assembly:
            source = work / f"{name}.S"
            source.write_text(assembly)
            parts.append(source)
        _link(
            (nnal if name == "libatb.so" else lib) / name,
            parts,
            [] if name == "libascendcl.so" else [lib / "libascendcl.so"],
        )
    _write_files(home)


def _compile(work: Path, include: Path, sources: dict[str, list[str]]) -> dict[str, list[Path]]:
    running: list[tuple[str, subprocess.Popen[str]]] = []
    objects: dict[str, list[Path]] = {}
    for library, names in sources.items():
        for name in names:
            target = work / f"{name}.o"
            compiler = ["g++", "-std=c++17"] if name.endswith(".cpp") else ["gcc", "-std=gnu11"]
            command = [*compiler, *_FLAGS, f"-I{include}", f"-I{include}/third_party/acl/inc", "-c"]
            running.append((name, _start([*command, str(CORE / name), "-o", str(target)])))
            objects.setdefault(library, []).append(target)
    for name, process in running:
        _finish(name, process)
    return objects


def _start(command: Sequence[str]) -> subprocess.Popen[str]:
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def _finish(what: str, process: subprocess.Popen[str]) -> None:
    output, _ = process.communicate()
    if process.returncode:
        raise EmulatorUnavailableError(f"building the emulated CANN failed at {what}:\n{output}")


def _defined(objects: Iterable[Path]) -> set[str]:
    found: set[str] = set()
    for path in objects:
        output = subprocess.run(
            ["nm", "--defined-only", path], capture_output=True, text=True, check=True
        ).stdout
        found.update(line.split()[-1] for line in output.splitlines() if line.split()[-2] in "TDBWVR")
    return found


def _assembly(two_phase: Sequence[str], stubs: Sequence[str]) -> str:
    """Return one trampoline for each phase of each API, and a function that answers 0 for each stub.

    The first phase hands registers, floating-point registers and stack to C, which tells arguments apart itself:
    the wheel names the functions but not their parameters.
    """
    lines = [".intel_syntax noprefix", ".text"]
    if two_phase:
        lines += [
            "record_arguments:",
            "push rbp; mov rbp, rsp; sub rsp, 112",
            "mov [rsp], rdi; mov [rsp+8], rsi; mov [rsp+16], rdx",
            "mov [rsp+24], rcx; mov [rsp+32], r8; mov [rsp+40], r9",
            *(f"movsd [rsp+{48 + 8 * index}], xmm{index}" for index in range(8)),
            "mov rdi, r11; mov rsi, rsp; lea rdx, [rsp+48]; lea rcx, [rbp+16]",
            "call emu_workspace_size@PLT; leave; ret",
        ]
    for index, name in enumerate(two_phase):
        text = f".Lname{index}"
        execute = "emu_execute_atb" if name.startswith("Atb") else "emu_execute"
        lines += [
            f'.section .rodata; {text}: .asciz "{name}"; .text',
            f".globl {name}GetWorkspaceSize; .type {name}GetWorkspaceSize, @function",
            f"{name}GetWorkspaceSize: lea r11, {text}[rip]; jmp record_arguments",
            f".globl {name}; .type {name}, @function",
            f"{name}: lea r8, {text}[rip]; jmp {execute}@PLT",
        ]
    for index, name in enumerate(stubs):
        text = f".Lstub{index}"
        lines += [
            f'.section .rodata; {text}: .asciz "{name}"; .text',
            f".globl {name}; .type {name}, @function",
            f"{name}: sub rsp, 8; lea rdi, {text}[rip]; call emu_stub_called@PLT; xor eax, eax; add rsp, 8; ret",
        ]
    lines.append('.section .note.GNU-stack,"",@progbits')
    return "\n".join(lines) + "\n" if two_phase or stubs else ""


def _link(target: Path, parts: Sequence[Path], needed: Sequence[Path]) -> None:
    command = ["g++", "-shared", "-o", str(target), f"-Wl,-soname,{target.name}", "-Wl,--no-as-needed"]
    command += ["-Wl,-Bsymbolic", *map(str, parts), *map(str, needed), "-lpthread", "-ldl"]
    _finish(target.name, _start(command))


def _write_files(home: Path) -> None:
    (home / "version.info").write_text("Version=8.5.0\n")
    (home / "x86_64-linux" / "ascend_toolkit_install.info").write_text(
        "package_name=Ascend-cann-toolkit\nversion=8.5.0\ninnerversion=emulated\narch=x86_64\n"
    )
    for name in ("msprof",):
        program = home / "bin" / name
        program.write_text(
            f'#!/bin/sh\nexec {shlex.quote(sys.executable)} {shlex.quote(str(HERE / name))}.py "$@"\n'
        )
        program.chmod(0o755)


def _prepended(value: str, *directories: Path) -> str:
    kept = [part for part in value.split(":") if part and "/emulator-" not in part]
    return ":".join([*map(str, directories), *kept])


def main(arguments: Sequence[str] | None = None) -> int:
    """Build the emulator; print its directory, or the lines that a shell evaluates."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cache", type=Path, help="where builds are kept (default: this environment)")
    parser.add_argument("--hide", type=Path, help="file of API names to leave out, one a line")
    parser.add_argument(
        "--also", type=Path, action="append", default=[], help="another shared object that needs CANN"
    )
    parser.add_argument("--headers", type=Path, help="directory of ACL headers (default: the wheel's)")
    parser.add_argument("--print-env", action="store_true", help="print export lines for a shell")
    parser.add_argument("--env-file", type=Path, help="write the export lines to this file")
    options = parser.parse_args(arguments)
    hide = options.hide.read_text().split() if options.hide else ()
    try:
        home = build(options.cache, hide=hide, also=options.also, headers=options.headers)
    except EmulatorUnavailableError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    lines = [
        f"export {name}={shlex.quote(value)}"
        + (f'"${{{name}:+:${name}}}"' if name in {"LD_LIBRARY_PATH", "PATH"} else "")
        for name, value in environment(home, base={}).items()
    ]
    if options.env_file:
        options.env_file.write_text("\n".join(lines) + "\n")
    print("\n".join(lines) if options.print_env else home)
    return 0


if __name__ == "__main__":
    sys.exit(main())
