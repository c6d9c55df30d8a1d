"""One writer at a time, across processes."""

from __future__ import annotations

import platform
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from perfcollect_core.errors import DatabaseLockedError, DataError
from perfcollect_core.tables.lock import database_lock
from perfcollect_core.tables.patch import patch_table
from perfcollect_core.tables.read import read_table

HOLD = """
import sys, time
from pathlib import Path
from perfcollect_core.tables.lock import database_lock
with database_lock(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""
PATCH = """
import sys
from pathlib import Path
from perfcollect_core.tables.lock import database_lock
from perfcollect_core.tables.patch import patch_table
from perfcollect_core.tables.read import read_table
path, parity = Path(sys.argv[1]), int(sys.argv[2])
for turn in range(8):
    with database_lock(path.parent, wait_seconds=30):
        rows = [r for i, r in enumerate(read_table(path).rows) if i % 2 == parity]
        patch_table(path, {rows[turn].ref: {"Average Duration(us)": f"{turn + 1}.000000"}})
"""

REWRITE = """
import sys
from pathlib import Path
from perfcollect_core.tables.lock import database_lock
from perfcollect_core.tables.patch import patch_table
from perfcollect_core.tables.read import read_table
path = Path(sys.argv[1])
refs = [row.ref for row in read_table(path).rows]
print("writing", flush=True)
turn = 0
while True:
    turn += 1
    with database_lock(path.parent):
        patch_table(path, {ref: {"Average Duration(us)": f"{turn}.000000"} for ref in refs})
"""


@pytest.fixture
def holder(tmp_path):
    """Another process that holds the database in ``tmp_path``."""
    process = subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    yield process
    process.kill()
    process.wait()
    process.stdout.close()


def test_a_held_database_is_refused_naming_the_holder(tmp_path, holder):
    with pytest.raises(DatabaseLockedError) as caught, database_lock(tmp_path):
        pass

    assert re.fullmatch(
        re.escape(f"database {tmp_path} is held by process {holder.pid} on {platform.node()} since ")
        + r"[0-9T:+-]+ \(-c .*\)",
        str(caught.value),
    )
    assert caught.value.hint == "wait until that process ends, or end it; two writers at once would lose rows"


def test_waiting_for_a_held_database_ends_after_the_time_given(tmp_path, holder):
    started = time.monotonic()

    with (
        pytest.raises(DatabaseLockedError, match=r"after 0\.3 s$"),
        database_lock(tmp_path, wait_seconds=0.3),
    ):
        pass

    assert 0.25 < time.monotonic() - started < 5


def test_the_lock_of_a_killed_process_does_not_block(tmp_path, holder):
    (tmp_path / "Add.csv.partial").write_text("half")
    holder.kill()
    holder.wait()

    with database_lock(tmp_path):
        assert not (tmp_path / "Add.csv.partial").exists()


def test_the_lock_is_free_again_after_an_error(tmp_path):
    with pytest.raises(ZeroDivisionError), database_lock(tmp_path):
        raise ZeroDivisionError

    with database_lock(tmp_path):
        pass


def test_two_writers_lose_no_row(write, row):
    path = write([row(m, 512, 512) for m in range(1, 21)])
    writers = [subprocess.Popen([sys.executable, "-c", PATCH, str(path), parity]) for parity in "01"]

    assert [writer.wait(timeout=60) for writer in writers] == [0, 0]

    rows = read_table(path).rows
    assert len(rows) == 20
    assert [r.cells["Average Duration(us)"] for r in rows[:16]] == [
        f"{turn}.000000" for turn in range(1, 9) for _ in range(2)
    ]


def test_a_writer_killed_at_any_moment_leaves_a_whole_table(write, row):
    path = write([row(m, 512, 512) for m in range(1, 2001)])
    for delay_ms in (1, 7, 23, 41):
        writer = subprocess.Popen(
            [sys.executable, "-c", REWRITE, str(path)], stdout=subprocess.PIPE, text=True
        )
        assert writer.stdout is not None
        assert writer.stdout.readline() == "writing\n"
        time.sleep(delay_ms / 1000)
        writer.kill()
        writer.wait()
        writer.stdout.close()

        assert len(read_table(path).rows) == 2000

    with database_lock(path.parent):
        assert list(path.parent.glob("*.partial")) == []


def test_a_missing_database_is_not_made(tmp_path):
    with pytest.raises(DataError) as caught, database_lock(tmp_path / "gone"):
        pass

    assert str(caught.value) == f"database {tmp_path / 'gone'} is not a directory"
    assert list(tmp_path.iterdir()) == []


READ_ONLY = """
import os, sys, tempfile
from pathlib import Path
from perfcollect_core.errors import DataError
from perfcollect_core.tables.lock import database_lock
if os.geteuid() == 0:
    with tempfile.TemporaryDirectory() as own, database_lock(Path(own)):
        pass  # imports what it needs while the interpreter's files can be read
    os.setgroups([])
    os.setuid(65534)
try:
    with database_lock(Path(sys.argv[1])):
        print("held")
except DataError as error:
    print(error)
    print(error.hint)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX users")
def test_a_database_of_somebody_else_is_refused_and_untouched(row):
    # Root may write anywhere, so the child becomes nobody; anybody else is unprivileged already.
    with tempfile.TemporaryDirectory() as name:
        database = Path(name)
        (database / "MatMulV2.csv").write_text(row(1, 512, 512))
        database.chmod(0o555)

        ran = subprocess.run([sys.executable, "-c", READ_ONLY, name], capture_output=True, text=True)

        database.chmod(0o755)
        assert ran.stdout.splitlines() == [
            f"database {database} cannot be written: Permission denied",
            "give yourself write access to the directory, or work on a copy (perfcollect db derive)",
        ], ran.stderr
        assert [path.name for path in database.iterdir()] == ["MatMulV2.csv"]


def test_patching_under_the_lock_works_while_it_is_held_here(write, row):
    path = write([row(1, 512, 512)])

    with database_lock(path.parent):
        ref = read_table(path).rows[0].ref
        assert patch_table(path, {ref: {"Average Duration(us)": "1.0"}}).updated == 1
