"""Hooks are composed in one order, called through checked façades, and every fault is attributed."""

from __future__ import annotations

import types

import attrs
import pytest

from perfcollect_core import (
    Case,
    Cost,
    Device,
    Kernel,
    MatchedRows,
    Measurement,
    OperatorSpec,
    Plan,
    RunRequest,
    Signature,
    Skip,
    Statistics,
    hookimpl,
)
from perfcollect_core.errors import CaseError, PluginContractError
from perfcollect_core.host import LoadedPlugin, check_family, compose, read_spec
from perfcollect_core.loading import load_wrappers
from perfcollect_core.testing import StubFamily, host_for, make_row

CPU = Device("cpu", 0, "cpu")
CELLS = {
    "Input Shapes": "136,7168",
    "Input Data Types": "DT_BF16",
    "Output Shapes": "136,7168",
    "Output Data Types": "DT_BF16",
}
SPEC = OperatorSpec("Foo", api={"cpu": "torch.foo"})


def plugin(**hooks):
    """Make a module of plain functions."""
    module = types.ModuleType("foo_plugin")
    hooks.setdefault("perfcollect_operator_spec", lambda operator: SPEC)
    for name, function in hooks.items():
        setattr(module, name, function)
    return module


def case():
    return Case("Foo", None, Signature())


def compose_foo(operator=None, family=None, wrappers=()):
    return compose(
        LoadedPlugin("Foo", operator or plugin(), "ops-foo 1.0"),
        LoadedPlugin("stub", family or StubFamily(), "core"),
        [LoadedPlugin(name, wrapper, f"{name} 1.0") for name, wrapper in wrappers],
    )


def measured(host):
    return host.measure(case(), Kernel(lambda: None), Plan(repeat=2), CPU)


def test_core_answers_where_the_operator_does_not():
    host = compose_foo()

    assert host.spec() is SPEC
    assert host.canonical_key(SPEC, make_row("Foo", CELLS)) == (
        "Foo",
        "136,7168",
        "BF16",
        "",
        "136,7168",
        "BF16",
    )
    assert host.estimate_cost(case()) == Cost(0.0, 0.0)
    assert list(host.generate_rows(SPEC, (), None)) == []
    assert host.reference(case(), None, CPU) is None


def test_the_operator_is_asked_before_the_family_and_the_defaults():
    class Answering(StubFamily):
        def perfcollect_estimate_cost(self, case):
            return Cost(1, 1)

    family = Answering()

    assert compose_foo(family=family).estimate_cost(case()) == Cost(1, 1)
    assert compose_foo(plugin(perfcollect_estimate_cost=lambda case: Cost(2, 2)), family).estimate_cost(
        case()
    ) == Cost(2, 2)
    assert compose_foo(plugin(perfcollect_estimate_cost=lambda case: None), family).estimate_cost(
        case()
    ) == Cost(1, 1)


def test_an_eager_wrapper_cannot_jump_the_queue():
    eager = types.SimpleNamespace(perfcollect_estimate_cost=hookimpl(tryfirst=True)(lambda case: Cost(9, 9)))

    host = compose_foo(plugin(perfcollect_estimate_cost=lambda case: Cost(2, 2)), wrappers=[("eager", eager)])

    assert host.estimate_cost(case()) == Cost(2, 2)


def test_wrappers_go_round_in_order_of_name_whatever_order_they_are_given_in():
    def wrapper(name):
        @hookimpl(wrapper=True)
        def perfcollect_measure(plan):
            seen.append(name)
            return (yield)

        return types.SimpleNamespace(perfcollect_measure=perfcollect_measure)

    orders = []
    for names in (["a", "b", "c"], ["c", "a", "b"]):
        seen = []
        measured(compose_foo(wrappers=[(name, wrapper(name)) for name in names]))
        orders.append(seen)

    assert orders == [["c", "b", "a"], ["c", "b", "a"]]


WRAPPER = """
import attrs
from perfcollect_core import hookimpl

@hookimpl(wrapper=True)
def perfcollect_measure(device):
    samples = yield
    counters = {**samples.counters, "Power(W)": (240.0, 260.0), "Clock(MHz)": 1850.0}
    return attrs.evolve(samples, counters=counters)
"""


