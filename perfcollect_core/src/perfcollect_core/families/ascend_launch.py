"""Start Ascend workers: msprof around torchrun around the worker, with the environment they need (parent side)."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path

from perfcollect_core.environment import Launch
from perfcollect_core.errors import DataError, MissingEnvironmentError

from .ascend_environment import WorkerEnvironment, find_worker_environment
from .ascend_measure import has_ranges
from .ascend_probe import AscendMachine
from .ascend_visible import VARIABLE
from .cpu_facts import usable_threads
from .launching import thread_env, torchrun_argv, worker_env

__all__ = ["MSPROF_OPTIONS", "launch_plain", "launch_profiled", "msprof_options", "worker_environment"]

#: What msprof is asked for beside its output; the metrics are those of its default, named so that they are recorded.
MSPROF_OPTIONS = ("--ascendcl=on", "--task-time=on", "--ai-core=on", "--aic-metrics=PipeUtilization")
#: A full session and its export take well under this.
_NEEDED_BYTES = 2 << 30


def worker_environment(ranks: int = 1) -> WorkerEnvironment:
    """Return what this process's environment lacks for workers, and a sentence for each addition."""
    try:
        torch = metadata.version("torch")
    except metadata.PackageNotFoundError:
        torch = ""
    return find_worker_environment(os.environ, ranks=ranks, torch_version=torch)


def launch_profiled(argv: Sequence[str], ranks: int, device: int, run_dir: Path) -> Launch:
    """Return the command of a worker under msprof; its profile goes into a directory of its own.

    Raises:
        DataError: The disk of *run_dir* has no room for a profile.
        MissingEnvironmentError: There is no msprof.
    """
    machine = AscendMachine()
    msprof = machine.msprof()
    if msprof is None:
        raise MissingEnvironmentError(
            "msprof is missing (on PATH and in the CANN toolkit)",
            hint="install the CANN toolkit, which brings it, and put it on PATH",
        )
    directory = _profile_dir(run_dir, device)
    plain = launch_plain(argv, ranks, device)
    command = (msprof, f"--output={directory}", *msprof_options(os.environ), *plain.argv)
    return Launch(command, plain.env, directory)


def launch_plain(argv: Sequence[str], ranks: int, device: int) -> Launch:
    """Return the command of a worker without a profiler."""
    env: dict[str, str | None] = {
        **worker_env(),
        **thread_env(max(1, min(4, usable_threads() // ranks))),
        **worker_environment(ranks).env,
        # Queued launches overlap with the host; a failing case is told apart by its own process.
        "TASK_QUEUE_ENABLE": os.environ.get("TASK_QUEUE_ENABLE", "1"),
        "ASCEND_LAUNCH_BLOCKING": os.environ.get("ASCEND_LAUNCH_BLOCKING", "0"),
        **_visible(device, ranks, os.environ),
    }
    return Launch(torchrun_argv(argv, ranks) if ranks > 1 else tuple(argv), env)


def msprof_options(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the options of msprof: ranges are recorded where a person preloads the library that makes them real."""
    return (*MSPROF_OPTIONS, "--msproftx=on") if has_ranges(environ) else MSPROF_OPTIONS


def _profile_dir(run_dir: Path, device: int) -> Path:
    profiles = run_dir / "profiles"
    profiles.mkdir(parents=True, exist_ok=True)
    _, _, free = shutil.disk_usage(profiles)
    if free < _NEEDED_BYTES:
        raise DataError(
            f"{profiles} has {free / 2**30:.1f} GiB left, a profiling session needs {_NEEDED_BYTES / 2**30:g}",
            hint="make room, or name another place with --run-dir",
        )
    # msprof refuses a directory that others may write; this one is the user's alone.
    return Path(tempfile.mkdtemp(prefix=f"device_{device}_", dir=profiles))


def _visible(device: int, ranks: int, environ: Mapping[str, str]) -> dict[str, str | None]:
    """Show a worker of one rank its device alone: then no case can touch another's."""
    if ranks > 1:
        return {}
    listed = [word.strip() for word in environ.get(VARIABLE, "").split(",") if word.strip()]
    return {VARIABLE: listed[device] if device < len(listed) else str(device)}
