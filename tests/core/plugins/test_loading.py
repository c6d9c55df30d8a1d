"""A requested plugin loads, or the error names whose it is and what to do."""

from __future__ import annotations

import pytest

from perfcollect_core import HOOK_API
from perfcollect_core.errors import IncompatiblePluginError, PluginLoadError
from perfcollect_core.loading import load_executor, load_family, load_operator, load_wrappers


def test_an_operator_loads_as_a_module(fake_distribution):
    fake_distribution("ops-a", "1.0", operators={"Foo": "ops_a.foo"}, files={"ops_a/foo.py": "ANSWER = 42\n"})

    loaded = load_operator("Foo")

    assert (loaded.name, loaded.provider) == ("Foo", "ops-a 1.0")
    assert loaded.plugin.ANSWER == 42


@pytest.mark.parametrize("text", ["Foo.csv", "Foo_run.py", "ops-a:Foo"])
def test_an_operator_loads_by_what_people_type(fake_distribution, text):
    fake_distribution(
        "ops-a", operators={"Foo": "ops_a:inner.answer"}, files={"ops_a.py": "class inner:\n    answer = 7\n"}
    )

    assert load_operator(text).plugin == 7


def test_a_broken_import_names_distribution_entry_point_cause_and_fix(fake_distribution):
    fake_distribution(
        "ops-broken",
        "0.9.0rc2+gitdc51c2d",
        operators={"BrokenOp": "ops_broken.replay"},
        files={"ops_broken/replay.py": "import module_that_does_not_exist\n"},
    )

    with pytest.raises(PluginLoadError) as caught:
        load_operator("BrokenOp")

    assert str(caught.value) == (
        "operator 'BrokenOp' of ops-broken 0.9.0rc2+gitdc51c2d (entry point ops_broken.replay) failed to load: "
        "No module named 'module_that_does_not_exist'"
    )
    assert caught.value.hint == (
        "install the module 'module_that_does_not_exist' into this environment, or repair or upgrade it "
        "(pip install --upgrade ops-broken) or uninstall it; perfcollect doctor checks every plugin"
    )
    assert caught.value.provider == "ops-broken 0.9.0rc2+gitdc51c2d"


@pytest.mark.parametrize(
    ("value", "source", "cause"),
    [
        ("mod_a:missing", "", "module 'mod_a' has no attribute 'missing'"),
        ("mod_b", "1 / 0\n", "ZeroDivisionError: division by zero"),
        ("mod_c", "raise SystemExit(3)\n", "SystemExit: 3"),
        ("mod_d", "raise ValueError\n", "ValueError"),
        ("mod_e", "def f(:\n", "SyntaxError: "),
    ],
)
def test_whatever_a_plugin_raises_is_attributed(fake_distribution, value, source, cause):
    fake_distribution(
        "ops-a", "1.0", operators={"Foo": value}, files={f"{value.partition(':')[0]}.py": source}
    )

    with pytest.raises(PluginLoadError) as caught:
        load_operator("Foo")

    assert str(caught.value).startswith(
        f"operator 'Foo' of ops-a 1.0 (entry point {value}) failed to load: {cause}"
    )
    assert "\n" not in str(caught.value)


def test_a_broken_plugin_disturbs_no_other(fake_distribution):
    fake_distribution("ops-broken", operators={"Broken": "no_such_module"})
    fake_distribution("ops-a", operators={"Foo": "ops_a"}, files={"ops_a.py": ""})

    assert load_operator("Foo").provider == "ops-a 1.0"


def test_a_class_is_not_a_plugin(fake_distribution):
    fake_distribution("ops-a", operators={"Foo": "ops_a:Foo"}, files={"ops_a.py": "class Foo: pass\n"})

    with pytest.raises(PluginLoadError) as caught:
        load_operator("Foo")

    assert str(caught.value) == (
        "operator 'Foo' of ops-a 1.0 (entry point ops_a:Foo) names the class Foo, expected a module or an object"
    )


@pytest.mark.parametrize(
    "requirement", ["perfcollect-core>=7", "perfcollect_core==0.0.1", "Perfcollect.Core<0.1"]
)
def test_a_plugin_for_another_core_is_refused_before_its_import(fake_distribution, requirement):
    fake_distribution(
        "ops-future",
        "2.0",
        operators={"Foo": "ops_future"},
        files={"ops_future.py": "1 / 0\n"},
        requires=[requirement],
    )

    with pytest.raises(IncompatiblePluginError) as caught:
        load_operator("Foo")

    specifier = requirement[len("perfcollect-core") :]
    assert str(caught.value) == f"ops-future 2.0 needs perfcollect-core{specifier}, installed is 0.1.0"
    assert caught.value.hint == "install a matching pair: pip install --upgrade perfcollect-core ops-future"


@pytest.mark.parametrize(
    "requirement", ["perfcollect-core>=0.1", "perfcollect-core>=7; extra == 'later'", "other>=9"]
)
def test_a_plugin_for_this_core_loads(fake_distribution, requirement):
    fake_distribution("ops-a", operators={"Foo": "ops_a"}, files={"ops_a.py": ""}, requires=[requirement])

    assert load_operator("Foo").name == "Foo"


def test_a_requirement_that_does_not_parse_is_passed_over(fake_distribution):
    fake_distribution(
        "ops-a", operators={"Foo": "ops_a"}, files={"ops_a.py": ""}, requires=["%%% no requirement"]
    )

    assert load_operator("Foo").name == "Foo"


@pytest.mark.parametrize("api", [(HOOK_API[0] + 1, 0), (HOOK_API[0], HOOK_API[1] + 1), (HOOK_API[0] - 1, 9)])
def test_a_plugin_for_other_hooks_is_refused(fake_distribution, api):
    fake_distribution(
        "ops-a",
        operators={"Foo": "ops_a.foo"},
        files={"ops_a/__init__.py": f"HOOK_API = {api}\n", "ops_a/foo.py": ""},
    )

    with pytest.raises(IncompatiblePluginError) as caught:
        load_operator("Foo")

    assert str(caught.value) == (
        f"operator 'Foo' of ops-a 1.0 (entry point ops_a.foo) needs hook API {api[0]}.{api[1]}, "
        f"this perfcollect-core has {HOOK_API[0]}.{HOOK_API[1]}"
    )


def test_a_hook_api_that_is_no_version_is_refused(fake_distribution):
    fake_distribution("ops-a", operators={"Foo": "ops_a"}, files={"ops_a.py": "HOOK_API = '1.0'\n"})

    with pytest.raises(IncompatiblePluginError, match=r"has HOOK_API '1\.0', expected a pair of integers"):
        load_operator("Foo")


def test_families_and_executors_load_from_their_groups(fake_distribution):
    fake_distribution(
        "more",
        families={"tpu_like": "more:family"},
        executors={"far": "more:executor"},
        files={"more.py": "family = 1\nexecutor = 2\n"},
    )

    assert load_family("tpu_like").plugin == 1
    assert load_executor("far").plugin == 2


def test_wrappers_load_once_each_in_order_of_name(fake_distribution):
    fake_distribution("w", wrappers={"power": "w:a", "clock": "w:b"}, files={"w.py": "a = 'A'\nb = 'B'\n"})

    assert [w.plugin for w in load_wrappers(["power", "clock", "power"])] == ["B", "A"]
