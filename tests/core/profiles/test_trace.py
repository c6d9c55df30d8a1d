"""``trace-to-csv``: TensorCast's trace as a table."""

from __future__ import annotations

import json

import pytest

HEADER = (
    "op_name,kernel_type,simulation_shapes,dur_us,source,confidence,composite,sub_kernel_durations,kernel_shapes,"
    "shape_match_rule,sub_kernel_shapes\r\n"
)


@pytest.fixture
def trace(tmp_path):
    def write(content):
        path = tmp_path / "trace.json"
        path.write_text(json.dumps(content), encoding="utf-8")
        return path

    return write


def test_each_complete_event_becomes_a_row(trace, perfcollect):
    arguments = {"kernel_type": "MatMulV2", "simulation_shapes": "[(64, 512)]", "confidence": 0.7}
    events = [
        {"ph": "X", "name": "aten.mm", "dur": 12.5, "args": arguments},
        {"ph": "M", "name": "process_name"},
        {"ph": "X", "name": "aten.add"},
    ]

    done = perfcollect("trace-to-csv", "--trace", trace({"traceEvents": events}))

    assert done.code == 0
    assert done.out == (
        HEADER + 'aten.mm,MatMulV2,"[(64, 512)]",12.5,,0.7,,,,,\r\n' + "aten.add,,,0,,,,,,,\r\n"
    )


def test_a_file_gets_the_same_bytes(trace, perfcollect, tmp_path):
    output = tmp_path / "out.csv"

    done = perfcollect("trace-to-csv", "--trace", trace({"other": 1}), "--output", output)

    assert (done.code, done.out) == (0, "")
    assert output.read_bytes() == HEADER.encode()


@pytest.mark.parametrize(
    ("content", "what"),
    [
        ([], "is a bare array of events, expected an object with 'traceEvents'"),
        ({"traceEvents": None}, ": 'traceEvents' is null, expected an array"),
        ({"traceEvents": [{"ph": "X", "args": None}]}, " event 0: 'args' is null, expected an object"),
        ({"traceEvents": [3]}, " event 0: it is a number, expected an object"),
        ("text", " holds text, expected an object with 'traceEvents'"),
    ],
)
def test_what_is_no_trace_is_refused_with_its_place(trace, perfcollect, content, what):
    path = trace(content)

    done = perfcollect("trace-to-csv", "--trace", path)

    assert done.code == 1
    assert done.out == ""
    assert done.err.splitlines()[0].replace(f"{path} is", f"{path}is") == f"error: {path}{what}"


def test_text_that_is_no_json_is_refused(tmp_path, perfcollect):
    path = tmp_path / "trace.json"
    path.write_text("{", encoding="utf-8")

    done = perfcollect("trace-to-csv", "--trace", path)

    assert done.code == 1
    assert done.err.startswith(f"error: {path} is not JSON: ")
