"""What the drills share: a database of many rows, the fault-injecting plugins, runs in processes of their own."""

from __future__ import annotations

import csv
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

from perfcollect_core.runner.journal import read_lines
from perfcollect_core.tables.identity import adopt_identity
from perfcollect_core.tables.read import read_table
from perfcollect_core.testing.distributions import write_distribution
from perfcollect_core.testing.faults import TRACE_VARIABLE

__all__ = ["Stage", "key_of"]

HEADER = [
    "OP State",
    "Accelerator Core",
    "Input Shapes",
    "Input Data Types",
    "Input Formats",
    "Output Shapes",
    "Output Data Types",
    "Output Formats",
    "Average Duration(us)",
    "Profiling Average Duration(us)",
    "Note",
    "Fault",
    "Sleep Ms",
]

_MAIN = """
import sys
from perfcollect_core.runner import write_back
write_back._FLUSH_EVERY_SECONDS = {flush_seconds}
{prelude}
from perfcollect_core.cli import main
sys.exit(main())
"""


def key_of(row: Sequence[Any]) -> str:
    """Return the number in the first shape of a journal line's row (``7,512`` gives ``7``)."""
    return str(row[1][1]).partition(",")[0]


@attrs.define
class Stage:
    """A directory with a database ``db`` and a distribution of plugins; tables are patched every *flush_seconds*."""

    directory: Path
    family: str = "noop"
    flush_seconds: float = 0.1

    @property
    def database(self) -> Path:
        return self.directory / "db"

    @property
    def table(self) -> Path:
        return self.database / "Fault.csv"

    @property
    def trace(self) -> Path:
        return self.directory / "begun.txt"

    def build(self, faults: Sequence[str], sleep_ms: float = 0.0) -> None:
        """Make the database, one row for each of *faults*."""
        plugins = self.directory / "plugins"
        if not plugins.exists():
            write_distribution(
                plugins,
                "perfcollect-faults",
                "1.0",
                {
                    "operators": {"Fault": "perfcollect_core.testing.faults:operator"},
                    "families": {
                        name: f"perfcollect_core.testing.simulated:{name}" for name in ("noop", "sleeping")
                    },
                },
            )
        self.database.mkdir(parents=True)
        with self.table.open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(HEADER)
            for number, fault in enumerate(faults, start=1):
                shape = f'"{number},512"'
                slots = (shape, "DT_BF16", "ND", shape, "DT_BF16", "ND")
                writer.writerow(("dynamic", "", *slots, "", "", f"row, {number}", fault, sleep_ms or ""))
        adopt_identity(self.database, family=self.family, device=self.family.upper())

    def start(
        self, *options: str, prelude: str = "", environment: Mapping[str, str] | None = None
    ) -> subprocess.Popen[str]:
        """Start ``perfcollect run`` in a process of its own."""
        env = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(
                filter(None, (str(self.directory / "plugins"), os.environ.get("PYTHONPATH")))
            ),
            "PYTHONWARNINGS": "ignore",
            TRACE_VARIABLE: str(self.trace),
            **(environment or {}),
        }
        command = [
            sys.executable,
            "-c",
            _MAIN.format(prelude=prelude, flush_seconds=self.flush_seconds),
            "run",
            "--family",
            self.family,
        ]
        return subprocess.Popen(
            [*command, "--database-path", str(self.database), *options],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=env,
        )

    def run(self, *options: str, **more: Any) -> tuple[int, str]:
        """Run to the end; returns exit code and what was printed."""
        process = self.start(*options, **more)
        printed, _ = process.communicate(timeout=3600)
        return process.returncode, printed

    def lines(self) -> Iterator[dict[str, Any]]:
        """Yield the journal lines of every run."""
        for journal in sorted((self.database / "reports" / "runs").glob("*/journal.jsonl")):
            yield from (line for line in read_lines(journal) if line is not None)

    def has_run(self) -> bool:
        return any((self.database / "reports" / "runs").glob("*/journal.jsonl"))

    def ends(self) -> dict[str, str]:
        """Return how each row ended last: ``measured`` or its failure class."""
        return {
            key_of(line["row"]): line.get("failure", "measured")
            for line in self.lines()
            if line["kind"] in ("measured", "failed")
        }

    def measured_counts(self) -> Counter[str]:
        """Return how often each row was journalled as measured."""
        return Counter(key_of(line["row"]) for line in self.lines() if line["kind"] == "measured")

    def begun_counts(self) -> Counter[str]:
        """Return how often each row was begun by a worker."""
        text = self.trace.read_text(encoding="utf-8") if self.trace.exists() else ""
        return Counter(line.partition(",")[0] for line in text.splitlines())

    def check_table(self, rows: int) -> dict[str, dict[str, str]]:
        """Read the table strictly; every row must be there once. Returns cells by row number."""
        found = {
            row.get("Input Shapes").partition(",")[0]: dict(row.cells) for row in read_table(self.table).rows
        }
        if set(found) != {str(number) for number in range(1, rows + 1)}:
            raise AssertionError(f"{rows} rows expected, {len(found)} found in {self.table}")
        return found
