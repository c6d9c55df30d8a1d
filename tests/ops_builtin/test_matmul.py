"""MatMulV2, MatMulV3 and MatMulCommon: layouts found from shapes, replays, references, keys."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perfcollect_core import Case, Skip, nz_storage_shape
from perfcollect_core.testing.conformance import OperatorConformance
from perfcollect_core.testing.replay import Replay, host_for, make_row, replay
from perfcollect_ops_builtin import matmul

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

FAMILY = ("MatMulV2", "MatMulV3", "MatMulCommon")


def row(inputs, output, dtypes="DT_BF16;DT_BF16", formats="ND;ND", out_dtype="DT_BF16"):
    return {
        "Input Shapes": f'"{inputs}"',
        "Input Data Types": dtypes,
        "Input Formats": formats,
        "Output Shapes": f'"{output}"',
        "Output Data Types": out_dtype,
        "Output Formats": "ND",
    }


def case_of(cells, operator="MatMulV2") -> Case | Skip:
    host = host_for(operator, matmul)
    return host.make_case(host.spec(), make_row(operator, cells))


def replayed(cells, operator="MatMulV2") -> Replay:
    answer = replay(operator, matmul, cells)
    assert isinstance(answer, Replay), answer
    assert answer.wrong is None
    return answer


class TestMatMulV2Conformance(OperatorConformance):
    operator = "MatMulV2"


class TestMatMulV3Conformance(OperatorConformance):
    operator = "MatMulV3"


class TestMatMulCommonConformance(OperatorConformance):
    operator = "MatMulCommon"


@pytest.mark.parametrize(
    ("cells", "transposed", "stored"),
    [
        (row("24,512;4096,512", "24,4096"), True, (4096, 512)),
        (row("24,512;512,4096", "24,4096"), False, (512, 4096)),
        (row("136,5120;320,48,16,16", "136,768", formats="ND;FRACTAL_NZ"), True, (768, 5120)),
        (row("136,5120;48,320,16,16", "136,768", formats="ND;FRACTAL_NZ"), False, (5120, 768)),
        (row("1,5120;320,594,16,16", "1,9496", formats="ND;FRACTAL_NZ"), True, (9496, 5120)),
        (row("1,5120;9496,5120", "1,9496", formats="ND;FRACTAL_NZ"), True, (9496, 5120)),
        (row("2048,7168;256,7168", "2048,256", "FLOAT;FLOAT", out_dtype="FLOAT"), True, (256, 7168)),
    ],
)
def test_weight_order_and_true_size_come_from_the_output(cells, transposed, stored):
    case = case_of(cells)

    assert case.params["transpose_b"] is transposed
    assert case.tensors["x2"].shape == stored
    assert not any("transpose" in text for text in case.assumptions)


@pytest.mark.parametrize(
    ("cells", "assumed"),
    [
        (row("16,32;32,32", "16,32"), "transpose_b=True (x2 fits both orders, taken as (N,K))"),
        (row("16,32;2,2,16,16", "16,24", formats="ND;FRACTAL_NZ"), "transpose_b=True (x2 fits both orders, taken as (N,K))"),
        (row("16,16;8,16", "16,8"), "transpose_a=False (x1 fits as (M,K) and as (K,M))"),
        (row("4,8;5,8", ""), "output=4,5 (not recorded, x1 taken as (M,K))"),
        (row("4,8;8,5", ""), "output=4,5 (not recorded, x1 taken as (M,K))"),
        (row("4,8;5,8", "4,5", "DT_BF16;FLOAT", out_dtype="FLOAT"), "x1 and x2 promoted to FLOAT before the call (BF16 with FLOAT)"),
        (row("4,8;5,8", "4,5", "FLOAT;FLOAT", out_dtype="FLOAT"), "allow_hf32=False (not recorded, fixed for FLOAT)"),
        (row("4,1;5,1", "4,5"), "kernel may be Mul on Ascend (K is 1)"),
    ],
)  # fmt: skip
def test_what_the_row_does_not_record_is_assumed_in_words_and_replays(cells, assumed):
    assert assumed in replayed(cells).case.assumptions


def test_left_operand_stored_transposed_replays():
    answer = replayed(row("24,16;24,40", "16,40"))

    assert answer.case.params["transpose_a"] is True
    assert answer.case.params["transpose_b"] is False


@pytest.mark.parametrize(
    ("cells", "dtype"),
    [
        (row("8,64;32,64;32", "8,32", "DT_BF16;DT_BF16;FLOAT", "ND;ND;ND"), torch.bfloat16),
        (row("8,64;32,64;32;", "8,32", "DT_BF16;DT_BF16;DT_BF16;DT_UNDEFINED", "ND;ND;ND;NULL"), torch.bfloat16),
        (row("8,64;32,64;;", "8,32", "DT_BF16;DT_BF16;DT_UNDEFINED;DT_UNDEFINED", "ND;ND;NULL;NULL"), torch.bfloat16),
        (row("8,64;32,64", "8,32", out_dtype="FLOAT"), torch.float32),
        (row("8,64;32,64;32", "8,32", "FLOAT16;FLOAT16;FLOAT", "ND;ND;ND", "FLOAT"), torch.float32),
    ],
)  # fmt: skip
def test_bias_blank_slots_and_wider_outputs_replay(cells, dtype):
    assert replayed(cells).outputs[0].dtype == dtype


@pytest.mark.parametrize(
    ("cells", "reason"),
    [
        (
            row("4,8;5,9", "4,5"),
            "MatMulV2: input slot 1 'x2' is 5,9, expected 5,8 (N,K) or 8,5 (K,N) for x1 4,8 and N=5 of the output",
        ),
        (
            row("136,5120;320,50,16,16", "136,768", formats="ND;FRACTAL_NZ"),
            "MatMulV2: input slot 1 'x2' is 320,50,16,16, expected 768,5120 (N,K) or 5120,768 (K,N) in blocks of 16 "
            "for x1 136,5120 and N=768 of the output",
        ),
        (
            row("4,8;5,8", "7,5"),
            "MatMulV2: input slot 0 'x1' is 4,8, expected (M,K) or (K,M) with M=7 of the output",
        ),
        (row("4,8;5,8", "20"), "MatMulV2: output slot 0 is 20, expected M,N"),
        (row("8;5,8", "5"), "MatMulV2: input slot 0 'x1' is 8, expected two dimensions"),
        (row("4,8;0,8", "4,0"), "input slot 1 of MatMulV2 is 0,8: no element"),
        (row("4,8", "4,5"), "input slot 1 'x2' of MatMulV2 is blank, expected a shape"),
        (row("4,x;5,8", "4,5"), "column 'Input Shapes': shape '4,x' has dimension 'x', expected a non-negative integer"),
        (
            row("4,8;1,1,16,16", "", formats="ND;FRACTAL_NZ"),
            "MatMulV2: output slot 0 is blank and block counts do not tell the true M and N",
        ),
        (
            row("1,1,16,16;1,1,16,16", "8,8", formats="FRACTAL_NZ;FRACTAL_NZ"),
            "MatMulV2: x1 1,1,16,16 and x2 1,1,16,16 are both block counts: the true K is not recorded",
        ),
        (
            row("4,8;5,8", "4,5", out_dtype="FLOAT16"),
            "MatMulV2: output slot 0 is FLOAT16, expected BF16 or FLOAT of x1 BF16 and x2 BF16",
        ),
    ],
)  # fmt: skip
def test_an_impossible_row_names_slot_and_value(cells, reason):
    assert case_of(cells) == Skip.invalid(reason)


def test_a_dtype_nobody_builds_is_skipped_and_not_blamed():
    refused = case_of(row("4,8;5,8", "4,5", "FLOAT8_E4M3FN;FLOAT8_E4M3FN"))

    assert refused == Skip(
        "dtype not supported here: FLOAT8_E4M3FN ('x1': MatMulV2 replays BF16, FLOAT16, FLOAT)"
    )


def test_cost_counts_each_matrix_once():
    cost = host_for("MatMulV2", matmul).estimate_cost(
        case_of(row("136,5120;320,48,16,16", "136,768", formats="ND;FRACTAL_NZ"))
    )

    assert cost.flops == 2 * 136 * 768 * 5120
    assert cost.nbytes == 2 * (136 * 5120 + 768 * 5120 + 136 * 768)


def key_of(cells, operator="MatMulV2"):
    host = host_for(operator, matmul)
    return host.canonical_key(host.spec(), make_row(operator, cells))


def test_members_of_the_family_share_keys():
    cells = row("24,512;4096,512", "24,4096")

    assert key_of(cells, "MatMulV2") == key_of(cells, "MatMulV3") == key_of(cells, "MatMulCommon")
    assert key_of(cells)[1:3] == ("24,512;4096,512", "BF16;BF16")


def test_storage_orders_formats_and_biases_do_not_collide():
    rows = [
        row("24,512;1024,512", "24,1024"),
        row("24,512;512,1024", "24,1024"),
        row("24,512;32,64,16,16", "24,1024", formats="ND;FRACTAL_NZ"),
        row("24,512;1024,512;1024", "24,1024", "DT_BF16;DT_BF16;DT_BF16", "ND;ND;ND"),
        row("24,512;1024,512;1024", "24,1024", "DT_BF16;DT_BF16;FLOAT", "ND;ND;ND"),
    ]

    assert len({key_of(cells) for cells in rows}) == len(rows)


def test_dtype_spellings_and_trimmed_blanks_share_a_key():
    assert key_of(row("24,512;1024,512", "24,1024")) == key_of(
        row("24,512;1024,512;;", "24,1024", "BFLOAT16;DT_BF16;DT_UNDEFINED;", "ND;ND;NULL;NULL")
    )


def test_a_refused_row_still_has_a_key():
    assert key_of(row("4,8;5,9", "4,5"))[0] == "MatMulV2"


def test_inputs_are_seeded_finite_and_scaled_to_results_of_order_one():
    cells = row("64,1024;96,1024;96", "64,96", "DT_BF16;DT_BF16;DT_BF16", "ND;ND;ND")
    first, again = (replayed(cells) for _ in range(2))
    other = replayed(row("64,1024;80,1024;80", "64,80", "DT_BF16;DT_BF16;DT_BF16", "ND;ND;ND"))

    assert torch.equal(first.inputs["x1"], again.inputs["x1"])
    assert not torch.equal(first.inputs["x1"], other.inputs["x1"])
    assert first.inputs["x2"].float().std() == pytest.approx(1024**-0.5, rel=0.05)
    assert first.outputs[0].float().std() == pytest.approx(2**0.5, rel=0.2)


def test_the_reference_agrees_with_plain_loops():
    cells = row("3,4;5,4;5", "3,5", "FLOAT;FLOAT;FLOAT", "ND;ND;ND", "FLOAT")
    answer = replayed(cells)
    a, b, bias = (answer.inputs[name].tolist() for name in ("x1", "x2", "bias"))

    expected = [[sum(a[i][p] * b[j][p] for p in range(4)) + bias[j] for j in range(5)] for i in range(3)]

    reference = matmul.perfcollect_reference(answer.case, answer.inputs)
    assert torch.allclose(reference.outputs[0], torch.tensor(expected, dtype=torch.float64), atol=1e-12)


def test_a_wrong_orientation_would_be_noticed():
    answer = replayed(row("32,32;32,32", "32,32"))
    reference = matmul.perfcollect_reference(answer.case, answer.inputs)
    wrong = torch.mm(answer.inputs["x1"], answer.inputs["x2"])

    from perfcollect_core.checking import difference

    assert "elements differ" in difference((wrong,), reference)


@settings(max_examples=40, deadline=None)
@given(
    m=st.integers(1, 40),
    k=st.integers(1, 70),
    n=st.integers(1, 70),
    dtype=st.sampled_from(["DT_BF16", "FLOAT16", "FLOAT"]),
    transpose_a=st.booleans(),
    transpose_b=st.booleans(),
    nz=st.booleans(),
    bias=st.booleans(),
    operator=st.sampled_from(FAMILY),
)
def test_any_row_of_a_real_product_replays(m, k, n, dtype, transpose_a, transpose_b, nz, bias, operator):
    a, b = ((k, m) if transpose_a else (m, k)), ((n, k) if transpose_b else (k, n))
    if nz:
        b = nz_storage_shape(b, "BF16")
    shapes = [",".join(map(str, s)) for s in (a, b, *([(n,)] if bias else []))]
    cells = row(
        ";".join(shapes),
        f"{m},{n}",
        ";".join([dtype] * len(shapes)),
        ";".join(["ND", "FRACTAL_NZ" if nz else "ND", "ND"][: len(shapes)]),
        dtype,
    )

    assert tuple(replayed(cells, operator).outputs[0].shape) == (m, n)
