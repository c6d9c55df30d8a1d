"""BatchMatMulV2: batches, broadcasting, adjoint operands, ranks, keys."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perfcollect_core import Case, Skip, nz_storage_shape
from perfcollect_core.testing.conformance import OperatorConformance
from perfcollect_core.testing.replay import Replay, host_for, make_row, replay
from perfcollect_ops_builtin import batch_matmul

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch


def row(inputs, output, dtype="DT_BF16", formats="ND;ND", out_dtype=None):
    return {
        "Input Shapes": inputs,
        "Input Data Types": ";".join([dtype] * (inputs.count(";") + 1)),
        "Input Formats": formats,
        "Output Shapes": output,
        "Output Data Types": out_dtype or dtype,
        "Output Formats": "ND",
    }


def case_of(cells) -> Case | Skip:
    host = host_for("BatchMatMulV2", batch_matmul)
    return host.make_case(host.spec(), make_row("BatchMatMulV2", cells))


def replayed(cells) -> Replay:
    answer = replay("BatchMatMulV2", batch_matmul, cells)
    assert isinstance(answer, Replay), answer
    assert answer.wrong is None
    return answer


class TestBatchMatMulV2Conformance(OperatorConformance):
    operator = "BatchMatMulV2"


@pytest.mark.parametrize(
    ("cells", "transposed", "x2"),
    [
        (row("16,16,128;16,128,512", "16,16,512"), (False, False), (16, 128, 512)),
        (row("16,16,128;16,512,128", "16,16,512"), (False, True), (16, 512, 128)),
        (row("16,128,8;16,128,512", "16,8,512"), (True, False), (16, 128, 512)),
        (row("16,8,128;16,32,8,16,16", "16,8,512", formats="ND;FRACTAL_NZ"), (False, False), (16, 128, 512)),
        (row("16,8,128;16,8,32,16,16", "16,8,510", formats="ND;FRACTAL_NZ"), (False, True), (16, 510, 128)),
        (row("16,8,128;1,128,512", "16,8,512"), (False, False), (1, 128, 512)),
        (row("1,8,128;16,128,512", "16,8,512"), (False, False), (16, 128, 512)),
    ],
)
def test_adjoint_operands_blocks_and_broadcast_batches_are_found(cells, transposed, x2):
    case = replayed(cells).case

    assert (case.params["transpose_a"], case.params["transpose_b"]) == transposed
    assert case.tensors["x2"].shape == x2
    assert not any("transpose" in text for text in case.assumptions)


@pytest.mark.parametrize(
    ("cells", "assumed"),
    [
        (row("4,8,16;4,16,16", "4,8,16"), "transpose_b=False (x2 fits both orders, taken as (K,N))"),
        (row("4,8,8;4,8,24", "4,8,24"), "transpose_a=False (x1 fits as (M,K) and as (K,M))"),
        (row("8,16;24,16", "8,24"), "batch=1 (rows of two dimensions run as a batch of one)"),
        (row("8,16;16,16", "8,16"), "transpose_b=True (x2 fits both orders, taken as (N,K))"),
        (row("2,3,8,16;2,3,16,24", "2,3,8,24"), "batch=6 (leading dimensions (2, 3) flattened)"),
        (
            row("16,8,128;16,32,8,16,16", "16,8,512", formats="ND;FRACTAL_NZ"),
            "kernel may be the BatchMatMul aclop on A2 and A3 (x2 is FRACTAL_NZ)",
        ),
        (row("1,32,1;1,1,24", "1,32,24"), "kernel may be Mul on Ascend (K is 1)"),
        (
            row("4,8,16;4,16,24", "4,8,24", "FLOAT"),
            "allow_hf32=False (not recorded, fixed for FLOAT)",
        ),
    ],
)
def test_what_the_row_does_not_record_is_assumed_in_words(cells, assumed):
    answer = replayed(cells)

    assert assumed in answer.case.assumptions
    assert tuple(answer.outputs[0].shape) == answer.case.outputs[0].shape


def test_a_wider_output_is_computed_in_fp32():
    answer = replayed(row("4,8,16;4,16,24", "4,8,24", out_dtype="FLOAT"))

    assert answer.outputs[0].dtype == torch.float32


@pytest.mark.parametrize(
    ("cells", "reason"),
    [
        (
            row("4,2,3;5,3,2", "4,2,2"),
            "BatchMatMulV2: input slot 1 'x2' is 5,3,2, expected batch (4,) of the output, or 1",
        ),
        (
            row("1,2,3;1,3,2", "4,2,2"),
            "BatchMatMulV2: output slot 0 is 4,2,2, expected the batch of x1 and x2",
        ),
        (row("3;3,2", "2"), "BatchMatMulV2: input slot 0 'x1' is 3, expected a batch of matrices"),
        (row("4,2,3;4,3,0", "4,2,0"), "input slot 1 of BatchMatMulV2 is 4,3,0: no element"),
        (row("4,2,3;4,3,2", ""), "output slot 0 of BatchMatMulV2 is blank, expected a shape"),
        (
            row("4,2,3;4,5,2", "4,2,2"),
            "BatchMatMulV2: input slot 1 'x2' is 4,5,2, expected 2,3 (N,K) or 3,2 (K,N) for x1 4,2,3 and N=2 of "
            "the output",
        ),
    ],
)
def test_an_impossible_row_names_slot_and_value(cells, reason):
    assert case_of(cells) == Skip.invalid(reason)


def test_rows_that_bmm_cannot_run_are_skipped_not_blamed():
    assert case_of(row("4,2,3;4,3,2;2", "4,2,2")) == Skip(
        "BatchMatMulV2: input slot 2 holds a tensor, torch.bmm takes two"
    )
    assert case_of(row("4,2,3;4,3,2", "4,2,2", "HIFLOAT8")) == Skip(
        "dtype not supported here: HIFLOAT8 ('x1': BatchMatMulV2 replays BF16, FLOAT16, FLOAT)"
    )


def test_a_broadcast_weight_is_read_once():
    cost = host_for("BatchMatMulV2", batch_matmul).estimate_cost(
        case_of(row("16,8,128;1,128,512", "16,8,512"))
    )

    assert cost.flops == 2 * 16 * 8 * 128 * 512
    assert cost.nbytes == 2 * (16 * 8 * 128 + 128 * 512 + 16 * 8 * 512)


def test_keys_keep_storage_orders_apart_and_ignore_spelling():
    host = host_for("BatchMatMulV2", batch_matmul)
    keys = [
        host.canonical_key(host.spec(), make_row("BatchMatMulV2", cells))
        for cells in (
            row("4,8,16;4,16,24", "4,8,24"),
            row("4,8,16;4,24,16", "4,8,24"),
            row("4,8,16;4,16,24", "4,8,24", "BFLOAT16"),
        )
    ]

    assert keys[0] != keys[1]
    assert keys[0] == keys[2]


def test_the_reference_agrees_with_numpy():
    numpy = pytest.importorskip("numpy")
    answer = replayed(row("3,2,4;3,5,4", "3,2,5", "FLOAT"))
    a, b = (answer.inputs[name].double().numpy() for name in ("x1", "x2"))

    expected = numpy.stack([numpy.dot(left, right.T) for left, right in zip(a, b, strict=True)])

    reference = batch_matmul.perfcollect_reference(answer.case, answer.inputs)
    assert numpy.allclose(reference.outputs[0].numpy(), expected, atol=1e-12)


@settings(max_examples=40, deadline=None)
@given(
    batch=st.integers(1, 6),
    m=st.integers(1, 24),
    k=st.integers(1, 40),
    n=st.integers(1, 40),
    dtype=st.sampled_from(["DT_BF16", "FLOAT16", "FLOAT"]),
    transpose_a=st.booleans(),
    transpose_b=st.booleans(),
    nz=st.booleans(),
    single=st.sampled_from(["neither", "x1", "x2"]),
)
def test_any_row_of_a_real_product_replays(batch, m, k, n, dtype, transpose_a, transpose_b, nz, single):
    a = (1 if single == "x1" else batch, *((k, m) if transpose_a else (m, k)))
    b = (1 if single == "x2" else batch, *((n, k) if transpose_b else (k, n)))
    if nz:
        b = nz_storage_shape(b, "BF16")
    shapes = ";".join(",".join(map(str, shape)) for shape in (a, b))
    formats = "ND;FRACTAL_NZ" if nz else "ND;ND"

    answer = replayed(row(shapes, f"{batch},{m},{n}", dtype, formats))

    assert tuple(answer.outputs[0].shape) == (batch, m, n)
