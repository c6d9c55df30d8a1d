"""TransposeBatchMatMul: permutations, splits and scaled results found from the output."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perfcollect_core import Case, Skip, nz_storage_shape
from perfcollect_core.testing.conformance import OperatorConformance
from perfcollect_core.testing.replay import Replay, host_for, make_row, replay
from perfcollect_ops_builtin import transpose_batch_matmul
from perfcollect_ops_builtin.packed_scales import unpack_scales

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch


def row(inputs, output, dtypes="DT_BF16;DT_BF16", formats="ND;ND", out_dtype="DT_BF16"):
    return {
        "Input Shapes": inputs,
        "Input Data Types": dtypes,
        "Input Formats": formats,
        "Output Shapes": output,
        "Output Data Types": out_dtype,
        "Output Formats": "ND",
    }


SCALED = {"dtypes": "FLOAT16;FLOAT16;DT_UNDEFINED;INT64", "formats": "ND;ND;NULL;ND", "out_dtype": "INT8"}


def case_of(cells) -> Case | Skip:
    host = host_for("TransposeBatchMatMul", transpose_batch_matmul)
    return host.make_case(host.spec(), make_row("TransposeBatchMatMul", cells))


def replayed(cells) -> Replay:
    answer = replay("TransposeBatchMatMul", transpose_batch_matmul, cells)
    assert isinstance(answer, Replay), answer
    assert answer.wrong is None
    return answer


class TestTransposeBatchMatMulConformance(OperatorConformance):
    operator = "TransposeBatchMatMul"


@pytest.mark.parametrize(
    ("cells", "token_major", "split"),
    [
        (row("16,4,512;16,512,128", "4,16,128"), False, 1),
        (row("4,16,512;16,512,128", "4,16,128"), True, 1),
        (row("16,4,512;16,8,32,16,16", "4,16,128", formats="ND;FRACTAL_NZ"), False, 1),
        (row("16,4,512;16,512,128", "2,4,1024"), False, 2),
        (row("4,16,512;16,512,128", "8,4,256"), True, 8),
        (row("16,4,64;16,64,32;;512", "4,1,512", **SCALED), False, 1),
    ],
)
def test_permutation_and_split_come_from_the_output(cells, token_major, split):
    answer = replayed(cells)

    assert answer.case.params["x1_token_major"] is token_major
    assert answer.case.params["batch_split_factor"] == split
    assert tuple(answer.outputs[0].shape) == answer.case.outputs[0].shape
    assert answer.case.assumptions == ()


@pytest.mark.parametrize(
    ("cells", "assumed"),
    [
        (
            row("16,16,128;16,128,64", "16,16,64"),
            "perm_x1=[0,1,2] (x1 fits as (B,M,K) and as (M,B,K))",
        ),
        (row("16,4,64;16,64,64", "4,16,64"), "perm_x2=[0,1,2] (x2 fits both orders, taken as (B,K,N))"),
        (row("4,4,64;4,64,32", "4,4,32"), "batch_split_factor=1 (the output fits a split, too)"),
        (row("16,4,24;16,24,32", "4,16,32"), "K=24 or N=32 is no multiple of 16 (CANN may refuse it)"),
    ],
)
def test_what_the_row_does_not_record_is_assumed_in_words(cells, assumed):
    assert assumed in replayed(cells).case.assumptions


@pytest.mark.parametrize(
    ("cells", "reason"),
    [
        (
            row("16,4,512;16,500,128", "4,16,128"),
            "TransposeBatchMatMul: input slot 1 'x2' is 16,500,128, expected (B,K,N) with K=512 of x1 16,4,512",
        ),
        (
            row("16,4,512;16,512,128", "5,16,128"),
            "TransposeBatchMatMul: output slot 0 is 5,16,128, expected (M,B,N) or a split of it for x1 16,4,512, "
            "x2 16,512,128 and M=4",
        ),
        (
            row("15,4,512;16,512,128", "4,16,128"),
            "TransposeBatchMatMul: input slot 0 'x1' is 15,4,512, expected (B,M,K) or (M,B,K) with B=16 of x2 "
            "16,512,128",
        ),
        (
            row("16,4,512;16,512,128;128", "4,16,128", "DT_BF16;DT_BF16;DT_BF16", "ND;ND;ND"),
            "TransposeBatchMatMul: input slot 2 'bias' is 128, the kernel takes none",
        ),
        (
            row("16,4,64;16,64,32;;511", "4,1,512", **SCALED),
            "TransposeBatchMatMul: input slot 3 'scale' is 511, expected 512 (B*N)",
        ),
        (row("64,512;512,128", "4,16,128"), "TransposeBatchMatMul: input slot 0 'x1' is 64,512, expected three dimensions"),
        (row("16,4,512;16,512,128", ""), "output slot 0 of TransposeBatchMatMul is blank, expected a shape"),
        (
            row("16,4,64;16,64,32", "4,16,32", "DT_BF16;FLOAT16"),
            "TransposeBatchMatMul: x1 is BF16, x2 FLOAT16 and the output BF16, expected one dtype",
        ),
        (
            row("70000,1,16;70000,16,16", "1,70000,16"),
            "TransposeBatchMatMul: B=70000, N=16: both must stay below 65536",
        ),
    ],
)  # fmt: skip
def test_an_impossible_row_names_slot_and_value(cells, reason):
    assert case_of(cells) == Skip.invalid(reason)


def test_packed_scales_are_positive_finite_and_spread_results_over_int8():
    answer = replayed(row("8,32,64;8,64,16;;128", "32,1,128", **SCALED))

    scales = unpack_scales(answer.inputs["scale"])

    assert bool((torch.isfinite(scales) & (scales > 0)).all())
    assert scales.unique().numel() > 1
    assert answer.outputs[0].float().std() > 20


def test_the_reference_agrees_with_plain_loops():
    answer = replayed(row("2,3,4;2,4,5", "3,2,5", "FLOAT;FLOAT", out_dtype="FLOAT"))
    x1, x2 = (answer.inputs[name].tolist() for name in ("x1", "x2"))

    expected = [
        [[sum(x1[b][m][k] * x2[b][k][n] for k in range(4)) for n in range(5)] for b in range(2)]
        for m in range(3)
    ]

    reference = transpose_batch_matmul.perfcollect_reference(answer.case, answer.inputs)
    assert torch.allclose(reference.outputs[0], torch.tensor(expected, dtype=torch.float64), atol=1e-12)


@settings(max_examples=40, deadline=None)
@given(
    batch=st.sampled_from([1, 2, 4, 6, 12]),
    m=st.integers(1, 12),
    k=st.sampled_from([16, 24, 32]),
    n=st.sampled_from([8, 16, 40]),
    token_major=st.booleans(),
    nz=st.booleans(),
    split=st.sampled_from([1, 2, 3]),
    dtype=st.sampled_from(["DT_BF16", "FLOAT16", "FLOAT"]),
)
def test_any_row_of_a_real_product_replays(batch, m, k, n, token_major, nz, split, dtype):
    split = split if batch % split == 0 else 1
    x1 = (m, batch, k) if token_major else (batch, m, k)
    x2 = nz_storage_shape((batch, k, n), "BF16") if nz else (batch, k, n)
    y = (split, m, batch * n // split) if split > 1 else (m, batch, n)
    shapes = ";".join(",".join(map(str, shape)) for shape in (x1, x2))
    formats = "ND;FRACTAL_NZ" if nz else "ND;ND"

    answer = replayed(row(shapes, ",".join(map(str, y)), f"{dtype};{dtype}", formats, dtype))

    assert tuple(answer.outputs[0].shape) == y
