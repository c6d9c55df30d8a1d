"""AscendQuantV2: axes and destination types found from scale and output."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perfcollect_core import Case, Skip
from perfcollect_core.testing.conformance import OperatorConformance
from perfcollect_core.testing.replay import Replay, host_for, make_row, replay
from perfcollect_ops_builtin import ascend_quant
from perfcollect_ops_builtin.int4_packing import unpack_int4

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch


def row(inputs, output, out_dtype="INT8", dtype="DT_BF16", dtypes=None, formats=None):
    slots = inputs.split(";")
    return {
        "Input Shapes": inputs,
        "Input Data Types": dtypes or ";".join(dtype if slot else "DT_UNDEFINED" for slot in slots),
        "Input Formats": formats or ";".join("ND" if slot else "NULL" for slot in slots),
        "Output Shapes": output,
        "Output Data Types": out_dtype,
        "Output Formats": "ND",
    }


def case_of(cells) -> Case | Skip:
    host = host_for("AscendQuantV2", ascend_quant)
    return host.make_case(host.spec(), make_row("AscendQuantV2", cells))


def replayed(cells) -> Replay:
    answer = replay("AscendQuantV2", ascend_quant, cells)
    assert isinstance(answer, Replay), answer
    assert answer.wrong is None
    return answer


class TestAscendQuantV2Conformance(OperatorConformance):
    operator = "AscendQuantV2"


@pytest.mark.parametrize(
    ("cells", "axis", "dst"),
    [
        (row("16,64;64;64", "16,64"), -1, "INT8"),
        (row("16,64;64;", "16,64"), -1, "INT8"),
        (row("16,64;64", "16,64"), -1, "INT8"),
        (row("16,64;1;1", "16,64"), -1, "INT8"),
        (row("64;64", "64"), -1, "INT8"),
        (row("4,16,64;16;16", "4,16,64"), -2, "INT8"),
        (row("4,16,64;1,1,64", "4,16,64"), -1, "INT8"),
        (row("4,16,64;1,16,1;1,16,1", "4,16,64"), -2, "INT8"),
        (row("16,64;64", "16,8", "INT32"), -1, "INT4"),
        (row("16,64;64;64", "16,8", "INT32", "FLOAT16"), -1, "INT4"),
        (row("3,32,64;64", "3,32,8", "INT32", "FLOAT", formats="FRACTAL_NZ;ND"), -1, "INT4"),
        (row("3,4,2,16,16;64", "3,32,8", "INT32", "FLOAT", formats="FRACTAL_NZ;ND"), -1, "INT4"),
    ],
)
def test_axis_and_destination_come_from_scale_and_output(cells, axis, dst):
    answer = replayed(cells)

    assert (answer.case.params["axis"], answer.case.params["dst"]) == (axis, dst)
    assert tuple(answer.outputs[0].shape) == answer.case.outputs[0].shape
    assert answer.case.assumptions == ()


def test_a_scale_that_fits_both_axes_runs_along_the_last():
    answer = replayed(row("64,64;64", "64,64"))

    assert answer.case.params["axis"] == -1
    assert answer.case.assumptions == ("axis=-1 (the scale fits the last two dimensions)",)


def test_a_4_bit_output_without_its_own_torch_type_comes_back_packed():
    answer = replayed(row("16,64;64", "16,64", "INT4"))

    assert tuple(answer.outputs[0].shape) == (16, 8)


@pytest.mark.parametrize(
    ("cells", "reason"),
    [
        (row("16,64;60", "16,64"), "input slot 1 'scale' is 60, expected 64, 1, or one along an axis of x"),
        (row("16,64;16,64", "16,64"), "input slot 1 'scale' is 16,64, expected 64, 1, or one along an axis of x"),
        (row("16,64;64;60", "16,64"), "input slot 2 'offset' is 60, expected 64 like the scale"),
        (
            row("16,64;64;64", "16,64", dtypes="DT_BF16;DT_BF16;FLOAT"),
            "input slot 2 'offset' is FLOAT, expected BF16 like x",
        ),
        (row("16,64;64", "16,60"), "output slot 0 is 16,60 INT8, expected 16,64, or D/8 packed in INT32"),
        (row("16,64;64", "16,64", "INT32"), "output slot 0 is 16,64 INT32, expected 16,64, or D/8 packed in INT32"),
        (row("16,60;60", "16,60", "INT4"), "input slot 0 'x' is 16,60, expected D in multiples of 8 for INT4"),
        (
            row("1,1,1,1,1,1,1,1,8;8", "1,1,1,1,1,1,1,1,8"),
            "input slot 0 'x' is 1,1,1,1,1,1,1,1,8, expected one to eight dimensions",
        ),
    ],
)  # fmt: skip
def test_an_impossible_row_names_slot_and_value(cells, reason):
    assert case_of(cells) == Skip.invalid(f"AscendQuantV2: {reason}")


def test_an_unsigned_output_is_skipped_by_name():
    assert case_of(row("16,64;64", "16,64", "UINT8")) == Skip(
        "dtype not supported here: UINT8 ('y': AscendQuantV2 replays INT8, INT4, INT32)"
    )


def test_scales_are_positive_and_spread_results_over_the_range():
    answer = replayed(row("64,512;512;512", "64,512"))
    scale, offset = answer.inputs["scale"].float(), answer.inputs["offset"].float()

    assert bool((torch.isfinite(scale) & (scale > 0)).all())
    assert scale.unique().numel() > 8
    assert bool((offset == offset.round()).all())
    assert int(answer.outputs[0].max()) == 127
    assert int(answer.outputs[0].min()) <= -127


def test_4_bit_results_use_their_range_too():
    answer = replayed(row("64,512;512", "64,64", "INT32"))

    values = unpack_int4(answer.outputs[0])

    assert int(values.min()) == -8
    assert int(values.max()) == 7
    assert values.float().std() > 1


def test_cost_counts_the_offset():
    host = host_for("AscendQuantV2", ascend_quant)

    plain = host.estimate_cost(case_of(row("16,64;64", "16,64")))
    shifted = host.estimate_cost(case_of(row("16,64;64;64", "16,64")))

    assert (plain.flops, shifted.flops) == (2 * 16 * 64, 3 * 16 * 64)
    assert plain.nbytes == 2 * 16 * 64 + 2 * 64 + 16 * 64


@pytest.mark.parametrize("shape", ["5", "3"])
def test_the_reference_agrees_with_plain_loops(shape):
    answer = replayed(row(f"2,3,5;{shape};{shape}", "2,3,5"))
    x, scale, offset = (answer.inputs[name].tolist() for name in ("x", "scale", "offset"))

    def quantised(value, i, j):
        at = j if shape == "5" else i
        return max(-128, min(127, round(value * scale[at] + offset[at])))

    expected = [[[quantised(plane[i][j], i, j) for j in range(5)] for i in range(3)] for plane in x]

    reference = ascend_quant.perfcollect_reference(answer.case, answer.inputs)
    assert reference.outputs[0].tolist() == expected


@settings(max_examples=40, deadline=None)
@given(
    lead=st.lists(st.integers(1, 9), min_size=0, max_size=3),
    eighths=st.integers(1, 12),
    dtype=st.sampled_from(["DT_BF16", "FLOAT16", "FLOAT"]),
    packed=st.booleans(),
    per_channel=st.booleans(),
    offset=st.booleans(),
)
def test_any_row_of_a_real_call_replays(lead, eighths, dtype, packed, per_channel, offset):
    depth = 8 * eighths
    x = ",".join(map(str, (*lead, depth)))
    y = ",".join(map(str, (*lead, eighths if packed else depth)))
    scale = str(depth if per_channel else 1)
    inputs = f"{x};{scale};{scale if offset else ''}"

    answer = replayed(row(inputs, y, "INT32" if packed else "INT8", dtype))

    assert ",".join(map(str, answer.outputs[0].shape)) == y
