"""Files are replaced whole or not at all."""

from __future__ import annotations

import subprocess
import sys

import pytest

from perfcollect_core.errors import TableError
from perfcollect_core.tables.atomic import remove_partials, replace_file

WRITE = """
import resource, sys
from pathlib import Path
from perfcollect_core.tables.atomic import replace_file
from perfcollect_core.errors import TableError
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
try:
    replace_file(Path(sys.argv[1]), b"x" * 20000)
except TableError as error:
    print(error)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX limits")
def test_a_file_size_limit_leaves_the_old_file(tmp_path):
    path = tmp_path / "MatMulV2.csv"
    path.write_bytes(b"old\r\n" * 1000)

    ran = subprocess.run([sys.executable, "-c", WRITE, str(path)], capture_output=True, text=True, check=True)

    assert ran.stdout.strip() == f"{path} cannot be written: File too large"
    assert path.read_bytes() == b"old\r\n" * 1000
    assert [p.name for p in tmp_path.iterdir()] == ["MatMulV2.csv"]


def test_a_directory_that_is_not_there_is_named(tmp_path):
    path = tmp_path / "gone" / "Add.csv"

    with pytest.raises(TableError) as caught:
        replace_file(path, b"x")

    assert str(caught.value) == f"{path} cannot be written: No such file or directory"
    assert caught.value.hint == "the file is as it was; make room or rights and run the command again"


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX permissions")
def test_the_mode_of_the_file_stays(tmp_path):
    path = tmp_path / "Add.csv"
    path.write_bytes(b"old")
    path.chmod(0o640)

    replace_file(path, b"new")

    assert (path.read_bytes(), path.stat().st_mode & 0o777) == (b"new", 0o640)


@pytest.mark.skipif(sys.platform == "win32", reason="links need rights on Windows")
def test_a_link_stays_a_link(tmp_path):
    target = tmp_path / "store" / "Add.csv"
    target.parent.mkdir()
    target.write_bytes(b"old")
    link = tmp_path / "Add.csv"
    link.symlink_to(target)

    replace_file(link, b"new")

    assert link.is_symlink()
    assert target.read_bytes() == b"new"


def test_what_a_killed_writer_left_is_no_obstacle(tmp_path):
    path = tmp_path / "Add.csv"
    (tmp_path / "Add.csv.partial").write_bytes(b"half")

    replace_file(path, b"new")

    assert [p.name for p in tmp_path.iterdir()] == ["Add.csv"]


def test_leftovers_are_removed_and_tables_are_not(tmp_path):
    for name in ("Add.csv", "Add.csv.partial", "perfcollect.json.partial"):
        (tmp_path / name).write_bytes(b"x")

    assert [path.name for path in remove_partials(tmp_path)] == [
        "Add.csv.partial",
        "perfcollect.json.partial",
    ]
    assert [p.name for p in tmp_path.iterdir()] == ["Add.csv"]
