"""End whole process trees, bind workers to their run, bound their memory.

torchrun puts its children into sessions of their own and profilers fork helpers, so a tree is found by the token in
the environment of its processes as well as by parentage; orphans come to this process because it is a subreaper.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

__all__ = [
    "become_subreaper",
    "die_with_parent",
    "end_orphans",
    "end_processes",
    "end_tree",
    "find_orphans",
    "find_tree",
    "forbid_core_dumps",
    "limit_memory",
    "machine_memory_bytes",
    "raise_oom_score",
    "reap",
]

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
#: Time between SIGTERM and SIGKILL.
GRACE_SECONDS = 1.0


def _prctl(option: int, value: int) -> bool:
    if not sys.platform.startswith("linux"):
        return False
    return bool(ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0) == 0)


def become_subreaper() -> bool:
    """Adopt orphaned descendants from now on; ``False`` where the system cannot."""
    return _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def die_with_parent() -> None:
    """Have the kernel kill this process when its parent dies."""
    parent = os.getppid()
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def raise_oom_score(score: int = 700) -> None:
    """Have the kernel's out-of-memory killer take this process before the one that owns the tables."""
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(str(score), encoding="ascii")


def limit_memory(limit_bytes: int) -> None:
    """Bound this process's private memory: an allocation past it fails and hurts nobody else."""
    import resource

    # Not RLIMIT_AS: drivers and allocators reserve address space they never touch.
    hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
    soft = limit_bytes if hard == resource.RLIM_INFINITY else min(limit_bytes, hard)
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


def forbid_core_dumps() -> None:
    """Keep a crash from filling the disk with the memory of the process."""
    import resource

    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))


def machine_memory_bytes() -> int:
    """Return the memory this process may use: the machine's, or its control group's where that is less."""
    found = []
    with suppress(OSError, ValueError, AttributeError):
        found.append(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        with suppress(OSError, ValueError):
            found.append(int(Path(path).read_text(encoding="ascii")))
    return min(found, default=0)


def _processes() -> dict[int, int]:
    """Return pid -> parent pid of every process that is not a zombie."""
    found = {}
    for process in Path("/proc").iterdir():
        if not process.name.isdigit():
            continue
        with suppress(OSError, IndexError, ValueError):
            stat = (process / "stat").read_text(encoding="utf-8", errors="replace")
            state, parent = stat.rpartition(")")[2].split()[:2]
            if state not in ("Z", "X"):
                found[int(process.name)] = int(parent)
    return found


def find_tree(token: str, root: int | None = None) -> set[int]:
    """Return the live processes whose environment carries *token*, and all descendants of *root* and of those."""
    if not Path("/proc/self/stat").exists():
        return {root} if root is not None and _alive(root) else set()
    parents = _processes()
    mark = token.encode()
    tree = {root} if root in parents else set()
    for pid in parents:
        with suppress(OSError):
            if mark in Path("/proc", str(pid), "environ").read_bytes():
                tree.add(pid)
    tree.discard(os.getpid())
    grown = True
    while grown:
        more = {pid for pid, parent in parents.items() if parent in tree} - tree
        tree |= more
        grown = bool(more)
    return {pid for pid in tree if pid is not None}


def find_orphans(variable: str) -> set[int]:
    """Return the processes whose environment names in *variable* a process that is gone, and their descendants.

    Only those of this process-id namespace: numbers of another one mean other processes.
    """
    ours = _namespace("self")
    mark = f"{variable}=".encode()
    found: set[int] = set()
    for pid in _processes():
        with suppress(OSError, ValueError):
            entries = Path("/proc", str(pid), "environ").read_bytes().split(b"\0")
            owner = next((int(e[len(mark) :]) for e in entries if e.startswith(mark)), None)
            if owner is not None and not _alive(owner) and _namespace(str(pid)) == ours:
                found.add(pid)
    return found


def end_orphans(variable: str) -> int:
    """End what killed runs left behind, which may still hold a device; returns how many processes that were."""
    if not Path("/proc/self/stat").exists():
        return 0
    orphans = find_orphans(variable)
    _signal(orphans, signal.SIGKILL)
    return len(orphans)


def _namespace(process: str) -> str:
    with suppress(OSError):
        return str(Path("/proc", process, "ns", "pid").readlink())
    return ""


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _signal(pids: Iterable[int], number: int) -> None:
    for pid in pids:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def end_tree(token: str, root: int | None, *, grace_seconds: float = GRACE_SECONDS) -> set[int]:
    """End every process of a tree: SIGTERM, *grace_seconds*, SIGKILL. Returns what would not die."""
    tree = find_tree(token, root)
    known = set(tree)
    if tree and grace_seconds > 0:
        _signal(tree, signal.SIGTERM)
        # A stopped process acts on no signal but SIGKILL.
        _signal(tree, signal.SIGCONT)
        deadline = time.monotonic() + grace_seconds
        pause = 0.005
        while tree and time.monotonic() < deadline:
            time.sleep(pause)
            pause = min(2 * pause, 0.05)
            reap(known - {root})
            # A short look at those known first; the whole walk only when they are gone.
            if not any(_running(pid) for pid in known):
                tree = find_tree(token, root)
                known |= tree
    deadline = time.monotonic() + 2.0
    while True:
        tree = find_tree(token, root)
        known |= tree
        if not tree or time.monotonic() > deadline:
            break
        _signal(tree, signal.SIGKILL)
        time.sleep(0.01)
        reap(known - {root})
    # The root is collected by whoever started it and wants its status.
    reap(known - {root})
    return tree


def end_processes(pids: Iterable[int], token: str, root: int, grace_seconds: float) -> None:
    """Kill those of *pids* that belong to a tree and have not left by themselves after *grace_seconds*."""
    deadline = time.monotonic() + grace_seconds
    alive = {pid for pid in pids if pid and _running(pid)}
    while alive and time.monotonic() < deadline:
        time.sleep(0.02)
        alive = {pid for pid in alive if _running(pid)}
    _signal(alive & find_tree(token, root), signal.SIGKILL)


def _running(pid: int) -> bool:
    try:
        stat = Path("/proc", str(pid), "stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] not in ("Z", "X")


def reap(pids: Iterable[int | None]) -> None:
    """Collect those of *pids* that are dead children of this process, adopted ones too."""
    for pid in pids:
        if pid is None:
            continue
        with suppress(ChildProcessError, OSError):
            os.waitpid(pid, os.WNOHANG)
