"""Databases of misbehaving rows, and the command line run in this process on a family without a device."""

from __future__ import annotations

import csv
import hashlib
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import attrs
import pytest

from perfcollect_core.cli import main
from perfcollect_core.runner.journal import read_lines
from perfcollect_core.tables.identity import adopt_identity

HEADER = (
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
    "Fault",
    "Sleep Ms",
    "Ranks",
    "Fault Rank",
)


def write_fault_table(path: Path, rows: Sequence[dict[str, str]]) -> None:
    """Write a table whose row *i* (from 1) has ``i,512`` as its input shape and the cells given."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, HEADER)
        writer.writeheader()
        for number, cells in enumerate(rows, start=1):
            writer.writerow(
                {
                    "OP State": "dynamic",
                    "Input Shapes": f'"{number},512"',
                    "Input Data Types": "DT_BF16",
                    "Input Formats": "ND",
                    "Output Shapes": f'"{number},512"',
                    "Output Data Types": "DT_BF16",
                    "Output Formats": "ND",
                    **cells,
                }
            )


@attrs.frozen
class FaultDatabase:
    """A database of one table, ``Fault.csv``."""

    path: Path

    @property
    def table(self) -> Path:
        return self.path / "Fault.csv"

    def rows(self) -> list[dict[str, str]]:
        with self.table.open(encoding="utf-8-sig", newline="") as file:
            return list(csv.DictReader(file))

    def measured(self) -> list[int]:
        """Return the numbers of the rows with a duration."""
        return [number for number, row in enumerate(self.rows(), start=1) if row["Average Duration(us)"]]

    def digest(self) -> str:
        return hashlib.sha256(self.table.read_bytes()).hexdigest()

    def run_dirs(self) -> list[Path]:
        return sorted((self.path / "reports" / "runs").glob("*"))

    def journal(self, kind: str) -> list[dict[str, Any]]:
        """Return the journal lines of one kind over all runs, in order."""
        journals = [run / "journal.jsonl" for run in self.run_dirs()]
        lines = [line for journal in journals if journal.exists() for line in read_lines(journal)]
        return [line for line in lines if line is not None and line["kind"] == kind]

    def outcomes(self) -> dict[int, str]:
        """Return how each row ended last, by its number."""
        ends = {}
        for kind, field in (("measured", "kind"), ("failed", "failure")):
            for line in self.journal(kind):
                ends[int(line["row"][1][1].split(",")[0])] = line[field]
        return ends


MakeDatabase = Callable[..., FaultDatabase]


@pytest.fixture
def fault_database(fake_distribution, tmp_path) -> MakeDatabase:
    """Install the fault-injecting operator and families, and return a maker of databases."""
    fake_distribution(
        "perfcollect-faults",
        operators={"Fault": "perfcollect_core.testing.faults:operator"},
        families={
            "noop": "perfcollect_core.testing.simulated:noop",
            "sleeping": "perfcollect_core.testing.simulated:sleeping",
        },
    )

    def make(
        *faults: str | dict[str, str], name: str = "database", family: str | None = None
    ) -> FaultDatabase:
        rows = [{"Fault": fault} if isinstance(fault, str) else fault for fault in faults]
        database = FaultDatabase(tmp_path / name)
        write_fault_table(database.table, rows)
        if family is not None:
            # The simulated families have no core of their own that rows could be known by.
            adopt_identity(database.path, family=family, device=family.upper())
        return database

    return make


@attrs.frozen
class Finished:
    """What a command printed and returned."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> dict[str, Any]:
        return json.loads(self.out)


@pytest.fixture
def run(capsys) -> Callable[..., Finished]:
    """Run ``perfcollect run`` on a fault database in this process."""

    def command(database: FaultDatabase, *options: str, family: str = "noop") -> Finished:
        capsys.readouterr()
        code = main(["run", "--database-path", str(database.path), "--family", family, *options])
        captured = capsys.readouterr()
        return Finished(code, captured.out, captured.err)

    return command
