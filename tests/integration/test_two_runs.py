"""Two runs on one database at the same time lose nothing (in processes of their own)."""

from __future__ import annotations

import csv
import os
import subprocess
import sys
from pathlib import Path

from perfcollect_core.tables.identity import adopt_identity
from perfcollect_core.testing import write_distribution

_MAIN = "import sys; from perfcollect_core.cli import main; sys.exit(main())"
_HEADER = (
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
)


def make_database(directory: Path, rows: int) -> Path:
    directory.mkdir()
    with (directory / "Fault.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(_HEADER)
        for number in range(1, rows + 1):
            shape = f'"{number},512"'
            writer.writerow(("dynamic", "", shape, "DT_BF16", "ND", shape, "DT_BF16", "ND", "", ""))
    return directory


def start(database: Path, plugins: Path, *options: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", _MAIN, "run", "--database-path", str(database), "--family", "noop", *options],
        env={**os.environ, "PYTHONPATH": str(plugins)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def install(directory: Path) -> Path:
    write_distribution(
        directory,
        "perfcollect-faults",
        "1.0",
        {
            "operators": {"Fault": "perfcollect_core.testing.faults:operator"},
            "families": {"noop": "perfcollect_core.testing.simulated:noop"},
        },
    )
    return directory


def test_two_runs_on_one_table_both_finish_with_every_row(tmp_path):
    database = make_database(tmp_path / "db", 100)
    plugins = install(tmp_path / "plugins")

    first = start(database, plugins, "--rows", "1-50")
    second = start(database, plugins, "--rows", "51-100")
    printed = [process.communicate(timeout=120)[0] for process in (first, second)]

    assert (first.returncode, second.returncode) == (0, 0), printed
    content = (database / "Fault.csv").read_bytes()
    assert content.count(b"\r\n") == 101
    with (database / "Fault.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["Input Shapes"] for row in rows] == [f'"{number},512"' for number in range(1, 101)]
    assert all(row["Average Duration(us)"] == "1.000000" for row in rows)


def test_a_full_disk_ends_the_run_with_a_sentence_and_loses_nothing(tmp_path):
    import pytest

    if os.geteuid() != 0:
        pytest.skip("a small file system needs root")
    small = tmp_path / "small"
    small.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=128k", "none", str(small)], capture_output=True
    )
    if mounted.returncode:
        pytest.skip(f"no tmpfs here: {mounted.stderr.decode().strip()}")
    try:
        database = make_database(small / "db", 400)
        adopt_identity(database, family="noop", device="NOOP")
        before = (database / "Fault.csv").read_bytes()
        plugins = install(tmp_path / "plugins")

        process = start(database, plugins)
        printed, _ = process.communicate(timeout=120)

        assert process.returncode == 1, printed
        assert "no space left on device" in printed.lower()
        assert "Traceback" not in printed
        assert (database / "Fault.csv").read_bytes() == before
    finally:
        subprocess.run(["umount", str(small)], check=True)
