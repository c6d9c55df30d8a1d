"""The conformance checks pass a sound operator and catch each fault they are there for."""

from __future__ import annotations

import types

import attrs
import pytest

from perfcollect_core import (
    Case,
    Cost,
    Inputs,
    Kernel,
    OperatorSpec,
    Reference,
    Skip,
    Slot,
    Tolerance,
    ValueMaker,
    default_case,
)
from perfcollect_core.testing import OperatorConformance, make_row

CELLS = {
    "Input Shapes": "16,128",
    "Input Data Types": "DT_BF16",
    "Output Shapes": "16,128",
    "Output Data Types": "DT_BF16",
}
NEGATIVE = {**CELLS, "Input Shapes": "0,128"}
SPEC = OperatorSpec(
    "Double",
    summary="y = 2 x",
    api={"cpu": "torch.mul"},
    families=("cpu",),
    inputs=(Slot("x"),),
    outputs=(Slot("y"),),
    value_policy="x N(0, 1)",
    examples=(CELLS,),
    negative=(NEGATIVE,),
)


def bind(case, inputs, device):
    return Kernel(lambda: inputs["x"] * 2)


def reference(case, inputs, device):
    x = inputs["x"].double()
    return Reference((x + x,), (Tolerance(1e-2, 1e-2),))


def double(**hooks):
    """Make a conformance class over an operator that doubles, *hooks* replaced."""
    module = types.ModuleType("double_under_test")
    sound = {
        "perfcollect_operator_spec": lambda operator: SPEC,
        "perfcollect_bind_kernel": bind,
        "perfcollect_reference": reference,
    }
    for name, function in {**sound, **hooks}.items():
        setattr(module, name, function)
    return type(
        "Conformance", (OperatorConformance,), {"operator": "Double", "plugin": module, "__test__": False}
    )


ROW = make_row("Double", CELLS)
needs_torch = pytest.mark.torch


def fails(check: str, message: str, **hooks: object) -> None:
    """Assert that *check* refuses the operator with *message*."""
    conformance = double(**hooks)()
    arguments = [ROW] if check not in ("spec_is_complete", "has_example_rows", "has_negative_rows") else []
    if check == "negative_row_is_refused":
        arguments = [make_row("Double", NEGATIVE)]
    with pytest.raises(AssertionError, match=message):
        getattr(conformance, f"test_{check}")(*arguments)


@pytest.mark.parametrize(
    ("check", "message", "change"),
    [
        ("spec_is_complete", "lacks summary, value_policy", {"summary": "", "value_policy": ""}),
        ("spec_is_complete", "says nothing for cuda", {"families": ("cpu", "cuda")}),
        ("spec_is_complete", "two input slots of one name", {"inputs": (Slot("x"), Slot("x"))}),
        ("has_example_rows", "no example rows", {"examples": ()}),
        ("has_negative_rows", "no negative rows", {"negative": ()}),
    ],
)
def test_an_incomplete_spec_is_caught(check, message, change):
    fails(check, message, perfcollect_operator_spec=lambda operator: attrs.evolve(SPEC, **change))


@pytest.mark.parametrize(
    ("check", "message", "hooks"),
    [
        (
            "row_is_accepted",
            "row is refused: too wide",
            {"perfcollect_make_case": lambda row: Skip.invalid("too wide")},
        ),
        (
            "negative_row_is_refused",
            "refused as skipped, expected invalid_case",
            {"perfcollect_make_case": lambda row: Skip("not here")},
        ),
        ("cost_is_positive", "0.0 > 0", {"perfcollect_estimate_cost": lambda case: Cost(1.0, 0.0)}),
        ("canonical_key_is_text", "assert \\(\\)", {"perfcollect_canonical_key": lambda row: ()}),
    ],
)
def test_a_fault_of_the_parent_hooks_is_caught(check, message, hooks):
    fails(check, message, **hooks)


@needs_torch
def test_a_negative_row_that_runs_is_caught():
    pytest.importorskip("torch")

    def make_case(spec, row):
        return default_case(spec, make_row("Double", CELLS))

    with pytest.raises(pytest.fail.Exception, match="DID NOT RAISE"):
        double(perfcollect_make_case=make_case)().test_negative_row_is_refused(make_row("Double", NEGATIVE))


def spoiled_inputs(name):
    import torch

    count = iter(range(100))
    return {
        "unseeded": lambda case: Inputs(
            {"x": torch.full((16, 128), float(next(count)), dtype=torch.bfloat16)}
        ),
        "one seed": lambda case, device: Inputs({"x": ValueMaker(1, device).normal(case.tensors["x"])}),
        "zeros": lambda case: Inputs({"x": torch.zeros(16, 128, dtype=torch.bfloat16)}),
    }[name]