def test_an_installed_wrapper_adds_its_counters_as_columns(fake_distribution):
    fake_distribution(
        "perfcollect-power", wrappers={"power": "power_wrapper"}, files={"power_wrapper.py": WRAPPER}
    )
    host = compose(
        LoadedPlugin("Foo", plugin(), "ops-foo 1.0"),
        LoadedPlugin("stub", StubFamily(3.0), "core"),
        load_wrappers(["power"]),
    )

    samples = measured(host)
    measurement = Measurement(samples, Statistics(2, 3.0, 3.0, 3.0, 3.0, 0.0), core="CPU")
    (cells,) = host.write_back(case(), measurement, [make_row("Foo", CELLS)])

    assert samples.durations_us == (3.0, 3.0)
    assert cells["Average Duration(us)"] == "3.000000"
    assert cells["Power(W)"] == "250.000000"
    assert cells["Clock(MHz)"] == "1850.000000"


def test_an_installed_wrapper_that_is_not_asked_for_does_nothing(fake_distribution):
    fake_distribution(
        "perfcollect-power", wrappers={"power": "power_wrapper"}, files={"power_wrapper.py": WRAPPER}
    )

    assert measured(compose_foo()).counters == {}


def test_a_misspelt_hook_is_refused_with_the_right_name():
    with pytest.raises(PluginContractError) as caught:
        compose_foo(plugin(perfcollect_bind_kernl=lambda case: None))

    assert (
        str(caught.value)
        == "plugin 'Foo' (ops-foo 1.0) has hook 'perfcollect_bind_kernl', which does not exist"
    )
    assert caught.value.hint == "did you mean perfcollect_bind_kernel?"
    assert caught.value.provider == "ops-foo 1.0"


def test_an_optional_hook_cannot_hide_a_misspelling():
    misspelt = hookimpl(optionalhook=True)(lambda case: None)

    with pytest.raises(PluginContractError, match="which does not exist"):
        compose_foo(plugin(perfcollect_estimate_costs=misspelt))


def test_an_argument_the_hook_does_not_pass_is_refused():
    with pytest.raises(PluginContractError) as caught:
        compose_foo(plugin(perfcollect_estimate_cost=lambda case, session: None))

    assert str(caught.value).startswith("plugin 'Foo' (ops-foo 1.0) does not fit the hooks: ")
    assert "session" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_importing_our_packages_by_name_is_no_hook():
    module = plugin()
    module.perfcollect_core = types.ModuleType("perfcollect_core")

    assert compose_foo(module).spec() is SPEC


def test_registering_runs_no_property_of_a_plugin():
    class Careful:
        @property
        def expensive(self):
            raise RuntimeError("a property ran")

        def perfcollect_operator_spec(self, operator):
            return SPEC

    assert compose_foo(Careful()).spec() is SPEC


def test_a_plugin_that_cannot_be_hashed_is_one():
    @attrs.define
    class Unhashable:
        spec: OperatorSpec

        def perfcollect_operator_spec(self, operator):
            return self.spec

    with pytest.raises(TypeError):
        hash(Unhashable(SPEC))
    assert compose_foo(Unhashable(SPEC)).spec() is SPEC


def test_a_failed_composition_leaves_nothing_behind():
    operator = plugin()
    with pytest.raises(PluginContractError):
        compose_foo(operator, wrappers=[("bad", plugin(perfcollect_nothing=lambda: None))])

    assert compose_foo(operator).spec() is SPEC


