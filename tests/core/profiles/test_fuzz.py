"""Whatever a file looks like: no traceback, no row lost, no number that was not in it."""

from __future__ import annotations

import contextlib
import csv
import io
import math
import re

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from perfcollect_core.errors import DataError
from perfcollect_core.profiles.collecting import Collector
from perfcollect_core.profiles.frames import stream_pieces
from perfcollect_core.profiles.headers import read_header
from perfcollect_core.profiles.ledger import FileLedger
from perfcollect_core.profiles.numbers import duration_fault, parse_number
from perfcollect_core.profiles.records import split_records

SLOW = settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
FAST = settings(max_examples=150, deadline=None)
PLAIN = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")

DURATIONS = st.sampled_from(
    [
        "10.5",
        " 3.25\t",
        "1e3",
        "6.1E+01",
        "N/A",
        "",
        "nan",
        "-1",
        "0",
        "1_0",
        "１２",
        '"7.5"',
        "1,5",
        "inf",
        "x\ny",
    ]
)
SHAPES = st.sampled_from(
    [
        '"64,5120"',
        "64,5120",
        "64, 5120",
        '"64,5120;"',
        '"N/A"',
        "N/A",
        "",
        '""',
        "()",
        "64x5120",
        '"1,2;N/A;3"',
    ]
)
TYPES = st.sampled_from(
    ["Add", " Add ", "", "Cast", "hcom_allReduce_", "A:B", 'od"d', "lines\nbroken", "muls_add_kernel_1"]
)
NAMES = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), max_size=8)
COUNTER = st.sampled_from(["", "N/A", "0", "1.5", "18446744073709551615", "-3", "many", "1e400"])


@st.composite
def files(draw, header):
    """Draw a file: its bytes, and its records as cells by column."""
    columns = draw(st.permutations(header))
    extra = draw(st.lists(st.sampled_from(["Extra", "Wait(us)", ""]), max_size=2, unique=True))
    records = []
    for number in range(draw(st.integers(0, 8))):
        record = dict.fromkeys(header, "0")
        record |= {
            "Type": draw(TYPES),
            "Name": draw(NAMES),
            "Accelerator Core": draw(st.sampled_from(["AI_CORE", "AI_CPU", "", "HCCL"])),
            "Start Time(us)": f"{number}.5\t",
            "Duration(us)": draw(DURATIONS),
            "Input Shapes": draw(SHAPES),
            "Output Shapes": draw(SHAPES),
            "Input Data Types": draw(st.sampled_from(["DT_BF16", "", "N/A", "DT_BF16;FLOAT;INT8"])),
            "Input Formats": draw(st.sampled_from(["ND", "", "ND;ND;ND"])),
            "Output Data Types": draw(st.sampled_from(["DT_BF16", ""])),
            "aicore_time(us)": draw(COUNTER),
            "cube_utilization(%)": draw(COUNTER),
            **dict.fromkeys(extra, draw(NAMES)),
        }
        records.append(record)
    stream = io.StringIO(newline="")
    quoting = draw(st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]))
    writer = csv.writer(stream, lineterminator=draw(st.sampled_from(["\n", "\r\n"])), quoting=quoting)
    order = [*columns, *extra]
    writer.writerow(order)
    writer.writerows([[record[name] for name in order] for record in records])
    bom = "\ufeff" if draw(st.booleans()) else ""
    return (bom + stream.getvalue()).encode(), records


def collect(path):
    header = read_header(path)
    collector = Collector()
    ledger = collector.read(header, FileLedger(path, header.layout.name))
    collector.groups.resolve_open()
    return ledger, list(collector.groups.rows())


@SLOW
@given(data=st.data())
def test_every_row_is_accounted_for_and_every_number_comes_from_the_file(data, made, tmp_path):
    content, records = data.draw(files(made.HEADER))
    path = tmp_path / "kernel_details.csv"
    path.write_bytes(content)

    ledger, rows = collect(path)

    assert ledger.adds_up
    assert ledger.rows == len(records)
    durations = {
        float(cell)
        for cell in (record["Duration(us)"].strip().strip('"') for record in records)
        if PLAIN.fullmatch(cell) and float(cell) > 0
    }
    for row in rows:
        assert row.min_us in durations
        assert row.max_us in durations
        assert row.min_us <= row.median_us <= row.max_us
        assert all(math.isfinite(value) and 0 <= value < 2**63 for value in row.counters.values())


