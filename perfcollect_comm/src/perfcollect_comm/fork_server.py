"""Start the ranks of one node: ``python -m perfcollect_comm.fork_server ORDERS.json [--watch-stdin]``.

torch is imported once and the ranks are forked from here, which takes a third of a second for sixteen instead of a
quarter of a minute. No device has been touched at that point; each rank opens its own.
"""

from __future__ import annotations

import faulthandler
import json
import os
import signal
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

from .backend import CommBackend
from .orders import Orders
from .plan import CommPlan, make_plan
from .rank import RankSettings, run_rank

__all__ = ["main", "serve"]


def main(arguments: Sequence[str]) -> int:
    """Read orders from a file, run the ranks, and return the number of those that failed.

    With ``--watch-stdin`` the ranks end when stdin closes; a profiler between launcher and ranks may not pass it on.
    """
    orders = Orders.from_json(json.loads(Path(arguments[0]).read_text(encoding="utf-8")))
    return serve(orders, watch_stdin="--watch-stdin" in arguments)


def serve(orders: Orders, *, watch_stdin: bool) -> int:
    """Fork the ranks of *orders*; each one's output goes to its own log. Returns the number of ranks that failed."""
    os.environ.update(orders.environment)
    _die_with_parent()
    import torch.distributed  # noqa: F401  # imported for the ranks that are forked below

    backend = orders.load_backend()
    plan = make_plan(orders.request)
    children = {}
    for settings in orders.ranks:
        pid = os.fork()
        if pid == 0:
            os._exit(_rank_process(orders, plan, backend, settings))
        children[pid] = settings.rank
    if watch_stdin:
        # The launcher holds our stdin: when it goes, by whatever end, the ranks go too.
        threading.Thread(target=_end_with_stdin, args=(tuple(children),), daemon=True).start()
    failed = 0
    for _ in range(len(children)):
        _, status = os.wait()
        failed += status != 0
    return failed


def _rank_process(orders: Orders, plan: CommPlan, backend: CommBackend, settings: RankSettings) -> int:
    _die_with_parent()
    log = os.open(
        Path(orders.log_dir) / f"rank{settings.rank}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644
    )
    os.dup2(log, 1)
    os.dup2(log, 2)
    faulthandler.enable()
    try:
        run_rank(settings, plan, backend)
    except (OSError, EOFError) as error:
        print(f"rank {settings.rank} lost its coordinator: {error}", file=sys.stderr, flush=True)
        return 1
    # Destroying communicators can hang once a peer is gone; the process ends here anyway.
    sys.stderr.flush()
    return 0


def _end_with_stdin(children: tuple[int, ...]) -> None:
    while os.read(0, 4096):
        pass
    for pid in children:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue


def _die_with_parent() -> None:
    """Ask the kernel to end this process with its parent, so that no rank outlives a killed launcher."""
    import ctypes

    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
