"""DynamicQuant: modes and destination types found from the outputs, outliers, smooth scales."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perfcollect_core import Case, Skip
from perfcollect_core.testing.conformance import OperatorConformance
from perfcollect_core.testing.replay import Replay, host_for, make_row, replay
from perfcollect_ops_builtin import dynamic_quant
from perfcollect_ops_builtin.int4_packing import pack_int4, unpack_int4

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch


def row(inputs, outputs, dtypes="DT_BF16", out_dtypes="INT8;FLOAT"):
    return {
        "Input Shapes": inputs,
        "Input Data Types": dtypes,
        "Input Formats": ";".join("ND" for _ in dtypes.split(";")),
        "Output Shapes": outputs,
        "Output Data Types": out_dtypes,
        "Output Formats": ";".join("ND" for _ in out_dtypes.split(";")),
    }


def case_of(cells) -> Case | Skip:
    host = host_for("DynamicQuant", dynamic_quant)
    return host.make_case(host.spec(), make_row("DynamicQuant", cells))


def replayed(cells) -> Replay:
    answer = replay("DynamicQuant", dynamic_quant, cells)
    assert isinstance(answer, Replay), answer
    assert answer.wrong is None
    return answer


class TestDynamicQuantConformance(OperatorConformance):
    operator = "DynamicQuant"


@pytest.mark.parametrize(
    ("cells", "mode", "dst", "shapes"),
    [
        (row("16,64", "16,64;16"), "pertoken", "INT8", [(16, 64), (16,)]),
        (row("16,64", "16,64;16,1"), "pertoken", "INT8", [(16, 64), (16, 1)]),
        (row("2,8,64", "2,8,64;2,8"), "pertoken", "INT8", [(2, 8, 64), (2, 8)]),
        (row("16,64", "16,64;1"), "pertensor", "INT8", [(16, 64), (1,)]),
        (row("16,64", "16,64;64"), "perchannel", "INT8", [(16, 64), (64,)]),
        (row("2,8,64", "2,8,64;2,64"), "perchannel", "INT8", [(2, 8, 64), (2, 64)]),
        (row("16,64", "16,8;16", out_dtypes="INT32;FLOAT"), "pertoken", "INT4", [(16, 8), (16,)]),
        (
            row("16,64", "16,64;16;16", out_dtypes="INT8;FLOAT;FLOAT"),
            "pertoken",
            "INT8",
            [(16, 64), (16,), (16,)],
        ),
        (row("16,64;;", "16,64;16", "FLOAT16;DT_UNDEFINED;"), "pertoken", "INT8", [(16, 64), (16,)]),
        (row("16,64;64", "16,64;16", "DT_BF16;DT_BF16"), "pertoken", "INT8", [(16, 64), (16,)]),
        (
            row("16,64;4,64;4", "16,64;16", "DT_BF16;DT_BF16;INT32"),
            "pertoken",
            "INT8",
            [(16, 64), (16,)],
        ),
    ],
)
def test_mode_and_destination_come_from_the_outputs(cells, mode, dst, shapes):
    answer = replayed(cells)

    assert (answer.case.params["quant_mode"], answer.case.params["dst"]) == (mode, dst)
    assert [tuple(output.shape) for output in answer.outputs] == shapes
    assert answer.case.assumptions == ()


def test_a_4_bit_output_without_its_own_torch_type_comes_back_packed():
    answer = replayed(row("16,64", "16,64;16", out_dtypes="INT4;FLOAT"))

    assert tuple(answer.outputs[0].shape) == (16, 8)
    assert answer.outputs[0].dtype == torch.int32


@pytest.mark.parametrize(
    ("cells", "assumed"),
    [
        (row("64,64", "64,64;64"), "quant_mode=pertoken (scale fits pertoken and perchannel)"),
        (row("16,64", "16,64", out_dtypes="INT8"), "quant_mode=pertoken (scale not recorded)"),
        (row("16,64", "", out_dtypes=""), "y=INT8 (not recorded)"),
    ],
)
def test_what_the_row_does_not_record_is_assumed_in_words(cells, assumed):
    answer = replayed(cells)

    assert assumed in answer.case.assumptions
    assert tuple(answer.outputs[1].shape) == answer.case.tensors["x"].shape[:-1]


@pytest.mark.parametrize(
    ("cells", "reason"),
    [
        (row("64", "64;1"), "input slot 0 'x' is 64, expected two dimensions at least"),
        (row("16,64", "16,60;16"), "output slot 0 is 16,60 INT8, expected 16,64, or D/8 packed in INT32"),
        (
            row("16,64", "16,64;15"),
            "output slot 1 is 15, expected 16 per token, 1 per tensor or one per channel",
        ),
        (
            row("16,64;60", "16,64;16", "DT_BF16;DT_BF16"),
            "input slot 1 'smooth_scales' is 60, expected 64 (D) or E,64 (E,D)",
        ),
        (
            row("16,64;4,64", "16,64;16", "DT_BF16;DT_BF16"),
            "input slot 2 'group_index' is blank, expected 4 (E)",
        ),
        (
            row("16,64;64;4", "16,64;16", "DT_BF16;DT_BF16;INT32"),
            "input slot 2 'group_index' is 4, it goes with smooth_scales (E,D) only",
        ),
        (
            row("16,60", "16,60;16", out_dtypes="INT4;FLOAT"),
            "input slot 0 'x' is 16,60, expected D in multiples of 8 for INT4",
        ),
    ],
)
def test_an_impossible_row_names_slot_and_value(cells, reason):
    assert case_of(cells) == Skip.invalid(f"DynamicQuant: {reason}")


@pytest.mark.parametrize(
    ("cells", "reason"),
    [
        (
            row("16,64", "16,64;16", "FLOAT"),
            "dtype not supported here: FLOAT ('x': DynamicQuant replays BF16, FLOAT16)",
        ),
        (
            row("16,64", "16,64;16", out_dtypes="FLOAT8_E4M3FN;FLOAT"),
            "dtype not supported here: FLOAT8_E4M3FN ('y': DynamicQuant replays INT8, INT4, INT32)",
        ),
    ],
)
def test_other_dtypes_are_skipped_by_name(cells, reason):
    assert case_of(cells) == Skip(reason)


def test_activations_have_outliers_and_scales_are_finite():
    answer = replayed(row("64,512;512", "64,512;64", "DT_BF16;DT_BF16"))
    x, smooth = answer.inputs["x"].float(), answer.inputs["smooth_scales"]

    assert x.abs().max() > 10
    assert x.abs().median() < 1
    assert bool((smooth > 0).all())
    assert bool((torch.isfinite(answer.outputs[1]) & (answer.outputs[1] > 0)).all())


def test_group_index_is_cumulative_and_ends_at_the_rows():
    ends = replayed(row("64,32;8,32;8", "64,32;64", "DT_BF16;DT_BF16;INT32")).inputs["group_index"].tolist()

    assert ends == sorted(ends)
    assert ends[-1] == 64
    assert len(set(ends)) > 1


def test_cost_counts_x_once_and_both_outputs():
    cost = host_for("DynamicQuant", dynamic_quant).estimate_cost(case_of(row("16,64", "16,64;16")))

    assert cost.flops == 4 * 16 * 64
    assert cost.nbytes == 2 * 16 * 64 + 16 * 64 + 4 * 16


def test_packing_is_undone_by_unpacking():
    values = torch.arange(-8, 8, dtype=torch.int8).repeat(4).reshape(2, 32)

    packed = pack_int4(values)

    assert packed.dtype == torch.int32
    assert packed[0, 0].item() & 0xF == 8  # -8 in the lowest bits
    assert torch.equal(unpack_int4(packed), values.int())


@pytest.mark.parametrize("asymmetric", [False, True])
def test_the_reference_agrees_with_plain_loops(asymmetric):
    outputs = ("3,5;3;3", "INT8;FLOAT;FLOAT") if asymmetric else ("3,5;3", "INT8;FLOAT")
    answer = replayed(row("3,5;2,5;2", outputs[0], "DT_BF16;DT_BF16;INT32", outputs[1]))
    x, smooth, ends = (answer.inputs[n].tolist() for n in ("x", "smooth_scales", "group_index"))

    quantised, scales = [], []
    for m in range(3):
        group = next(g for g, end in enumerate(ends) if m < end)
        values = [v * s for v, s in zip(x[m], smooth[group], strict=True)]
        if asymmetric:
            scale = (max(values) - min(values)) / 255
            offset = 127 - max(values) / scale
        else:
            scale, offset = max(map(abs, values)) / 127, 0.0
        scales.append(scale)
        quantised.append([round(v / scale + offset) for v in values])

    reference = dynamic_quant.perfcollect_reference(answer.case, answer.inputs)
    assert reference.outputs[0].tolist() == quantised
    assert reference.outputs[1].tolist() == pytest.approx(scales, rel=1e-12)


@settings(max_examples=40, deadline=None)
@given(
    lead=st.lists(st.integers(1, 12), min_size=1, max_size=3),
    eighths=st.integers(1, 12),
    dtype=st.sampled_from(["DT_BF16", "FLOAT16"]),
    form=st.sampled_from(["INT8", "INT32", "asymmetric"]),
    smooth=st.sampled_from([0, 1, 5]),
)
def test_any_row_of_a_real_call_replays(lead, eighths, dtype, form, smooth):
    depth = 8 * eighths
    rows, tokens = ",".join(map(str, (*lead, depth))), ",".join(map(str, lead))
    inputs, dtypes = rows, dtype
    if smooth == 1:
        inputs, dtypes = f"{rows};{depth}", f"{dtype};{dtype}"
    elif smooth:
        inputs, dtypes = f"{rows};{smooth},{depth};{smooth}", f"{dtype};{dtype};INT32"
    y = f"{tokens},{eighths}" if form == "INT32" else rows
    outputs = f"{y};{tokens};{tokens}" if form == "asymmetric" else f"{y};{tokens}"
    out_dtypes = {"INT32": "INT32;FLOAT", "INT8": "INT8;FLOAT"}.get(form, "INT8;FLOAT;FLOAT")

    answer = replayed(row(inputs, outputs, dtypes, out_dtypes))

    assert ",".join(map(str, answer.outputs[0].shape)) == y
