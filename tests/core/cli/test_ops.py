"""`ops` lists from metadata; --long and `ops show` import what is asked for and survive what is broken."""

from __future__ import annotations

import json

import pytest

from perfcollect_core.cli import main
from perfcollect_core.discovery import PluginIndex, Provider

FOO = """
from perfcollect_core import Axis, Need, OperatorSpec, ProfileColumn, Slot

def perfcollect_operator_spec(operator):
    return OperatorSpec(
        name=operator, summary="y = foo(x)", api={"ascend": "torch_npu.npu_foo", "cpu": "torch.foo"}, families=("ascend", "cpu"),
        inputs=(Slot("x"), Slot("bias", optional=True), Slot("tiling", metadata=True)), outputs=(Slot("y"),), aliases=("FooV2",),
        key_columns=("Num Heads",), profile_columns=(ProfileColumn("Batch", slot=1),), axes=(Axis("tokens", lambda row: None),),
        needs=(Need("env", "ASCEND_CUSTOM_OPP_PATH"),), ranks=None, value_policy="x N(0, 1)", assumptions=("alpha=1",),
        examples=({"Input Shapes": "4,4"},),
    )
"""


@pytest.fixture
def only(monkeypatch, fake_distribution):
    """Let the listings see nothing but the given providers; the modules are installed."""
    fake_distribution("ops-foo", "1.2", operators={"Foo": "ops_foo"}, files={"ops_foo.py": FOO})
    fake_distribution("ops-broken", "0.9", operators={"Broken": "no_such_module"})

    def see(*providers: Provider) -> None:
        monkeypatch.setattr("perfcollect_core.cli.ops.plugin_index", lambda: PluginIndex(providers))

    return see


FOO_PROVIDER = Provider("Foo", "operators", "ops_foo", "ops-foo", "1.2")
BROKEN_PROVIDER = Provider("Broken", "operators", "no_such_module", "ops-broken", "0.9")


def test_operators_are_listed_as_a_table(only, capsys):
    only(FOO_PROVIDER, BROKEN_PROVIDER)

    assert main(["ops"]) == 0

    out, err = capsys.readouterr()
    assert out.splitlines() == [
        "operator  distribution  version  entry point",
        "Broken    ops-broken    0.9      no_such_module",
        "Foo       ops-foo       1.2      ops_foo",
    ]
    assert err == ""


def test_operators_are_listed_as_json(only, capsys):
    only(FOO_PROVIDER)

    assert main(["ops", "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out) == [
        {"operator": "Foo", "distribution": "ops-foo", "version": "1.2", "entry_point": "ops_foo"}
    ]


def test_a_conflict_is_listed_twice_and_said(only, capsys):
    only(FOO_PROVIDER, Provider("Foo", "operators", "ops_b", "ops-b", "2.0.0.post1"))

    assert main(["ops"]) == 0

    out, err = capsys.readouterr()
    assert len(out.splitlines()) == 3
    assert err == (
        "warning: operator 'Foo' is provided by ops-b 2.0.0.post1 and ops-foo 1.2; name one as --ops ops-b:Foo\n"
    )


@pytest.mark.parametrize("name", ["Bad Op", "Sub/Op"])
def test_an_unsafe_name_is_refused_by_name(only, capsys, name):
    only(FOO_PROVIDER, Provider(name, "operators", "x", "ops-typo", "1.0"))

    assert main(["ops"]) == 0

    out, err = capsys.readouterr()
    assert name not in out
    assert (
        err
        == f"warning: entry point {name!r} of ops-typo 1.0 is ignored: its name is not safe as a file name\n"
    )


def test_the_long_listing_shows_what_loads_and_names_what_does_not(only, capsys):
    only(BROKEN_PROVIDER, FOO_PROVIDER)

    assert main(["ops", "--long", "--format", "json"]) == 0

    out, err = capsys.readouterr()
    broken, foo = json.loads(out)
    assert broken["error"].endswith("failed to load: No module named 'no_such_module'")
    assert "no_such_module" in err
    assert foo["families"] == ["ascend", "cpu"]
    assert foo["columns"] == ["Num Heads", "Batch"]


def test_show_says_everything_an_operator_says_about_itself(only, capsys):
    only(FOO_PROVIDER)

    assert main(["ops", "show", "Foo.csv", "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "operator": "Foo",
        "distribution": "ops-foo",
        "version": "1.2",
        "entry_point": "ops_foo",
        "summary": "y = foo(x)",
        "families": ["ascend", "cpu"],
        "api": {"ascend": "torch_npu.npu_foo", "cpu": "torch.foo"},
        "inputs": ["x", "bias (optional)", "tiling (metadata)"],
        "outputs": ["y"],
        "aliases": ["FooV2"],
        "kernels": ["Foo"],
        "columns": ["Num Heads", "Batch"],
        "axes": ["tokens"],
        "needs": ["env ASCEND_CUSTOM_OPP_PATH (ascend)"],
        "ranks": None,
        "value_policy": "x N(0, 1)",
        "assumptions": ["alpha=1"],
        "example_rows": 1,
    }


def test_show_writes_one_fact_a_line(only, capsys):
    only(FOO_PROVIDER)

    assert main(["ops", "show", "Foo"]) == 0

    lines = capsys.readouterr().out.splitlines()
    assert "operator      Foo" in lines
    assert "ranks         as the row says" in lines
    assert "              cpu: torch.foo" in lines
