"""MaskedFill: slot layouts, assumptions, refusals, values and random rows."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from perfcollect_core import Skip, example_row
from perfcollect_core.testing.replay import host_for, make_row, replay
from perfcollect_core.testing.stub_family import StubFamily
from perfcollect_ops_builtin.masked_fill import masked_fill

pytestmark = pytest.mark.torch

CPU = StubFamily().device(0)


def run(*cells):
    return replay("MaskedFill", masked_fill, example_row(*cells))


@pytest.mark.parametrize(
    ("shapes", "dtypes", "formats"),
    [
        pytest.param("136,64;136,1;", "DT_BF16;BOOL;DT_BF16", "ND;ND;ND", id="0-D value"),
        pytest.param("136,64;136,1;1", "DT_BF16;BOOL;DT_BF16", "ND;ND;ND", id="value of shape 1"),
        pytest.param("136,64;136,1", "DT_BF16;BOOL", "ND;ND", id="value trimmed"),
        pytest.param("8,64;64", "FLOAT;BOOL", "ND;ND", id="mask of lower rank"),
        pytest.param("8,64;8,64", "INT32;BOOL", "ND;ND", id="full mask"),
    ],
)
def test_each_slot_layout_replays(shapes, dtypes, formats):
    x, dtype = shapes.split(";")[0], dtypes.split(";")[0]

    done = run(shapes, dtypes, x, dtype, formats)

    assert done.wrong is None
    assert set(done.inputs.tensors) == {"x", "mask"}


@pytest.mark.parametrize(
    ("shapes", "share", "why"),
    [
        ("4096,8;4096,1", 0.9375, "tokens outside one of 16 vocabulary shards"),
        ("4,15193;4,15193", 0.99, "logits outside the top k"),
        ("256,64;256,64", 0.5, "a full mask of no known origin"),
    ],
)
def test_the_share_of_true_is_realistic_and_recorded(shapes, share, why):
    done = run(shapes, "FLOAT;BOOL")

    assert done.inputs["mask"].float().mean() == pytest.approx(share, abs=0.03)
    assert done.case.assumptions == (
        f"masked share={share} ({why})",
        "value=0 (not recorded, timing-neutral)",
    )


def test_a_mask_of_another_dtype_is_built_and_keyed_as_bool():
    host = host_for("MaskedFill", masked_fill)
    spec = host.spec()
    rows = [
        make_row("MaskedFill", example_row("16,64;16,1", f"FLOAT;{dtype}", "16,64", "FLOAT"))
        for dtype in ("BOOL", "INT8", "INT32")
    ]

    case = host.make_case(spec, rows[1])

    assert case.tensors["mask"].dtype == "BOOL"
    assert case.assumptions[-1] == "mask dtype=BOOL (recorded as INT8, the kernel takes BOOL only)"
    assert len({host.canonical_key(spec, row) for row in rows}) == 1


@pytest.mark.parametrize(
    ("cells", "reason"),
    [
        (
            ("136,1;136,64", "DT_BF16;BOOL"),
            "input 'mask' has shape 136,64, which does not broadcast to x (136,1)",
        ),
        (
            ("136,64;135,1", "DT_BF16;BOOL"),
            "input 'mask' has shape 135,1, which does not broadcast to x (136,64)",
        ),
        (
            ("136,64;136,1", "DT_BF16;BOOL", "136,65", "DT_BF16"),
            "output slot 0 has shape 136,65, expected 136,64 (as x)",
        ),
        (("136,64", "DT_BF16"), "input slot 'mask' of MaskedFill is blank, expected a tensor"),
    ],
)
def test_a_contradictory_row_is_refused(cells, reason):
    assert run(*cells) == Skip.invalid(reason)


def test_seeds_repeat_and_differ():
    one, again, other = (run(f"{n},64;{n},64", "FLOAT;BOOL") for n in (64, 64, 65))

    assert torch.equal(one.inputs["mask"], again.inputs["mask"])
    assert not torch.equal(one.inputs["mask"], other.inputs["mask"][:64])


def test_reference_agrees_with_a_plain_loop():
    host = host_for("MaskedFill", masked_fill)
    case = host.make_case(host.spec(), make_row("MaskedFill", example_row("3,4;3,1", "FLOAT;BOOL")))
    inputs = host.make_inputs(case, host.family.device(0))

    (filled,) = host.reference(case, inputs, CPU).outputs

    for row, mask, got in zip(inputs["x"].tolist(), inputs["mask"].tolist(), filled.tolist(), strict=True):
        assert got == [0 if mask[0] else value for value in row]


@settings(max_examples=25, deadline=None)
@given(
    shape=st.lists(st.integers(1, 7), min_size=1, max_size=4),
    ones=st.lists(st.booleans(), min_size=4, max_size=4),
    dtype=st.sampled_from(["FLOAT", "DT_BF16", "INT8", "BOOL"]),
)
def test_any_broadcast_mask_replays(shape, ones, dtype):
    mask = [1 if one else size for size, one in zip(shape, ones, strict=False)]
    x = ",".join(map(str, shape))

    assert run(f"{x};{','.join(map(str, mask))}", f"{dtype};BOOL", x, dtype).wrong is None
