"""An operator that is one torch call is declared as data and carries the hooks of a module."""

from __future__ import annotations

import os.path

import pytest

from perfcollect_core import Case, Cost, Device, Skip, Slot, declare, flops_per_output
from perfcollect_core.declarations import resolve
from perfcollect_core.errors import CaseError
from perfcollect_core.host import read_spec
from perfcollect_core.loading import load_operator
from perfcollect_core.testing import host_for, make_row
from perfcollect_core.testing.replay import replay

TWO = {
    "Input Shapes": "136,5120;136,5120",
    "Input Data Types": "DT_BF16;DT_BF16",
    "Output Shapes": "136,5120",
    "Output Data Types": "DT_BF16",
}
ONE = {**TWO, "Input Shapes": "136,5120", "Input Data Types": "DT_BF16"}
THREE = {**TWO, "Input Shapes": "136,5120;136,5120;136,5120", "Input Data Types": "DT_BF16;DT_BF16;DT_BF16"}
SCALAR = {**TWO, "Input Shapes": "136,5120;", "Input Data Types": "DT_BF16;DT_BF16"}


def made(operator, cells) -> Case | Skip:
    host = host_for("Foo", operator)
    return host.make_case(host.spec(), make_row("Foo", cells))


@pytest.mark.parametrize(
    ("inputs", "cells", "names"),
    [
        ((1,), ONE, ["x"]),
        ((2,), TWO, ["x", "y"]),
        ((1, 2), ONE, ["x"]),
        ((1, 2), TWO, ["x", "y"]),
        ((Slot("a"), Slot("bias", optional=True)), ONE, ["a"]),
        ((Slot("a"), Slot("tiling", metadata=True)), TWO, ["a"]),
    ],
)
def test_inputs_are_named_by_count_or_by_slot(inputs, cells, names):
    assert list(made(declare("Foo", torch="torch.foo", inputs=inputs), cells).tensors) == names


@pytest.mark.parametrize(
    ("inputs", "cells", "reason"),
    [
        ((2,), ONE, "input slot 'y' of Foo is blank, expected a tensor"),
        ((2,), THREE, "Foo records 3 input tensors, expected 2"),
        ((1, 2), THREE, "Foo records 3 input tensors, expected 1 or 2"),
    ],
)
def test_another_number_of_tensors_is_an_invalid_case(inputs, cells, reason):
    assert made(declare("Foo", torch="torch.foo", inputs=inputs), cells) == Skip.invalid(reason)


def test_the_second_input_may_be_a_scalar():
    operator = declare("Foo", torch="torch.add", inputs=(2,), scalar_second=True)

    case = made(operator, SCALAR)

    assert case.tensors["y"].is_scalar
    assert made(declare("Foo", torch="torch.add", inputs=(2,), scalar_second=True), ONE).tensors.keys() == {
        "x"
    }


@pytest.mark.parametrize("inputs", [(7,), (0,), (2, Slot("x"))])
def test_inputs_that_cannot_be_named_are_refused_when_declared(inputs):
    with pytest.raises(ValueError, match=r"inputs of Foo are .*, expected slots, or counts from 1 to 6"):
        declare("Foo", torch="torch.foo", inputs=inputs)


def test_keywords_go_into_the_case_and_infer_completes_it():
    operator = declare(
        "Foo",
        torch="torch.foo",
        keywords={"dim": -1},
        infer=lambda case: Skip("no") if case.params["dim"] else case,
    )

    assert made(operator, ONE) == Skip("no")


def test_the_cost_is_the_declared_one():
    operator = declare("Foo", torch="torch.add", inputs=(2,), cost=flops_per_output(3))

    cost = host_for("Foo", operator).estimate_cost(made(operator, TWO))

    assert cost == Cost(3 * 136 * 5120, 3 * 136 * 5120 * 2)


def test_the_call_of_each_family_is_told():
    operator = declare(
        "Foo", torch={"ascend": "torch_npu.npu_foo", "*": "torch.foo"}, families=("ascend", "cpu")
    )

    assert operator.operator.api == {"ascend": "torch_npu.npu_foo", "cpu": "torch.foo"}


def test_a_family_without_a_call_is_said_so():
    operator = declare("Foo", torch={"ascend": "torch_npu.npu_foo"})

    with pytest.raises(CaseError, match="Foo names no torch call for family cpu"):
        operator.perfcollect_bind_kernel(made(operator, ONE), None, Device("cpu", 0, "cpu"))


def test_a_dotted_path_imports_the_modules_on_its_way():

    assert resolve("os.path.join") is os.path.join
    assert resolve("xml.dom.minidom.parseString").__name__ == "parseString"


def test_example_rows_come_from_the_package_that_declares(fake_distribution):
    fake_distribution(
        "ops-declared",
        operators={"Foo": "ops_declared.activations:foo"},
        files={
            "ops_declared/__init__.py": "",
            "ops_declared/activations.py": "from perfcollect_core import declare\n"
            "foo = declare('Foo', torch='torch.sigmoid', examples='examples/foo.csv')\n",
            "ops_declared/examples/foo.csv": 'Input Shapes,Input Data Types\n"4,8",DT_BF16\n',
        },
    )

    assert read_spec(load_operator("Foo")).examples == (
        {"Input Shapes": "4,8", "Input Data Types": "DT_BF16"},
    )


@pytest.mark.torch
def test_a_declared_operator_runs_the_torch_call_it_names():
    pytest.importorskip("torch")
    operator = declare(
        "Foo",
        torch="torch.nn.functional.softmax",
        keywords={"dim": -1},
        reference=lambda case, inputs: (inputs["x"].double().log_softmax(-1).exp(),),
    )

    done = replay("Foo", operator, ONE)

    assert done.checked
    assert done.wrong is None
    assert tuple(done.outputs[0].shape) == (136, 5120)
