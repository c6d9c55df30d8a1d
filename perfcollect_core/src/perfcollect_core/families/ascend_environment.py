"""Work out the environment an Ascend worker must be started with: libraries are looked for when a process begins.

Parent side. Nothing here is guessed over what a person set: a variable that is there stays, and one that names nothing
is left for the check of needs to report.
"""

from __future__ import annotations

import importlib.util
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path

import attrs

__all__ = ["WorkerEnvironment", "find_worker_environment"]

_CUSTOM_OPP = "ASCEND_CUSTOM_OPP_PATH"
_LIBRARIES = "LD_LIBRARY_PATH"
_VLLM = "VLLM_ASCEND_PATH"
_WINDOW = "HCCL_BUFFSIZE"
#: Collective kernels exchange through a window of this size, MiB; each communicator owns two of them.
_WINDOW_MIB = "1024"
_CUSTOM_LIBRARY = Path("op_api/lib/libcust_opapi.so")
_NNAL_ROOTS = ("usr/local/Ascend/nnal/atb/latest/atb", "usr/local/Ascend/nnal/atb/set_env/atb")


@attrs.frozen
class WorkerEnvironment:
    """Additions to the environment, and a sentence for each."""

    env: Mapping[str, str] = attrs.field(factory=dict)
    said: tuple[str, ...] = ()


def _find_package(name: str) -> Path | None:
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        return None
    places = list(spec.submodule_search_locations or ()) if spec is not None else []
    return Path(places[0]) if places else None


@attrs.define(eq=False)
class _Finder:
    environ: Mapping[str, str]
    root: Path
    working_directory: Path
    find_package: Callable[[str], Path | None]
    torch_release: tuple[int, ...]
    env: dict[str, str] = attrs.field(factory=dict)
    said: list[str] = attrs.field(factory=list)

    def get(self, name: str) -> str:
        return self.env.get(name, self.environ.get(name, ""))

    def set(self, name: str, value: str, why: str) -> None:
        self.env[name] = value
        self.said.append(f"{name}={value} ({why})")

    def prepend(self, name: str, directory: Path, why: str) -> None:
        parts = [part for part in self.get(name).split(os.pathsep) if part]
        if str(directory) not in parts:
            self.env[name] = os.pathsep.join([str(directory), *parts])
            self.said.append(f"{name} begins with {directory} ({why})")

    def vllm_ascend(self) -> Path | None:
        """Return the vllm_ascend package: the installed one, else of the source tree a person named or has beside."""
        found = self.find_package("vllm_ascend")
        if found is not None:
            return found
        sibling = self.working_directory.parent / "vllm-ascend"
        named = self.environ.get(_VLLM, "")
        for tree, why in ((Path(named), f"{_VLLM} names it"), (sibling, "found beside this directory")):
            if str(tree) != "." and (tree / "vllm_ascend").is_dir():
                if not named:
                    self.set(_VLLM, str(tree), why)
                self.prepend("PYTHONPATH", tree, "vllm_ascend is not installed")
                return tree / "vllm_ascend"
        return None

    def custom_operators(self, package: Path | None) -> None:
        """Find the custom operator package: the one named, else what vllm_ascend brings."""
        named = [Path(part) for part in self.get(_CUSTOM_OPP).split(os.pathsep) if part]
        if not named and package is not None:
            vendors = sorted((package / "_cann_ops_custom" / "vendors").glob("*"))
            named = [vendor for vendor in vendors if (vendor / _CUSTOM_LIBRARY).is_file()]
            if named:
                value = os.pathsep.join(map(str, named))
                self.set(_CUSTOM_OPP, value, "the custom operators of vllm_ascend")
        for vendor in named:
            if (vendor / _CUSTOM_LIBRARY).is_file():
                self.prepend(_LIBRARIES, vendor / _CUSTOM_LIBRARY.parent, "custom operators")

    def transformer_library(self) -> None:
        """Find NNAL's ATB, whose ``set_env.sh`` may not have been sourced."""
        home = self.environ.get("ATB_HOME_PATH", "")
        if home:
            if (Path(home) / "lib/libatb.so").is_file():
                self.prepend(_LIBRARIES, Path(home) / "lib", "ATB_HOME_PATH names it")
            return
        if any(
            (Path(part) / "libatb.so").is_file() for part in self.get(_LIBRARIES).split(os.pathsep) if part
        ):
            return
        # torch's wheels have had the new ABI since 2.6; a build with the other one loads neither.
        abis = ("cxx_abi_1", "cxx_abi_0") if self.torch_release >= (2, 6) else ("cxx_abi_0", "cxx_abi_1")
        for place in _NNAL_ROOTS:
            for abi in abis:
                found = self.root / place / abi
                if (found / "lib/libatb.so").is_file():
                    self.set("ATB_HOME_PATH", str(found), "NNAL is installed there")
                    self.prepend(_LIBRARIES, found / "lib", "NNAL's ATB")
                    return


def find_worker_environment(
    environ: Mapping[str, str],
    *,
    ranks: int = 1,
    torch_version: str = "",
    root: Path = Path("/"),
    working_directory: Path | None = None,
    find_package: Callable[[str], Path | None] = _find_package,
) -> WorkerEnvironment:
    """Return what *environ* lacks for workers of *ranks* ranks and can be found on this machine.

    Args:
        environ: The environment there is.
        ranks: Ranks of a worker; several need a window for their collective kernels.
        torch_version: Installed torch, by which the build of ATB is chosen.
        root: Root of the file system.
        working_directory: Where a source tree of vllm-ascend may lie beside; the current one.
        find_package: Gives the directory of an importable package, ``None`` for none.
    """
    release = tuple(int(part) for part in re.findall(r"\d+", torch_version)[:2])
    finder = _Finder(environ, root, working_directory or Path.cwd(), find_package, release or (2, 6))
    finder.custom_operators(finder.vllm_ascend())
    finder.transformer_library()
    if ranks > 1 and not environ.get(_WINDOW):
        finder.set(_WINDOW, _WINDOW_MIB, "windows of collective kernels, MiB")
    return WorkerEnvironment(finder.env, tuple(finder.said))
