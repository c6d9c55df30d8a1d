"""Start ranks as torchrun does, each in a session of its own, without torch: ``python -m ... RANKS COMMAND...``."""

from __future__ import annotations

import os
import subprocess
import sys
import time

__all__ = ["main"]


def main(arguments: list[str]) -> int:
    """Start the ranks, wait for them, and end the others when one fails."""
    ranks = int(arguments[0])
    processes = []
    for rank in range(ranks):
        environment = {**os.environ, "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(ranks)}
        processes.append(subprocess.Popen(arguments[1:], env=environment, start_new_session=True))
    while True:
        codes = [process.poll() for process in processes]
        if all(code == 0 for code in codes):
            return 0
        if any(code not in (None, 0) for code in codes):
            for process in processes:
                process.terminate()
            for process in processes:
                process.wait()
            return 1
        time.sleep(0.02)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
