"""Rows as cells, broadcasting and the refusals operator plugins share."""

from __future__ import annotations

import pytest

from perfcollect_core import Skip, broadcast_shape, example_row, parse_signature, refuse_dtype, refuse_output


def test_an_example_row_has_a_format_for_each_slot():
    row = example_row("16,64;;64", "FLOAT;DT_UNDEFINED;FLOAT", "16,64", "FLOAT", columns={"EP Size": "16"})

    assert row == {
        "Input Shapes": "16,64;;64",
        "Input Data Types": "FLOAT;DT_UNDEFINED;FLOAT",
        "Input Formats": "ND;NULL;ND",
        "Output Shapes": "16,64",
        "Output Data Types": "FLOAT",
        "Output Formats": "ND",
        "EP Size": "16",
    }


@pytest.mark.parametrize(
    ("shapes", "result"),
    [
        (((16, 64), (16, 1)), (16, 64)),
        (((64,), (16, 1)), (16, 64)),
        (((16, 64), None), (16, 64)),
        (((1, 64), (16, 1), (64,)), (16, 64)),
        (((), ()), ()),
        (((16, 64), (3, 1)), None),
        (((16, 64), (16,)), None),
    ],
)
def test_shapes_broadcast_as_in_torch(shapes, result):
    assert broadcast_shape(*shapes) == result


@pytest.mark.parametrize(
    ("shape", "dtype", "expected", "word", "reason"),
    [
        ("16,64", "FLOAT", (16, 64), "FLOAT", None),
        ("", "", (16, 64), "FLOAT", None),
        ("", "FLOAT", (), "FLOAT", None),
        ("16,65", "FLOAT", (16, 64), "FLOAT", "output slot 0 has shape 16,65, expected 16,64 (as x)"),
        ("16", "FLOAT", (), "FLOAT", "output slot 0 has shape 16, expected a 0-D tensor (as x)"),
        ("16,64", "DT_BF16", (16, 64), "FLOAT", "output slot 0 has dtype BF16, expected FLOAT (as x)"),
        ("16,64", "DT_BF16", (16, 64), "", None),
    ],
)
def test_an_output_of_another_shape_or_dtype_is_refused(shape, dtype, expected, word, reason):
    signature = parse_signature(example_row("16,64", "FLOAT", shape, dtype))

    assert refuse_output(signature, 0, expected, word, "as x") == (Skip.invalid(reason) if reason else None)


def test_a_wrong_dtype_is_invalid_and_one_torch_does_not_know_is_a_skip():
    assert refuse_dtype("x", "BF16", ("BF16", "FLOAT")) is None
    assert refuse_dtype("x", "INT8", ("BF16", "FLOAT")) == Skip.invalid(
        "input 'x' has dtype INT8, expected BF16 or FLOAT"
    )
    assert refuse_dtype("x", "", ("BF16",)) == Skip.invalid("input 'x' has dtype none, expected BF16")
    assert refuse_dtype("x", "FLOAT8_E4M3FN", ("BF16", "FLOAT")) == Skip(
        "dtype not supported here: FLOAT8_E4M3FN of input 'x', expected BF16 or FLOAT"
    )
