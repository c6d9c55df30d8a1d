"""QuantBatchMatmulV3: roles of optional inputs, weight orders, scales, exactness."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perfcollect_core import Case, Skip, nz_storage_shape
from perfcollect_core.testing.conformance import OperatorConformance
from perfcollect_core.testing.replay import Replay, host_for, make_row, replay
from perfcollect_ops_builtin import quant_matmul
from perfcollect_ops_builtin.packed_scales import unpack_scales

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

ROLES = ("scale", "offset", "bias", "pertoken_scale")


def row(inputs, output, extra="", out_dtype="DT_BF16", formats=None, columns=None):
    """*extra* lists the dtypes after x1 and x2, a blank one for an absent slot."""
    slots = inputs.split(";")
    dtypes = ["INT8", "INT8", *(word or "DT_UNDEFINED" for word in extra.split(";") if extra)]
    return {
        "Input Shapes": inputs,
        "Input Data Types": ";".join(dtypes),
        "Input Formats": formats or ";".join("ND" if slot else "NULL" for slot in slots),
        "Output Shapes": output,
        "Output Data Types": out_dtype,
        "Output Formats": "ND",
        **(columns or {}),
    }


def case_of(cells) -> Case | Skip:
    host = host_for("QuantBatchMatmulV3", quant_matmul)
    return host.make_case(host.spec(), make_row("QuantBatchMatmulV3", cells))


def key_of(cells):
    host = host_for("QuantBatchMatmulV3", quant_matmul)
    return host.canonical_key(host.spec(), make_row("QuantBatchMatmulV3", cells))


def replayed(cells) -> Replay:
    answer = replay("QuantBatchMatmulV3", quant_matmul, cells)
    assert isinstance(answer, Replay), answer
    assert answer.wrong is None
    return answer


def roles_of(case):
    return {name: spec.dtype for name, spec in case.tensors.items() if name in ROLES}


class TestQuantBatchMatmulV3Conformance(OperatorConformance):
    operator = "QuantBatchMatmulV3"


@pytest.mark.parametrize(
    ("cells", "roles"),
    [
        (row("16,64;96,64;96", "16,96", "FLOAT"), {"scale": "FLOAT"}),
        (row("16,64;96,64;1", "16,96", "DT_BF16"), {"scale": "BF16"}),
        (row("16,64;96,64;96;96", "16,96", "FLOAT;INT32"), {"scale": "FLOAT", "bias": "INT32"}),
        (row("16,64;96,64;96;16", "16,96", "DT_BF16;FLOAT"), {"scale": "BF16", "pertoken_scale": "FLOAT"}),
        (row("16,64;96,64;96;96", "16,96", "DT_BF16;DT_BF16"), {"scale": "BF16", "bias": "BF16"}),
        (row("16,64;96,64;96;96", "16,96", "FLOAT;FLOAT", "INT8"), {"scale": "FLOAT", "offset": "FLOAT"}),
        (row("16,64;96,64;96;1", "16,96", "INT64;FLOAT", "INT8"), {"scale": "INT64", "offset": "FLOAT"}),
        (row("16,64;96,64;96;;96", "16,96", "INT64;;INT32", "FLOAT16"), {"scale": "INT64", "bias": "INT32"}),
        (row("16,64;96,64;96;;;16", "16,96", "FLOAT;;;FLOAT", "FLOAT16"), {"scale": "FLOAT", "pertoken_scale": "FLOAT"}),
        (
            row("16,64;96,64;96;;96;16", "16,96", "DT_BF16;;INT32;FLOAT"),
            {"scale": "BF16", "bias": "INT32", "pertoken_scale": "FLOAT"},
        ),
        (
            row("16,64;96,64;96;96;16", "16,96", "DT_BF16;INT32;FLOAT"),
            {"scale": "BF16", "bias": "INT32", "pertoken_scale": "FLOAT"},
        ),
        (
            row("16,64;96,64;96;1;96", "16,96", "INT64;FLOAT;INT32", "INT8"),
            {"scale": "INT64", "offset": "FLOAT", "bias": "INT32"},
        ),
        (row("16,64;96,64;96;96", "16,96", "UINT64;FLOAT", "FLOAT16"), {"scale": "UINT64", "bias": "FLOAT"}),
        (row("96,64;96,64;96;96", "96,96", "FLOAT;FLOAT", "FLOAT16"), {"scale": "FLOAT", "pertoken_scale": "FLOAT"}),
        (row("96,64;96,64;96;96", "96,96", "FLOAT;INT32"), {"scale": "FLOAT", "bias": "INT32"}),
        (row("16,64;96,64;96;;;;", "16,96", "FLOAT;;;"), {"scale": "FLOAT"}),
    ],
)  # fmt: skip
def test_compact_and_positional_slots_give_roles_and_replay(cells, roles):
    answer = replayed(cells)

    assert roles_of(answer.case) == roles
    assert answer.case.assumptions == ()


@pytest.mark.parametrize(
    ("cells", "roles", "assumed"),
    [
        (
            row("96,64;96,64;96;96", "96,96", "DT_BF16;FLOAT"),
            {"scale": "BF16", "pertoken_scale": "FLOAT"},
            "slot 3=pertoken_scale (FLOAT of 96, M equals N: may be a bias)",
        ),
        (
            row("1,64;96,64;96;1", "1,96", "DT_BF16;FLOAT"),
            {"scale": "BF16", "pertoken_scale": "FLOAT"},
            "slot 3=pertoken_scale (FLOAT of one element)",
        ),
        (row("16,64;96,64", "16,96"), {"scale": "BF16"}, "scale=96 BF16 (not recorded)"),
        (row("16,64;96,64", "16,96", out_dtype="FLOAT16"), {"scale": "INT64"}, "scale=96 INT64 (not recorded)"),
        (
            row("16,64;96,64", "16,96", columns={"Quant Type": "w8a8_dynamic"}),
            {"scale": "BF16", "pertoken_scale": "FLOAT"},
            "pertoken_scale=16 FLOAT (not recorded, dynamic quantisation)",
        ),
        (
            row("16,64;64,64;64", "16,64", "FLOAT"),
            {"scale": "FLOAT"},
            "transpose_b=True (x2 fits both orders, taken as (N,K))",
        ),
        (
            row("16,64;2,4,16,32;64", "16,64", "FLOAT", formats="ND;FRACTAL_NZ;ND"),
            {"scale": "FLOAT"},
            "transpose_b=False (x2 fits both orders, taken as (K,N))",
        ),
        (
            row("16,64;96,64;96", "16,96", "FLOAT", "INT32"),
            {"scale": "FLOAT"},
            "scale not applied (INT32 output is the accumulator)",
        ),
    ],
)  # fmt: skip
def test_what_the_row_does_not_record_is_assumed_in_words(cells, roles, assumed):
    answer = replayed(cells)

    assert assumed in answer.case.assumptions
    assert roles_of(answer.case) == roles


def test_the_role_column_settles_an_ambiguous_slot():
    bias = row("96,64;96,64;96;96", "96,96", "FLOAT;FLOAT", columns={"Runtime quant_role_slot3": "bias"})

    assert roles_of(replayed(bias).case) == {"scale": "FLOAT", "bias": "FLOAT"}
    assert key_of(bias) != key_of(row("96,64;96,64;96;96", "96,96", "FLOAT;FLOAT"))


@pytest.mark.parametrize(
    ("shape", "transposed", "logical"),
    [
        ("17,4,16,32", False, (64, 528)),
        ("2,33,16,32", True, (528, 64)),
        ("64,528", False, (64, 528)),
        ("528,64", True, (528, 64)),
    ],
)
def test_block_counts_of_both_orders_give_the_true_size(shape, transposed, logical):
    formats = "ND;FRACTAL_NZ;ND"

    case = replayed(row(f"16,64;{shape};528", "16,528", "FLOAT", formats=formats)).case

    assert case.params["transpose_b"] is transposed
    assert case.tensors["x2"].shape == logical


@pytest.mark.parametrize(
    ("cells", "reason"),
    [
        (
            row("16,64;96,60;96", "16,96", "FLOAT"),
            "input slot 1 'x2' is 96,60, expected 96,64 (N,K) or 64,96 (K,N) for x1 16,64 and N=96 of the output",
        ),
        (row("16,64;96,64;95", "16,96", "FLOAT"), "input 'scale' is 95, expected 1 or 96 elements for M=16 and N=96"),
        (row("16,64;96,64;96;;95", "16,96", "FLOAT;;INT32"), "input 'bias' is 95, expected 96 elements for M=16 and N=96"),
        (
            row("16,64;96,64;96;;;17", "16,96", "FLOAT;;;FLOAT"),
            "input 'pertoken_scale' is 17, expected 16 elements for M=16 and N=96",
        ),
        (
            row("16,64;96,64;96;7", "16,96", "FLOAT;FLOAT"),
            "input slot 3 is 7 FLOAT, expected bias (96), pertoken_scale (16) or, for INT8 output, offset (1 or 96)",
        ),
        (
            row("16,64;96,64;96;96;;16", "16,96", "FLOAT;FLOAT;;FLOAT"),
            "input 'offset' is 96, it goes with INT8 output only, not BF16",
        ),
        (
            row("16,64;96,64;96;;;16", "16,96", "INT64;;;FLOAT", "FLOAT16"),
            "input 'scale' is INT64, expected FLOAT or BF16 beside a pertoken_scale",
        ),
        (row("16,64;96,64;96", "16,96", "INT32"), "input 'scale' is INT32, expected FLOAT or BF16 or INT64 or UINT64"),
        (row("16,64;96,64;96", "15,96", "FLOAT"), "output slot 0 is 15,96, expected the leading dimensions of x1 16,64 and N"),
        (row("16,64;2,96,64;96", "16,96", "FLOAT"), "input slot 1 'x2' is 2,96,64, expected one matrix"),
        (row("64;96,64;96", "96", "FLOAT"), "input slot 0 'x1' is 64, expected (M,K)"),
        (row("16,64;96,64;96;;;;5", "16,96", "FLOAT;;;;FLOAT"), "input slot 6 is 5, expected at most 6 slots"),
    ],
)  # fmt: skip
def test_an_impossible_row_names_slot_and_value(cells, reason):
    assert case_of(cells) == Skip.invalid(f"QuantBatchMatmulV3: {reason}")


@pytest.mark.parametrize("word", ["DT_INT4", "FLOAT8_E4M3FN", "FLOAT4_E2M1", "HIFLOAT8"])
def test_narrow_dtypes_are_skipped_by_name(word):
    cells = row("16,7168;2048,7168;2048", "16,2048", "FLOAT", formats="ND;FRACTAL_NZ;ND")

    refused = case_of({**cells, "Input Data Types": f"{word};{word};FLOAT"})

    name = word.removeprefix("DT_")
    assert refused == Skip(f"dtype not supported here: {name} ('x1': QuantBatchMatmulV3 replays INT8)")


def test_compact_and_positional_rows_of_one_call_share_a_key():
    compact = row("16,64;96,64;96;16", "16,96", "DT_BF16;FLOAT")
    positional = row("16,64;96,64;96;;;16", "16,96", "DT_BF16;;;FLOAT")
    other_order = row("16,64;64,96;96;;;16", "16,96", "DT_BF16;;;FLOAT")
    scale_only = row("16,64;96,64;96", "16,96", "DT_BF16")
    nothing = row("16,64;96,64", "16,96")

    assert key_of(compact) == key_of(positional)
    assert len({key_of(cells) for cells in (compact, other_order, scale_only, nothing)}) == 4


def test_leading_dimensions_of_x1_are_rows():
    answer = replayed(row("2,8,64;96,64;96;;;16", "2,8,96", "FLOAT;;;FLOAT", "FLOAT16"))

    assert tuple(answer.outputs[0].shape) == (2, 8, 96)


def test_values_use_the_whole_int8_range_and_scales_are_positive_and_varied():
    answer = replayed(row("64,256;96,256;96;;96;64", "64,96", "DT_BF16;;INT32;FLOAT"))

    assert answer.inputs["x1"].min() == -127
    assert answer.inputs["x1"].max() == 127
    for name in ("scale", "pertoken_scale"):
        scale = answer.inputs[name].float()
        assert bool((torch.isfinite(scale) & (scale > 0)).all())
        assert scale.unique().numel() > 8
    assert 0.3 < answer.outputs[0].float().std() < 5


def test_packed_scales_hold_the_bits_of_fp32():
    answer = replayed(row("16,64;96,64;96", "16,96", "INT64", "FLOAT16"))

    packed = answer.inputs["scale"]

    assert packed.dtype == torch.int64
    assert bool((packed > 0).all() & (packed < 2**31).all())
    assert torch.equal(unpack_scales(packed).view(torch.int32).long(), packed)


def test_the_reference_agrees_with_plain_loops():
    answer = replayed(row("3,4;5,4;5;;5;3", "3,5", "FLOAT;;INT32;FLOAT", "FLOAT16"))
    x1, x2, scale, bias, token = (
        answer.inputs[n].tolist() for n in ("x1", "x2", "scale", "bias", "pertoken_scale")
    )

    expected = [
        [(sum(x1[m][k] * x2[n][k] for k in range(4)) + bias[n]) * scale[n] * token[m] for n in range(5)]
        for m in range(3)
    ]

    reference = quant_matmul.perfcollect_reference(answer.case, answer.inputs)
    assert torch.allclose(reference.outputs[0], torch.tensor(expected, dtype=torch.float64), rtol=1e-12)


@pytest.mark.parametrize("shapes", ["3,1;5,1;5", "3,1;1,5;5"])
def test_an_inner_dimension_of_one_is_exact_in_both_orders(shapes):
    # torch._int_mm reads past a transposed view of one column.
    assert replayed(row(shapes, "3,5", "FLOAT", "INT32")).outputs[0].abs().max() <= 127 * 127


@settings(max_examples=50, deadline=None)
@given(
    m=st.integers(1, 40),
    k=st.integers(1, 80),
    n=st.integers(1, 80),
    transpose_b=st.booleans(),
    nz=st.booleans(),
    bias=st.booleans(),
    pertoken=st.booleans(),
    out=st.sampled_from(["DT_BF16", "FLOAT16", "INT8", "INT32"]),
)
def test_any_positional_row_of_a_real_product_replays(m, k, n, transpose_b, nz, bias, pertoken, out):
    x2 = (n, k) if transpose_b else (k, n)
    x2 = nz_storage_shape(x2, "INT8") if nz else x2
    slots = [
        f"{m},{k}",
        ",".join(map(str, x2)),
        str(n),
        "",
        str(n) if bias else "",
        str(m) if pertoken else "",
    ]
    extra = ["FLOAT", "", "INT32" if bias else "", "FLOAT" if pertoken else ""]
    formats = ["ND", "FRACTAL_NZ" if nz else "ND", *("ND" if slot else "NULL" for slot in slots[2:])]

    answer = replayed(row(";".join(slots), f"{m},{n}", ";".join(extra), out, ";".join(formats)))

    assert tuple(answer.outputs[0].shape) == (m, n)