@SLOW
@given(data=st.data())
def test_where_pieces_end_changes_nothing(data, made, tmp_path):
    content, _ = data.draw(files(made.HEADER))
    path = tmp_path / "kernel_details.csv"
    path.write_bytes(content)
    header = read_header(path)
    columns = ["Type", "Name", "Duration(us)", "Input Shapes"]

    def read(piece_bytes):
        pieces = list(stream_pieces(header, columns, piece_bytes=piece_bytes))
        rows = [tuple(cell or "" for cell in row[:-1]) + row[-1:] for p in pieces for row in p.frame.rows()]
        return rows, [fault for piece in pieces for fault in piece.faults]

    assert read(data.draw(st.integers(40, 900))) == read(1 << 20)


@SLOW
@given(data=st.data())
def test_any_bytes_after_the_header_end_in_an_account(data, made, tmp_path):
    content, _ = data.draw(files(made.HEADER))
    places = st.integers(0, len(content))
    noise = st.sampled_from(
        [b'"', b"\n", b"\r", b",", b"\xff", b"\x00", b'""', b'",', b"\xef\xbb\xbf", b"N/A"]
    )
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(places)
        content = content[:place] + data.draw(noise) + content[place + data.draw(st.integers(0, 2)) :]
    path = tmp_path / "kernel_details.csv"
    path.write_bytes(content)

    with contextlib.suppress(DataError):
        ledger, _ = collect(path)
        assert ledger.adds_up


@FAST
@given(st.text(st.characters(codec="utf-8", exclude_characters="\r"), max_size=60))
def test_records_of_text_that_csv_can_write_come_back_as_they_were(text):
    rows = [[text, "b"], ["c", text + text]]
    stream = io.StringIO(newline="")
    csv.writer(stream, lineterminator="\n").writerows(rows)

    found = list(split_records(stream.getvalue(), 2, final=True))

    assert [list(record.cells) for record in found] == rows


@FAST
@given(st.one_of(st.text(max_size=12), st.from_regex(PLAIN, fullmatch=True), st.floats().map(str)))
def test_a_number_is_what_the_grammar_says_and_nothing_else(text):
    value = parse_number(text)

    bare = text.strip().strip('"').strip()
    assert (value is not None) == bool(PLAIN.fullmatch(bare) and bare.isascii())


@FAST
@given(st.lists(st.one_of(st.text(max_size=8), st.from_regex(PLAIN, fullmatch=True)), max_size=20))
def test_what_polars_takes_for_a_finite_number_is_the_same_number(texts):
    import polars as pl

    for text, value in zip(
        texts, pl.Series(texts, dtype=pl.String).cast(pl.Float64, strict=False), strict=True
    ):
        if value is not None and math.isfinite(value):
            assert parse_number(text) == value


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("12.5", None),
        (" 12.5\t", None),
        ("1e3", None),
        (None, "duration is blank"),
        ("", "duration is blank"),
        ("N/A", "duration is N/A"),
        ('"N/A"', "duration is N/A"),
        ("1_0", "duration is not a number"),
        ("１２", "duration is not a number"),
        ("0x10", "duration is not a number"),
        ("1,000", "duration is not a number"),
        ("nan", "duration is not finite"),
        ("-Infinity", "duration is not finite"),
        ("1e999", "duration is not finite"),
        ("-0.37", "duration is negative"),
        ("0.000", "duration is zero"),
        ("18446744073709551.615", "duration is a negative time wrapped around 2^64 ns"),
        ("18446744073709171.000", "duration is a negative time wrapped around 2^64 ns"),
        ("86400000001", "duration is longer than a day"),
    ],
)
def test_why_a_cell_is_no_duration(text, fault):
    assert duration_fault(text) == fault
