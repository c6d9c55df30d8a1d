"""GroupedMatmul: slots, group lists, quantisation forms, whole-layer rows."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perfcollect_core import Case, Skip, nz_storage_shape
from perfcollect_core.testing.conformance import OperatorConformance
from perfcollect_core.testing.replay import Replay, host_for, make_row, replay
from perfcollect_ops_builtin import grouped_matmul
from perfcollect_ops_builtin.grouped_products import row_groups

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

BF16 = "DT_BF16"


def row(slots, output, out_dtype=BF16, nz=False, columns=None):
    """*slots* maps a slot to (shape, dtype)."""
    count = max(slots) + 1
    shapes, dtypes = zip(*(slots.get(i, ("", "DT_UNDEFINED")) for i in range(count)), strict=True)
    return {
        "Input Shapes": ";".join(shapes),
        "Input Data Types": ";".join(dtypes),
        "Input Formats": ";".join("FRACTAL_NZ" if nz and i == 1 else "ND" for i in range(count)),
        "Output Shapes": output,
        "Output Data Types": out_dtype,
        "Output Formats": "ND",
        **(columns or {}),
    }


def floats(weight="8,64,96", x="32,64", output="32,96", groups="8", dtype=BF16, nz=False, **metadata):
    slots = {0: (x, dtype), 1: (weight, dtype), 7: (groups, "INT64")}
    columns = {f"Runtime {name}": text for name, text in metadata.items()}
    return row(slots, output, dtype, nz, columns)


def integers(extra, output="32,96", out_dtype=BF16, columns=None, weight="8,64,96"):
    slots = {0: ("32,64", "INT8"), 1: (weight, "INT8"), 7: ("8", "INT64"), **extra}
    return row(slots, output, out_dtype, columns=columns)


def case_of(cells) -> Case | Skip:
    host = host_for("GroupedMatmul", grouped_matmul)
    return host.make_case(host.spec(), make_row("GroupedMatmul", cells))


def replayed(cells) -> Replay:
    answer = replay("GroupedMatmul", grouped_matmul, cells)
    assert isinstance(answer, Replay), answer
    assert answer.wrong is None
    return answer


class TestGroupedMatmulConformance(OperatorConformance):
    operator = "GroupedMatmul"


@pytest.mark.parametrize(
    ("weight", "nz", "transposed", "logical"),
    [
        ("8,64,96", False, False, (8, 64, 96)),
        ("8,96,64", False, True, (8, 96, 64)),
        ("8,64,96", True, False, (8, 64, 96)),
        ("8,6,4,16,16", True, False, (8, 64, 96)),
        ("8,4,6,16,16", True, True, (8, 96, 64)),
    ],
)
def test_weight_order_and_true_size_come_from_the_output(weight, nz, transposed, logical):
    case = replayed(floats(weight, nz=nz)).case

    assert case.params["transpose_b"] is transposed
    assert case.tensors["weight"].shape == logical


@pytest.mark.parametrize(
    ("cells", "dtype"),
    [
        (floats(), torch.bfloat16),
        (floats(dtype="FLOAT16"), torch.float16),
        (floats(dtype="FLOAT"), torch.float32),
        (row({0: ("32,64", BF16), 1: ("8,64,96", BF16), 2: ("8,96", "FLOAT"), 7: ("8", "INT64")}, "32,96"), torch.bfloat16),
        (integers({}, out_dtype="INT32"), torch.int32),
        (integers({2: ("8,96", "INT32")}, out_dtype="INT32"), torch.int32),
        (integers({3: ("8,96", BF16)}), torch.bfloat16),
        (integers({3: ("8,96", BF16), 8: ("32", "FLOAT")}), torch.bfloat16),
        (integers({2: ("8,96", "INT32"), 3: ("8,96", "FLOAT"), 8: ("32", "FLOAT")}, out_dtype="FLOAT16"), torch.float16),
        (integers({2: ("8,96", BF16), 3: ("8,96", BF16), 8: ("32", "FLOAT")}), torch.bfloat16),
        (integers({3: ("8,96", "INT64")}, out_dtype="INT8"), torch.int8),
        (integers({3: ("8,96", BF16)}, weight="8,96,64"), torch.bfloat16),
        (row({0: ("32,64", BF16), 1: ("8,64,96", "INT8"), 5: ("8,96", BF16), 7: ("8", "INT64")}, "32,96"), torch.bfloat16),
        (
            row(
                {0: ("32,64", "FLOAT16"), 1: ("8,96,64", "INT8"), 5: ("8,4,96", "FLOAT16"), 6: ("8,4,96", "FLOAT16"),
                 7: ("8", "INT64")},
                "32,96", "FLOAT16",
            ),
            torch.float16,
        ),
    ],
)  # fmt: skip
def test_every_quantisation_form_replays(cells, dtype):
    assert replayed(cells).outputs[0].dtype == dtype


@pytest.mark.parametrize(
    ("cells", "assumed"),
    [
        (floats(), "group_list_type=0 (not recorded, cumulative)"),
        (floats(), "group_distribution=multinomial (not recorded, balanced routing)"),
        (floats("8,64,64", output="32,64"), "transpose_b=False (weight fits both orders, taken as (K,N))"),
        (row({0: ("6,64", BF16), 1: ("16,64,96", BF16)}, "6,96"), "group_list=16 INT64 (not recorded)"),
    ],
)
def test_what_the_row_does_not_record_is_assumed_in_words(cells, assumed):
    assert assumed in replayed(cells).case.assumptions


def test_recorded_metadata_leaves_nothing_assumed():
    assert (
        case_of(floats(group_list_type="1", group_distribution="uniform", active_rows="20")).assumptions == ()
    )


@pytest.mark.parametrize(
    ("cells", "reason"),
    [
        (
            floats("8,80,96"),
            "input slot 1 'weight' is 8,80,96, expected E,64,96 (E,K,N) or E,96,64 (E,N,K) with K=64 of x and N=96 of "
            "the output",
        ),
        (floats("64,96"), "input slot 1 'weight' is 64,96, expected one tensor of E matrices"),
        (floats("2048,64,96", groups="2048"), "input slot 1 'weight' is 2048,64,96: 2048 groups, the kernel takes 1024"),
        (floats(x="31,64"), "input slot 0 'x' is 31,64, expected M=32 rows of the output"),
        (floats(groups="9"), "input slot 7 'group_list' is 9, expected 8 or 8,2 for E=8"),
        (floats(groups="8,2"), "input slot 7 'group_list' is 8,2: lists of pairs go with INT8 x only, not BF16"),
        (floats(output="8,32,96"), "output slot 0 is 8,32,96, expected M,N (only M-grouped products are replayed)"),
        (
            floats(active_rows="33"),
            "column 'Runtime active_rows' is 33, the group list cannot sum to more than M=32",
        ),
        (floats(active_rows="-1"), "column 'Runtime active_rows' is '-1', expected a non-negative integer"),
        (
            floats(group_list_type="2"),
            "column 'Runtime group_list_type' is 2, expected 0 (cumulative) or 1 (counts) for a list of one column",
        ),
        (
            floats(group_distribution="normal"),
            "column 'Runtime group_distribution' is 'normal', expected multinomial, uniform, zipf",
        ),
        (integers({}), "input slot 3 'scale' is blank for BF16 output, expected one unless INT32"),
        (integers({3: ("8,95", BF16)}), "input slot 3 'scale' is 8,95, expected 8,96 (E,N)"),
        (integers({3: ("8,96", BF16)}, out_dtype="INT8"), "input slot 3 'scale' is BF16 for INT8 output, expected INT64"),
        (integers({3: ("8,96", BF16), 8: ("31", "FLOAT")}), "input slot 8 'per_token_scale' is 31, expected 32 (M)"),
        (integers({3: ("8,96", BF16), 4: ("8,96", BF16)}), "input slot 4 'offset' is 8,96, the kernel takes none"),
        (
            row({0: ("32,64", BF16), 1: ("8,64,96", "INT8"), 7: ("8", "INT64")}, "32,96"),
            "input slot 5 'antiquant_scale' is blank beside an INT8 weight",
        ),
        (
            row({0: ("32,64", BF16), 1: ("8,64,96", "INT8"), 5: ("8,5,96", BF16), 7: ("8", "INT64")}, "32,96"),
            "input slot 5 'antiquant_scale' is 8,5,96, expected 8,96 (E,N) or 8,G,96 with G dividing K=64",
        ),
    ],
)  # fmt: skip
def test_an_impossible_row_names_slot_and_value(cells, reason):
    assert case_of(cells) == Skip.invalid(f"GroupedMatmul: {reason}")


def test_a_row_of_a_whole_moe_layer_is_refused_as_one():
    layer = row(
        {0: ("64,2048", BF16), 1: ("64,2816,2048", BF16)},
        "64,2048",
        columns={"Num Experts": "64", "TopK": "6"},
    )

    assert case_of(layer) == Skip.invalid(
        "GroupedMatmul: input slot 1 'weight' is 64,2816,2048, expected E,2048,2048 (E,K,N) or E,2048,2048 (E,N,K) "
        "with K=2048 of x and N=2048 of the output (the row describes a whole MoE layer)"
    )


def test_rows_nobody_replays_are_skipped_not_blamed():
    many = row({0: ("32,64", BF16), 1: ("64,96", BF16), 9: ("64,96", BF16)}, "32,96")
    packed = row({0: ("32,64", BF16), 1: ("8,64,96", "DT_INT4"), 7: ("8", "INT64")}, "32,96")

    assert case_of(many) == Skip("GroupedMatmul: 10 input slots, lists of several tensors are not replayed")
    assert case_of(packed) == Skip(
        "dtype not supported here: INT4 ('weight': GroupedMatmul replays BF16, FLOAT16, FLOAT, INT8)"
    )


@pytest.mark.parametrize("distribution", ["", "multinomial", "uniform", "zipf"])
def test_a_cumulative_list_never_falls_and_ends_at_the_active_rows(distribution):
    metadata = {"group_distribution": distribution} if distribution else {}

    values = replayed(floats(active_rows="27", **metadata)).inputs["group_list"].tolist()

    assert values == sorted(values)
    assert values[-1] == 27


@pytest.mark.parametrize("distribution", ["multinomial", "uniform", "zipf"])
def test_counts_sum_to_the_rows(distribution):
    values = replayed(floats(group_list_type="1", group_distribution=distribution)).inputs["group_list"]

    assert int(values.sum()) == 32
    assert bool((values >= 0).all())


def test_pairs_name_each_group_once_and_empty_groups_last():
    cells = integers({3: ("8,96", BF16), 7: ("8,2", "INT64")}, columns={"Runtime active_rows": "5"})

    values = replayed(cells).inputs["group_list"]

    counts = values[:, 1].tolist()
    assert sorted(values[:, 0].tolist()) == list(range(8))
    assert sum(counts) == 5
    assert 0 not in counts[: len([c for c in counts if c])]


def test_the_default_list_is_uneven_as_routing_is_and_zipf_is_worse():
    def largest(**metadata):
        cells = floats(x="1024,64", output="1024,96", group_list_type="1", **metadata)
        return int(replayed(cells).inputs["group_list"].max())

    assert largest(group_distribution="uniform") == 128
    assert 128 < largest() < 200
    assert largest(group_distribution="zipf") > 250


def test_the_seed_column_draws_another_list_for_equal_operands():
    lists = [
        replayed(floats(seed=seed, group_list_type="1", x="256,64", output="256,96"))
        .inputs["group_list"]
        .tolist()
        for seed in ("1", "1", "2")
    ]

    assert lists[0] == lists[1]
    assert lists[0] != lists[2]


def test_rows_past_the_active_ones_belong_to_no_group():
    answer = replayed(floats(active_rows="20"))

    assert int((row_groups(answer.inputs["group_list"], 0, 32) < 0).sum()) == 12
    assert not answer.outputs[0][20:].any()
    assert answer.outputs[0][:20].any(dim=1).all()


def test_scales_are_positive_finite_and_varied():
    answer = replayed(integers({3: ("8,96", BF16), 8: ("32", "FLOAT")}))

    for name in ("scale", "per_token_scale"):
        scale = answer.inputs[name].float()
        assert bool((torch.isfinite(scale) & (scale > 0)).all())
        assert scale.unique().numel() > 8
    assert 0.3 < answer.outputs[0].float().std() < 5


def test_cost_counts_the_weights_of_groups_that_are_expected_to_have_rows():
    host = host_for("GroupedMatmul", grouped_matmul)

    few = host.estimate_cost(case_of(floats(x="2,64", output="2,96", group_distribution="uniform")))
    all_busy = host.estimate_cost(case_of(floats(group_distribution="uniform")))

    assert few.flops == 2 * 2 * 64 * 96
    assert few.nbytes == 2 * (2 * 64 + 2 * 64 * 96 + 2 * 96) + 8 * 8
    assert all_busy.nbytes == 2 * (32 * 64 + 8 * 64 * 96 + 32 * 96) + 8 * 8


def test_metadata_tells_rows_of_equal_shapes_apart():
    host = host_for("GroupedMatmul", grouped_matmul)
    rows = [
        floats(),
        floats(group_list_type="1"),
        floats(active_rows="20"),
        floats(group_distribution="zipf"),
    ]

    keys = {host.canonical_key(host.spec(), make_row("GroupedMatmul", cells)) for cells in rows}

    assert len(keys) == 4


def test_the_reference_agrees_with_plain_loops():
    answer = replayed(floats("3,4,5", x="7,4", output="7,5", groups="3", dtype="FLOAT"))
    x, w, ends = (answer.inputs[name].tolist() for name in ("x", "weight", "group_list"))

    expected = []
    for m in range(7):
        group = next(g for g, end in enumerate(ends) if m < end)
        expected.append([sum(x[m][k] * w[group][k][n] for k in range(4)) for n in range(5)])

    reference = grouped_matmul.perfcollect_reference(answer.case, answer.inputs)
    assert torch.allclose(reference.outputs[0], torch.tensor(expected, dtype=torch.float64), atol=1e-12)


@settings(max_examples=40, deadline=None)
@given(
    m=st.integers(1, 40),
    k=st.integers(1, 40),
    n=st.integers(1, 40),
    groups=st.integers(1, 9),
    transpose_b=st.booleans(),
    nz=st.booleans(),
    form=st.sampled_from(["bf16", "float", "int32", "w8a8"]),
    list_type=st.sampled_from(["", "0", "1"]),
    distribution=st.sampled_from(["", "uniform", "zipf"]),
    idle=st.integers(0, 40),
)
def test_any_row_of_a_real_product_replays(
    m, k, n, groups, transpose_b, nz, form, list_type, distribution, idle
):
    word = {"bf16": BF16, "float": "FLOAT"}.get(form, "INT8")
    weight = (groups, *((n, k) if transpose_b else (k, n)))
    weight = (
        nz_storage_shape(weight, "BF16" if word == BF16 else "INT8" if word == "INT8" else "FLOAT")
        if nz
        else weight
    )
    slots = {0: (f"{m},{k}", word), 1: (",".join(map(str, weight)), word), 7: (str(groups), "INT64")}
    if form == "w8a8":
        slots |= {3: (f"{groups},{n}", BF16), 8: (str(m), "FLOAT")}
    metadata = {
        "group_list_type": list_type,
        "group_distribution": distribution,
        "active_rows": str(max(0, m - idle)),
    }
    columns = {f"Runtime {name}": text for name, text in metadata.items()}

    answer = replayed(row(slots, f"{m},{n}", {"int32": "INT32", "w8a8": BF16}.get(form, word), nz, columns))

    assert tuple(answer.outputs[0].shape) == (m, n)