@needs_torch
@pytest.mark.parametrize(
    ("check", "message", "fault"),
    [
        ("inputs_are_seeded", "inputs differ though the seed is the same", "unseeded"),
        ("inputs_are_seeded", "inputs do not depend on the seed", "one seed"),
        ("inputs_are_not_constant", "all values of inputs \\['x'\\] are equal", "zeros"),
    ],
)
def test_a_fault_of_the_inputs_is_caught(check, message, fault):
    pytest.importorskip("torch")

    fails(check, message, perfcollect_make_inputs=spoiled_inputs(fault))


def grow_in_place(case, inputs, device):
    return Kernel(lambda: inputs["x"].mul_(2))


def restored(case, inputs, device):
    kept = inputs["x"].clone()
    return Kernel(lambda: inputs["x"].mul_(2), reset=lambda: inputs["x"].copy_(kept))


def same_call(case, inputs, device):
    return Reference((inputs["x"] * 2,), (Tolerance(1e-2, 1e-2),))


def changing(case, inputs, device):
    inputs["x"].zero_()
    return reference(case, inputs, device)


def blind(case, inputs, device):
    return Reference((), (), compare=lambda outputs: None)


@needs_torch
@pytest.mark.parametrize(
    ("check", "message", "hooks"),
    [
        ("outputs_match_the_row", "output 0 has shape", {"perfcollect_bind_kernel": lambda inputs: Kernel(lambda: inputs["x"][:4])}),
        ("outputs_match_the_row", "output 0 is torch.float32", {"perfcollect_bind_kernel": lambda inputs: Kernel(lambda: inputs["x"].float())}),
        ("outputs_match_the_row", "0 outputs, the row records 1", {"perfcollect_bind_kernel": lambda inputs: Kernel(lambda: ())}),
        ("reference_agrees", "elements differ", {"perfcollect_bind_kernel": lambda inputs: Kernel(lambda: inputs["x"] * 3)}),
        ("reference_agrees", "no reference", {"perfcollect_reference": lambda case: None}),
        ("reference_notices_a_wrong_output", "pass as right", {"perfcollect_reference": blind}),
        ("reference_is_independent", "the very calls of the kernel", {"perfcollect_reference": same_call}),
        ("reference_is_independent", "changes inputs \\['x'\\]", {"perfcollect_reference": changing}),
        ("repeated_calls_do_equal_work", "the second call gives something else", {"perfcollect_bind_kernel": grow_in_place}),
    ],
)  # fmt: skip
def test_a_fault_of_the_kernel_or_its_reference_is_caught(check, message, hooks):
    pytest.importorskip("torch")

    fails(check, message, **hooks)


@needs_torch
def test_a_kernel_in_place_passes_with_a_reset():
    pytest.importorskip("torch")

    double(perfcollect_bind_kernel=restored)().test_repeated_calls_do_equal_work(ROW)


def test_a_constant_input_passes_with_a_reason():
    pytest.importorskip("torch")
    conformance = double(perfcollect_make_inputs=spoiled_inputs("zeros"))
    conformance.constant_inputs = {"x": "an accumulator starts at zero"}

    conformance().test_inputs_are_not_constant(ROW)


@pytest.mark.parametrize(
    ("deviations", "message"),
    [
        ({"reference_agres": "typo"}, "checks that do not exist: \\['reference_agres'\\]"),
        ({"reference_agrees": "  "}, "without a written reason: \\['reference_agrees'\\]"),
    ],
)
def test_a_deviation_needs_a_check_and_a_reason(deviations, message):
    conformance = double()
    conformance.deviations = deviations

    with pytest.raises(AssertionError, match=message):
        conformance().test_deviations_have_reasons()


def test_torch_in_a_parent_hook_is_caught(fake_distribution):
    fake_distribution(
        "ops-eager",
        operators={"Eager": "ops_eager"},
        files={
            "ops_eager.py": "from perfcollect_core import OperatorSpec, Slot\n"
            "def perfcollect_operator_spec(operator):\n"
            "    return OperatorSpec(operator, inputs=(Slot('x'),))\n"
            "def perfcollect_estimate_cost(case):\n"
            "    import numpy\n",
            "numpy/__init__.py": "",
        },
    )
    conformance = type(
        "Conformance", (OperatorConformance,), {"operator": "Eager", "rows": [CELLS], "negative_rows": []}
    )

    with pytest.raises(AssertionError, match="parent hooks of Eager import numpy"):
        conformance().test_parent_hooks_import_no_torch()


@needs_torch
class TestDouble(OperatorConformance):
    """The whole set on a sound operator."""

    operator = "Double"
    plugin = double().plugin
    deviations = {"parent_hooks_import_no_torch": "the module under test is made in memory"}  # noqa: RUF012


def test_a_case_of_rows_given_in_the_class_is_replayed():
    conformance = double()
    conformance.rows = [CELLS, {**CELLS, "Input Shapes": "4,4"}]

    assert [row.get("Input Shapes") for row in conformance._rows()] == ["16,128", "4,4"]
    assert isinstance(conformance()._case(ROW), Case)
