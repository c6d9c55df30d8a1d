"""How worker processes are started: environment, threads, ranks."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

__all__ = ["THREAD_VARIABLES", "loopback", "run_child", "thread_env", "torchrun_argv", "worker_env"]

THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS")


def worker_env() -> dict[str, str | None]:
    """Return what every worker gets: no back end loaded behind its back, nothing imported from its directory."""
    return {
        "PYTHONSAFEPATH": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONUNBUFFERED": "1",
        # torch imports every installed back end on import; the family imports its own (pytorch#127074).
        "TORCH_DEVICE_BACKEND_AUTOLOAD": "0",
    }


def thread_env(threads: int) -> dict[str, str | None]:
    """Return explicit thread counts; a count the user has set stays (torchrun would set one thread in silence)."""
    chosen = os.environ.get("OMP_NUM_THREADS", "").strip()
    count = chosen if chosen.isdigit() and int(chosen) else str(threads)
    return {variable: os.environ.get(variable) or count for variable in THREAD_VARIABLES}


def loopback() -> str:
    """Return the name of the loopback interface, empty where it is not found."""
    names = [name for name in ("lo", "lo0") if Path("/sys/class/net", name).exists()]
    return names[0] if names else ""


def torchrun_argv(argv: Sequence[str], ranks: int) -> tuple[str, ...]:
    """Return *argv* as *ranks* ranks of one node; torchrun itself picks the free port, so nobody can take it before.

    torchrun's own restarts are off: the runner decides what is run again.
    """
    return (
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--local-addr=127.0.0.1",
        f"--nproc-per-node={ranks}",
        "--max-restarts=0",
        "--no-python",
        *argv,
    )


def run_child(argv: Sequence[str], env: Mapping[str, str | None], seconds: float) -> str:
    """Run a probing process to its end and say how it ended (``exited with 0``, ``did not end within 120 s``).

    Its output is dropped; past the time its whole process group is killed.
    """
    merged = {**os.environ, **{name: value for name, value in env.items() if value is not None}}
    process = subprocess.Popen(
        argv,
        env=merged,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=os.name == "posix",
    )
    try:
        code = process.wait(timeout=seconds)
    except subprocess.TimeoutExpired:
        if os.name == "posix":
            os.killpg(process.pid, signal.SIGKILL)
        else:
            process.kill()
        process.wait()
        return f"did not end within {seconds:g} s"
    return f"exited with {code}" if code >= 0 else f"was ended by {signal.Signals(-code).name}"
