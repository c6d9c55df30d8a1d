"""GroupedMatmulSwigluQuant: slots, cumulative lists, both outputs."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perfcollect_core import Case, Skip, nz_storage_shape
from perfcollect_core.testing.conformance import OperatorConformance
from perfcollect_core.testing.replay import Replay, host_for, make_row, replay
from perfcollect_ops_builtin import grouped_matmul_swiglu

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

NAME = "GroupedMatmulSwigluQuant"


def row(
    weight="8,64,96",
    x="32,64",
    scale="8,96",
    tokens="32",
    groups="8",
    outputs="32,48;32",
    weight_dtype="INT8",
    scale_dtype="FLOAT",
    nz=True,
    **metadata,
):
    return {
        "Input Shapes": ";".join((x, weight, scale, tokens, groups)),
        "Input Data Types": f"INT8;{weight_dtype};{scale_dtype};FLOAT;INT64",
        "Input Formats": f"ND;{'FRACTAL_NZ' if nz else 'ND'};ND;ND;ND",
        "Output Shapes": outputs,
        "Output Data Types": "INT8;FLOAT",
        "Output Formats": "ND;ND",
        **{f"Runtime {name}": text for name, text in metadata.items()},
    }


def case_of(cells) -> Case | Skip:
    host = host_for(NAME, grouped_matmul_swiglu)
    return host.make_case(host.spec(), make_row(NAME, cells))


def replayed(cells) -> Replay:
    answer = replay(NAME, grouped_matmul_swiglu, cells)
    assert isinstance(answer, Replay), answer
    assert answer.wrong is None
    return answer


class TestGroupedMatmulSwigluQuantConformance(OperatorConformance):
    operator = NAME


@pytest.mark.parametrize("weight", ["8,64,96", "8,3,4,16,32"])
@pytest.mark.parametrize("scale_dtype", ["FLOAT", "DT_BF16", "FLOAT16"])
def test_blocks_and_logical_weights_replay_with_every_scale_type(weight, scale_dtype):
    answer = replayed(row(weight, scale_dtype=scale_dtype))

    assert answer.case.tensors["weight"].shape == (8, 64, 96)
    assert [(tuple(t.shape), t.dtype) for t in answer.outputs] == [
        ((32, 48), torch.int8),
        ((32,), torch.float32),
    ]


@pytest.mark.parametrize(
    ("cells", "assumed"),
    [
        (row(), "group_distribution=multinomial (not recorded, balanced routing)"),
        (row(nz=False), "weight format=FRACTAL_NZ on Ascend (recorded ND, the kernel takes nothing else)"),
        (
            row("8,64,64", scale="8,64", outputs="32,32;32"),
            "transpose_b=False (weight fits both orders, taken as (K,N))",
        ),
    ],
)
def test_what_the_row_does_not_record_is_assumed_in_words(cells, assumed):
    assert assumed in replayed(cells).case.assumptions


@pytest.mark.parametrize(
    ("cells", "reason"),
    [
        (
            row("8,60,96"),
            "input slot 1 'weight' is 8,60,96, expected E,64,96 (E,K,N) or E,96,64 (E,N,K) with K=64 of x and N=96 of "
            "weight_scale",
        ),
        (row(scale="7,96"), "input slot 2 'weight_scale' is 7,96, expected 8,96 for the weight"),
        (row(scale="96"), "input slot 2 'weight_scale' is 96, expected (E,N)"),
        (row(tokens="31"), "input slot 3 'x_scale' is 31, expected 32 (M)"),
        (row(groups="9"), "input slot 4 'group_list' is 9, expected 8 (E)"),
        (row(outputs="32,96;32"), "output slot 0 is 32,96, expected 32,48 (M,N/2)"),
        (row(outputs="32,48;31"), "output slot 1 is 31, expected 32 (M)"),
        (
            row("1,16,10272", x="2,16", scale="1,10272", tokens="2", groups="1", outputs="2,5136;2"),
            "N=10272, K=16: the kernel takes N up to 10240 and K below 65536",
        ),
        (row(group_list_type="1"), "column 'Runtime group_list_type' is 1, expected 0 (cumulative)"),
        (
            row(active_rows="40"),
            "column 'Runtime active_rows' is 40, the group list cannot sum to more than M=32",
        ),
    ],
)
def test_an_impossible_row_names_slot_and_value(cells, reason):
    assert case_of(cells) == Skip.invalid(f"{NAME}: {reason}")


def test_a_4_bit_weight_is_skipped_by_name():
    assert case_of(row(weight_dtype="DT_INT4")) == Skip(
        f"dtype not supported here: INT4 ('weight': {NAME} replays INT8)"
    )


def test_the_group_list_is_cumulative_and_scales_are_representative():
    answer = replayed(row(active_rows="27"))
    values = answer.inputs["group_list"].tolist()

    assert values == sorted(values)
    assert values[-1] == 27
    for name in ("weight_scale", "x_scale"):
        scale = answer.inputs[name]
        assert bool((torch.isfinite(scale) & (scale > 0)).all())
        assert scale.unique().numel() > 8
    quantised, scales = answer.outputs
    assert int(quantised[:27].abs().amax(dim=1).min()) == 127
    assert not quantised[27:].any()
    assert not scales[27:].any()


def test_cost_counts_the_product_and_the_activation():
    cost = host_for(NAME, grouped_matmul_swiglu).estimate_cost(case_of(row(group_distribution="uniform")))

    assert cost.flops == 2 * 32 * 64 * 96 + 12 * 32 * 48
    assert cost.nbytes == 32 * 64 + 8 * 64 * 96 + 4 * 8 * 96 + 4 * 32 + 8 * 8 + 32 * 48 + 4 * 32


def test_the_reference_agrees_with_plain_loops():
    answer = replayed(row("2,4,6", x="5,4", scale="2,6", tokens="5", groups="2", outputs="5,3;5", nz=False))
    x, w, channel, token, ends = (
        answer.inputs[n].tolist() for n in ("x", "weight", "weight_scale", "x_scale", "group_list")
    )

    quantised, scales = [], []
    for m in range(5):
        g = next(group for group, end in enumerate(ends) if m < end)
        c = [sum(x[m][k] * w[g][k][n] for k in range(4)) * token[m] * channel[g][n] for n in range(6)]
        s = [c[n] / (1 + math.exp(-c[n])) * c[n + 3] for n in range(3)]
        scales.append(max(map(abs, s)) / 127)
        quantised.append([round(value / scales[-1]) for value in s])

    reference = grouped_matmul_swiglu.perfcollect_reference(answer.case, answer.inputs)
    assert reference.outputs[0].tolist() == quantised
    assert reference.outputs[1].tolist() == pytest.approx(scales, rel=1e-12)


@settings(max_examples=30, deadline=None)
@given(
    m=st.integers(1, 40),
    k=st.integers(2, 48),
    half=st.integers(1, 24),
    groups=st.integers(1, 9),
    storage=st.booleans(),
    distribution=st.sampled_from(["", "uniform", "zipf"]),
    idle=st.integers(0, 40),
)
def test_any_row_of_a_real_call_replays(m, k, half, groups, storage, distribution, idle):
    weight = (groups, k, 2 * half)
    weight = nz_storage_shape(weight, "INT8") if storage else weight

    answer = replayed(
        row(
            ",".join(map(str, weight)),
            x=f"{m},{k}",
            scale=f"{groups},{2 * half}",
            tokens=str(m),
            groups=str(groups),
            outputs=f"{m},{half};{m}",
            group_distribution=distribution,
            active_rows=str(max(0, m - idle)),
        )
    )

    assert tuple(answer.outputs[0].shape) == (m, half)
