"""Environments that hold exactly the distributions a test names: no network, no installer, a second each.

Third-party packages are linked from the environment the tests run in; wheels of ours are unpacked by pip.
Run as a script, it runs core's own tests where only core is installed and torch is not.
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

REPOSITORY = Path(__file__).resolve().parents[2]
DISTRIBUTIONS = (
    "perfcollect_core",
    "perfcollect_ops_builtin",
    "perfcollect_ops_vllm_ascend",
    "perfcollect_comm",
)


class Environment:
    """A virtual environment at *directory* with the dependency closure of *packages*."""

    def __init__(self, directory: Path, packages: Iterable[str]) -> None:
        venv.create(directory, symlinks=True, with_pip=False)
        self.directory = directory
        self.python = directory / "bin" / "python"
        self.site = Path(
            sysconfig.get_path("purelib", vars={"base": str(directory), "platbase": str(directory)})
        )
        for name in closure(packages):
            self._link(metadata.distribution(name))

    def _link(self, distribution: metadata.Distribution) -> None:
        for top in {file.parts[0] for file in distribution.files or ()}:
            source, target = Path(str(distribution.locate_file(top))), self.site / top
            if top not in ("..", "__pycache__") and source.exists() and not target.exists():
                target.symlink_to(source)

    def install(self, wheel: Path) -> None:
        """Install a wheel of ours, without its dependencies."""
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--target"]
        subprocess.run([*command, str(self.site), str(wheel)], check=True, capture_output=True)

    def run(
        self, *arguments: str | Path, cwd: Path | None = None, **variables: str
    ) -> subprocess.CompletedProcess[str]:
        """Run this environment's python with nothing of the caller's on its path."""
        inherited = {
            name: text for name, text in os.environ.items() if not name.startswith(("PYTHON", "PERFCOLLECT"))
        }
        return subprocess.run(
            [str(self.python), *map(str, arguments)],
            env={**inherited, "OMP_NUM_THREADS": "1", **variables},
            cwd=cwd or self.directory,
            capture_output=True,
            text=True,
            check=False,
        )

    def perfcollect(self, *arguments: str | Path, **options: object) -> subprocess.CompletedProcess[str]:
        """Run the console script's function."""
        code = "import sys; from perfcollect_core.cli import main; sys.exit(main())"
        return self.run("-c", code, *arguments, **options)  # type: ignore[arg-type]


def closure(packages: Iterable[str]) -> set[str]:
    """Return *packages* and all they require here, extras left out."""
    found: set[str] = set()
    todo = [canonicalize_name(name) for name in packages]
    while todo:
        name = todo.pop()
        if name in found:
            continue
        try:
            requirements = metadata.requires(name) or ()
        except metadata.PackageNotFoundError:
            continue
        found.add(name)
        for text in requirements:
            requirement = Requirement(text)
            if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
                todo.append(canonicalize_name(requirement.name))
    return found


def core_requirements() -> list[str]:
    """Return what perfcollect-core depends on."""
    return [Requirement(text).name for text in metadata.requires("perfcollect-core") or ()]


def build_wheel(project: Path, directory: Path) -> Path:
    """Build the wheel of *project* into *directory*, as any front end would, with the hatchling that is here."""
    directory.mkdir(parents=True, exist_ok=True)
    before = set(directory.iterdir())
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(directory)]
    done = subprocess.run(command, cwd=project, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"building {project} failed: {done.stderr}")
    (wheel,) = set(directory.iterdir()) - before
    return wheel


def main(arguments: list[str]) -> int:
    """Build core's wheel, install it alone and run its tests."""
    import tempfile

    with tempfile.TemporaryDirectory() as directory:
        packages = [*core_requirements(), "pytest", "pytest-xdist", "hypothesis"]
        environment = Environment(Path(directory, "venv"), packages)
        environment.install(build_wheel(REPOSITORY / "perfcollect_core", Path(directory, "dist")))
        absent = environment.run("-c", "import torch")
        if absent.returncode == 0:
            print("torch is importable where it should not be", file=sys.stderr)
            return 1
        # -I, because the repository root holds folders of the other distributions' names.
        command = [
            str(environment.python),
            "-I",
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            *(arguments or ["tests/core"]),
        ]
        return subprocess.run(command, cwd=REPOSITORY, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
