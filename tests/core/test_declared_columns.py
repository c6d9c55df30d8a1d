"""What declared operators take from metadata columns, families and keys."""

from __future__ import annotations

import attrs
import pytest

from perfcollect_core import RunRequest, Skip, Slot, Tolerance, declare, example_row
from perfcollect_core.measurements import Reference
from perfcollect_core.testing.replay import host_for, make_row, replay


def copied(case, inputs):
    return (inputs["x"].clone(),)


def only_elsewhere(case, family):
    return Skip("no kernel on ascend") if family == "ascend" else None


def by_shape(spec, row):
    return (spec.name, row.get("Input Shapes")) if row.get("Input Shapes") else None


ROW = example_row("4,8", "FLOAT", "4,8", "FLOAT")


def test_columns_become_parameters_and_keys():
    operator = declare(
        "Move", torch="torch.clone", columns={"blocks": "Runtime blocks", "mode": "Runtime mode"}
    )
    host = host_for("Move", operator)
    row = make_row("Move", {**ROW, "Runtime blocks": "64", "Runtime mode": "ring"})

    assert host.make_case(host.spec(), row).params == {"blocks": 64, "mode": "ring"}
    assert host.make_case(host.spec(), make_row("Move", ROW)).params == {}
    assert host.spec().key_columns == ("Runtime blocks", "Runtime mode")


def test_an_operator_skips_rows_on_one_family_and_loses_none():
    operator = declare("Move", torch="torch.clone", unavailable=only_elsewhere)
    host = host_for("Move", operator)
    rows = [make_row("Move", ROW, 0), make_row("Move", example_row("4,0", "FLOAT"), 1)]

    ascend = host.match_rows(host.spec(), rows, RunRequest("ascend"))
    cpu = host.match_rows(host.spec(), rows, RunRequest("cpu"))

    assert [skip for _, skip in ascend.skips] == [
        Skip("no kernel on ascend"),
        Skip.invalid("input 'x' has shape (4, 0) with no element"),
    ]
    assert [case.row for case in cpu.cases] == [rows[0].ref]
    assert [row.ref for row, _ in cpu.skips] == [rows[1].ref]


def test_a_key_of_its_own_falls_back_to_the_default():
    host = host_for("Move", declare("Move", torch="torch.clone", canonical_key=by_shape))
    spec = host.spec()

    assert host.canonical_key(spec, make_row("Move", ROW)) == ("Move", "4,8")
    assert host.canonical_key(spec, make_row("Move", {**ROW, "Input Shapes": ""}))[0] == "Move"


@pytest.mark.torch
def test_optional_outputs_are_compared_on_ascend_only():
    pytest.importorskip("torch")
    operator = declare(
        "Move",
        torch="torch.clone",
        outputs=(Slot("y"), Slot("scale", optional=True)),
        reference=lambda case, inputs: (inputs["x"], inputs["x"]),
        tolerances=(Tolerance(0, 0),) * 2,
    )
    host = host_for("Move", operator)
    done = replay("Move", operator, ROW)
    ascend = attrs.evolve(host.family.device(0), family="ascend")

    assert host.reference(done.case, done.inputs, host.family.device(0)).outputs[1] is None
    assert host.reference(done.case, done.inputs, ascend).outputs[1] is not None


@pytest.mark.torch
def test_a_reference_may_bring_its_own_comparison():
    pytest.importorskip("torch")
    operator = declare(
        "Move",
        torch="torch.clone",
        reference=lambda case, inputs: Reference((), (), lambda actual: "never right"),
    )

    assert replay("Move", operator, ROW).wrong == "never right"


@pytest.mark.torch
def test_tolerances_may_depend_on_the_case_and_complex_outputs_compare():
    pytest.importorskip("torch")
    operator = declare(
        "Move",
        torch="torch.clone",
        reference=copied,
        tolerances=lambda case: (Tolerance.of_dtype(case.tensors["x"].dtype),),
    )

    for dtype in ("DT_BF16", "COMPLEX64", "INT32"):
        assert replay("Move", operator, example_row("4,8", dtype)).wrong is None


@pytest.mark.parametrize(
    ("dtype", "rtol"), [("BF16", 2**-7), ("FLOAT16", 2**-10), ("FLOAT", 2**-23), ("INT8", 0.0)]
)
def test_a_tolerance_of_a_dtype_is_two_of_its_roundings(dtype, rtol):
    assert Tolerance.of_dtype(dtype) == Tolerance(rtol, 0.0)
