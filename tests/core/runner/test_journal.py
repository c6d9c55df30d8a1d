"""The journal: whole lines, whatever happens to the writer."""

from __future__ import annotations

import errno
import json
import os

import pytest

from perfcollect_core.cases import RowRef
from perfcollect_core.errors import DataError
from perfcollect_core.runner.journal import Journal, JournalError, read_cells, read_journal

ROW = ["MatMulV2.csv", ["MatMulV2", "136,7168;7168,3584"], 0]
REF = RowRef("MatMulV2.csv", ("MatMulV2", "136,7168;7168,3584"), 0)


def measured(**more):
    return {"kind": "measured", "row": ROW, "cells": {"Average Duration(us)": "18.2"}, **more}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "run" / "journal.jsonl"


def write(path, *lines):
    journal = Journal(path)
    for line in lines:
        journal.append(line)
    journal.sync()
    journal.close()


def test_a_measured_row_is_done(path):
    write(path, {"kind": "run", "id": "r"}, measured())

    state = read_journal(path)

    assert state.measured == {REF}
    assert state.unpatched == 1


def test_a_torn_last_line_is_cut_when_the_run_goes_on(path):
    write(path, measured())
    with path.open("ab") as file:
        file.write(b'{"kind":"measured","row":["MatMul')

    assert read_journal(path).measured == {REF}
    write(path, {"kind": "end"})

    lines = path.read_bytes().splitlines()
    assert [json.loads(line)["kind"] for line in lines] == ["measured", "end"]


def test_a_broken_line_in_the_middle_is_counted_and_passed_over(path):
    write(path, measured())
    path.write_bytes(path.read_bytes() + b"garbage\n[1]\n")
    write(path, {"kind": "end", "left": 0})

    state = read_journal(path)

    assert state.broken == 2
    assert state.measured == {REF}
    assert state.end == {"kind": "end", "left": 0}


def test_a_failure_after_a_measurement_and_the_other_way_round_leave_the_last_word(path):
    failed = {"kind": "failed", "row": ROW, "failure": "timeout"}
    write(path, failed, measured())
    assert read_journal(path).failed == {}

    write(path, failed)
    assert read_journal(path).measured == set()


def test_cells_known_to_be_in_the_tables_are_not_written_again(path):
    other = [ROW[0], ["MatMulV2", "1,7168;7168,3584"], 0]
    write(path, measured(), {"kind": "patched", "measured": 1}, measured(row=other))

    assert [ref.key[1] for ref in read_cells(path, unpatched_only=True).cells] == ["1,7168;7168,3584"]
    assert len(read_cells(path, unpatched_only=False).cells) == 2
    assert read_journal(path).unpatched == 1


def test_a_line_that_was_not_delivered_yet_is_not_taken_for_written(path):
    # The result of the second line reached nobody before the tables were patched.
    other = [ROW[0], ["MatMulV2", "1,7168;7168,3584"], 0]
    write(path, measured(), measured(row=other), {"kind": "patched", "measured": 1})

    assert [ref.key[1] for ref in read_cells(path, unpatched_only=True).cells] == ["1,7168;7168,3584"]


def test_a_full_disk_stops_the_run_and_leaves_whole_lines(path, monkeypatch):
    journal = Journal(path)
    journal.append(measured())
    real = os.write

    def full(descriptor, text):
        real(descriptor, bytes(text[:10]))
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(JournalError) as caught:
        journal.append(measured())
    monkeypatch.undo()
    journal.close()

    assert str(caught.value) == f"journal {path} cannot be written: no space left on device"
    assert caught.value.hint == (
        "make room or name another place with --run-dir; what the journal already holds is safe "
        f"(perfcollect run --resume run, or perfcollect db apply {path.parent})"
    )
    assert [json.loads(line)["kind"] for line in path.read_bytes().splitlines()] == ["measured"]


def test_a_disk_that_takes_no_flush_is_an_error_of_the_next_line(path, monkeypatch):
    def broken(descriptor):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "fdatasync", broken)
    journal = Journal(path)
    journal.append(measured())

    with pytest.raises(JournalError):
        journal.sync()
    journal.close()


def test_a_missing_journal_says_what_was_expected(tmp_path):
    with pytest.raises(DataError) as caught:
        read_journal(tmp_path / "journal.jsonl")

    assert (
        str(caught.value) == f"journal {tmp_path / 'journal.jsonl'} cannot be read: no such file or directory"
    )
