"""Write the bundled sample database anew from the example rows of every installed operator but the collectives.

Run by `make samples` after an operator's examples changed; a test compares the two.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from perfcollect_core.cli import main as perfcollect
from perfcollect_core.discovery import plugin_index

DATABASE = Path(__file__).parent / "database"


def main() -> int:
    """Replace the tables; returns the exit code of ``db init``."""
    operators = [name for name in plugin_index().names("operators") if not name.startswith("hcom_")]
    shutil.rmtree(DATABASE, ignore_errors=True)
    code = perfcollect(["db", "init", str(DATABASE), "--ops", *sorted(operators)])
    for left in DATABASE.glob("*.lock*"):
        left.unlink()
    return code


if __name__ == "__main__":
    raise SystemExit(main())