@pytest.mark.parametrize(
    ("hooks", "call", "message"),
    [
        (
            {"perfcollect_operator_spec": lambda operator: None},
            lambda host: host.spec(),
            "perfcollect_operator_spec of operator 'Foo' (ops-foo 1.0): expected OperatorSpec, got NoneType",
        ),
        (
            {"perfcollect_operator_spec": lambda operator: OperatorSpec("Bar")},
            lambda host: host.spec(),
            "perfcollect_operator_spec of operator 'Foo' (ops-foo 1.0): expected a spec named 'Foo', got 'Bar'",
        ),
        (
            {"perfcollect_operator_spec": lambda operator: OperatorSpec("Foo", families=("ascend"))},
            lambda host: host.spec(),
            "perfcollect_operator_spec of operator 'Foo' (ops-foo 1.0): expected a tuple in families, got a text",
        ),
        (
            {"perfcollect_make_case": lambda row: {}},
            lambda host: host.make_case(SPEC, make_row("Foo", CELLS)),
            "perfcollect_make_case of operator 'Foo' (ops-foo 1.0): expected Case or Skip, got dict",
        ),
        (
            {"perfcollect_make_case": lambda row: {}},
            lambda host: host.match_rows(SPEC, [make_row("Foo", CELLS)], RunRequest("cpu")),
            "perfcollect_make_case of operator 'Foo' (ops-foo 1.0): expected Case or Skip, got dict",
        ),
        (
            {"perfcollect_canonical_key": lambda row: ("Foo", 136)},
            lambda host: host.canonical_key(SPEC, make_row("Foo", CELLS)),
            "perfcollect_canonical_key of operator 'Foo' (ops-foo 1.0): expected a tuple of text, got ('Foo', 136)",
        ),
        (
            {"perfcollect_bind_kernel": lambda case: (lambda: None)},
            lambda host: host.bind_kernel(case(), None, CPU),
            "perfcollect_bind_kernel of operator 'Foo' (ops-foo 1.0): expected Kernel, got function",
        ),
        (
            {},
            lambda host: host.bind_kernel(case(), None, CPU),
            "perfcollect_bind_kernel of operator 'Foo' (ops-foo 1.0): expected Kernel, got NoneType",
        ),
        (
            {"perfcollect_reference": lambda case: (1,)},
            lambda host: host.reference(case(), None, CPU),
            "perfcollect_reference of operator 'Foo' (ops-foo 1.0): expected Reference, got tuple",
        ),
        (
            {"perfcollect_write_back": lambda rows: []},
            lambda host: host.write_back(case(), None, [make_row("Foo", CELLS)]),
            "perfcollect_write_back of operator 'Foo' (ops-foo 1.0): expected 1 patches, got 0",
        ),
        (
            {"perfcollect_write_back": lambda rows: [{"Average Duration(us)": 1.5}]},
            lambda host: host.write_back(case(), None, [make_row("Foo", CELLS)]),
            "perfcollect_write_back of operator 'Foo' (ops-foo 1.0): expected cells as text by column, "
            "got {'Average Duration(us)': 1.5}",
        ),
        (
            {"perfcollect_make_case": lambda row: 1 / 0},
            lambda host: host.make_case(SPEC, make_row("Foo", CELLS)),
            "perfcollect_make_case of operator 'Foo' (ops-foo 1.0) raised ZeroDivisionError: division by zero",
        ),
    ],
)  # fmt: skip
def test_a_wrong_answer_names_hook_operator_and_provider(hooks, call, message):
    host = compose_foo(plugin(**hooks))

    with pytest.raises(PluginContractError) as caught:
        call(host)

    assert str(caught.value) == message
    assert caught.value.provider == "ops-foo 1.0"


def test_an_empty_answer_is_an_answer():
    host = compose_foo(plugin(perfcollect_generate_rows=lambda spec: ()))

    assert host.generate_rows(SPEC, (), None) == ()


def test_rows_that_get_lost_are_noticed():
    host = compose_foo(plugin(perfcollect_match_rows=lambda rows: MatchedRows()))

    with pytest.raises(PluginContractError) as caught:
        host.match_rows(SPEC, [make_row("Foo", CELLS)], RunRequest("cpu"))

    assert str(caught.value) == (
        "perfcollect_match_rows of operator 'Foo' (ops-foo 1.0): expected all 1 rows back, got 1 missing"
    )


def test_a_row_that_cannot_be_called_does_not_end_the_others():
    def make_case(spec, row):
        if "0" in row.get("Input Shapes"):
            raise CaseError("shape has a zero")
        return Case("Foo", row.ref, Signature())

    rows = [make_row("Foo", {"Input Shapes": shape}) for shape in ("4,4", "0,4", "2,2")]
    matched = compose_foo(plugin(perfcollect_make_case=make_case)).match_rows(SPEC, rows, RunRequest("cpu"))

    assert [c.row for c in matched.cases] == [rows[0].ref, rows[2].ref]
    assert matched.skips == ((rows[1], Skip.invalid("shape has a zero")),)


def test_what_torch_raises_in_the_worker_passes_unchanged():
    def bind(case):
        raise RuntimeError("out of memory")

    with pytest.raises(RuntimeError, match=r"^out of memory$"):
        compose_foo(plugin(perfcollect_bind_kernel=bind)).bind_kernel(case(), None, CPU)


def test_a_family_without_the_protocol_is_refused_with_what_it_lacks():
    class Half:
        name = "half"
        cores = ("HALF",)
        dtypes = frozenset()

        def probe(self):
            return None

    with pytest.raises(PluginContractError) as caught:
        check_family(LoadedPlugin("half", Half(), "half-family 0.1"))

    assert str(caught.value) == (
        "device family 'half' (half-family 0.1): expected the DeviceFamily protocol, got Half without "
        "default_plan, launch, device, environment, measure, synchronize, read_profile"
    )


def test_a_spec_is_read_without_a_device_family():
    assert read_spec(LoadedPlugin("Foo", plugin(), "ops-foo 1.0")) is SPEC


def test_a_plugin_under_test_runs_on_the_stub_family():
    assert host_for("Foo", plugin()).family.name == "stub"
