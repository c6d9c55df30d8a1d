"""`doctor` finds what is broken, doubled or stale, says how to mend it, and checks the rest all the same."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

from perfcollect_core.cli import main
from perfcollect_core.diagnosis import child, families, metadata, plugins, torch_pair
from perfcollect_core.diagnosis.findings import Finding, Scope
from perfcollect_core.discovery import PluginIndex, Provider, plugin_index
from perfcollect_core.errors import PluginError
from perfcollect_core.testing import write_distribution

SPEC = "from perfcollect_core import OperatorSpec\n\ndef perfcollect_operator_spec(operator):\n    return OperatorSpec(operator)\n"


def load(
    fake_distribution, source: str, group: str = "operators", timeout_s: float = 20.0
) -> dict[str, object]:
    fake_distribution(
        "ops-a", "1.0", files={"mod_under_test.py": source}, **{group: {"Foo": "mod_under_test"}}
    )
    return child.run_child(Provider("Foo", group, "mod_under_test", "ops-a", "1.0")._asdict(), timeout_s)


def test_a_sound_plugin_loads(fake_distribution):
    assert load(fake_distribution, SPEC) == {"heavy": []}


def test_what_a_plugin_prints_does_not_disturb(fake_distribution):
    assert load(fake_distribution, "print('noise without an end', end='')\n" + SPEC) == {"heavy": []}


@pytest.mark.parametrize(
    ("source", "group", "error"),
    [
        (
            "import os; os._exit(0)",
            "operators",
            "ended with status 0 before it had loaded: nothing on stderr",
        ),
        (
            "import os; os.abort()",
            "operators",
            "was ended by SIGABRT before it had loaded: nothing on stderr",
        ),
        (
            "",
            "operators",
            "perfcollect_operator_spec of operator 'Foo' (ops-a 1.0): expected OperatorSpec, got NoneType",
        ),
        (
            "def perfcollect_mesure(plan): pass",
            "wrappers",
            "plugin 'Foo' (ops-a 1.0) has hook 'perfcollect_mesure', which does not exist",
        ),
        (
            "name = 'foo'",
            "families",
            "device family 'Foo' (ops-a 1.0): expected the DeviceFamily protocol, got module without cores, dtypes, "
            "probe, default_plan, launch, device, environment, measure, synchronize, read_profile",
        ),
    ],
)
def test_a_broken_plugin_says_how(fake_distribution, source, group, error):
    assert load(fake_distribution, source, group)["error"] == error


def test_a_plugin_that_hangs_is_ended(fake_distribution, tmp_path: Path):
    pid_file = tmp_path / "pid"
    started = time.monotonic()

    answer = load(
        fake_distribution,
        f"import os, pathlib, time\npathlib.Path({str(pid_file)!r}).write_text(str(os.getpid()))\ntime.sleep(600)\n",
        timeout_s=1.5,
    )

    assert answer == {"error": "did not answer within 1.5 s and was ended"}
    assert time.monotonic() - started < 10
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid_file.read_text()), 0)


def test_the_broken_one_is_reported_and_the_rest_is_checked(fake_distribution, monkeypatch):
    fake_distribution(
        "ops-broken",
        "0.9.0rc2+gitdc51c2d",
        operators={"BrokenOp": "ops_broken"},
        files={"ops_broken.py": "import module_that_does_not_exist\n"},
    )
    fake_distribution("ops-a", "1.0", operators={"Foo": "ops_a"}, files={"ops_a.py": SPEC})
    ours = [p for p in plugin_index().all("operators") if p.distribution in ("ops-broken", "ops-a")]
    monkeypatch.setattr(plugins, "plugin_index", lambda: PluginIndex(ours))

    assert list(plugins.loadable(Scope())) == [
        Finding(
            "plugins",
            "error",
            "operator BrokenOp (ops-broken 0.9.0rc2+gitdc51c2d)",
            "(entry point ops_broken) failed to load: No module named 'module_that_does_not_exist'",
            "install the module 'module_that_does_not_exist' into this environment, or repair or upgrade it "
            "(pip install --upgrade ops-broken) or uninstall it",
        ),
        Finding("plugins", "ok", "plugins", "1 of 2 plugins load"),
    ]


def test_conflicts_and_unsafe_names_are_found(monkeypatch):
    index = PluginIndex(
        [
            Provider("Foo", "operators", "a", "ops-a", "1.0.0"),
            Provider("Foo", "operators", "b", "ops-b", "2.0.0.post1"),
            Provider("Sub/Op", "operators", "c", "ops-typo", "1.0"),
        ]
    )
    monkeypatch.setattr(plugins, "plugin_index", lambda: index)

    conflict, unsafe = plugins.conflicts(Scope())

    assert (conflict.level, conflict.message) == ("warning", "provided by ops-a 1.0.0 and ops-b 2.0.0.post1")
    assert conflict.fix == "uninstall all but one, or name one each time, as ops-a:Foo"
    assert (unsafe.level, unsafe.subject) == ("error", "operator 'Sub/Op' (ops-typo 1.0)")


def shadowed(name: str) -> list[Finding]:
    return [finding for finding in metadata.shadowed(Scope()) if finding.subject == name]


def test_metadata_that_hides_other_metadata_is_found(fake_distribution):
    old = fake_distribution("ops-a", "1.0", operators={"Foo": "ops_a"})
    new = fake_distribution("ops-a", "2.0", operators={"Foo": "ops_a"})

    (finding,) = shadowed("ops-a")

    assert finding.level == "warning"
    assert finding.message == f"{new.dist_info.resolve()} counts and hides {old.dist_info.resolve()}"


def test_one_directory_under_two_names_hides_nothing(tmp_path, monkeypatch):
    made = write_distribution(tmp_path / "lib", "ops-a", "1.0", {"operators": {"Foo": "ops_a"}})
    (tmp_path / "lib64").symlink_to(made.path)
    for name in ("lib", "lib64"):
        monkeypatch.syspath_prepend(str(tmp_path / name))

    assert shadowed("ops-a") == []


def editable(fake_distribution, project: Path, entry_points: str) -> list[Finding]:
    made = fake_distribution("ops-a", "1.0", operators={"Foo": "ops_a.foo", "Bar": "ops_a.bar"})
    origin = {"url": project.as_uri(), "dir_info": {"editable": True}}
    (made.dist_info / "direct_url.json").write_text(json.dumps(origin))
    if entry_points:
        project.mkdir(parents=True)
        (project / "pyproject.toml").write_text(
            f'[project]\nname = "ops-a"\n[project.entry-points."perfcollect.operators"]\n{entry_points}\n'
        )
    return [finding for finding in metadata.stale(Scope()) if finding.subject == "ops-a"]


def test_an_entry_point_added_after_an_editable_install_is_found(fake_distribution, tmp_path):
    (finding,) = editable(
        fake_distribution, tmp_path / "my ops", 'Foo = "ops_a.foo"\nBar = "ops_a.other"\nNew = "ops_a.new"'
    )

    assert finding.level == "error"
    assert finding.message == f"entry points differ from {tmp_path / 'my ops' / 'pyproject.toml'}: Bar, New"
    assert finding.fix == f"make install, or pip install --no-deps -e {tmp_path / 'my ops'}"


def test_an_editable_install_in_step_is_fine(fake_distribution, tmp_path):
    assert editable(fake_distribution, tmp_path / "ops", 'Foo = "ops_a.foo"\nBar = "ops_a.bar"') == []


def test_an_editable_install_whose_project_is_gone_is_found(fake_distribution, tmp_path):
    (finding,) = editable(fake_distribution, tmp_path / "gone", "")

    assert (
        finding.message
        == f"was installed from {tmp_path / 'gone'}, where there is no pyproject.toml any more"
    )


@pytest.mark.parametrize(
    ("torch", "npu", "family", "level", "message"),
    [
        ("2.9.0+cpu", "2.9.0.post9", None, "ok", "torch 2.9.0+cpu, torch_npu 2.9.0.post9"),
        ("2.9.1", "2.9.0.post9", None, "error", "torch 2.9.1 and torch_npu 2.9.0.post9 are no pair"),
        ("2.13.0+cpu", None, None, "ok", "2.13.0+cpu, no torch_npu"),
        ("2.13.0+cpu", None, "ascend", "error", "is not installed beside torch 2.13.0+cpu"),
        (None, None, None, "warning", "is not installed in this environment"),
        (None, None, "cpu", "error", "is not installed in this environment"),
    ],
)
def test_torch_and_torch_npu_have_to_be_a_pair(monkeypatch, torch, npu, family, level, message):
    installed = {"torch": torch, "torch_npu": npu}

    def version(name: str) -> str:
        if installed[name] is None:
            raise torch_pair.metadata.PackageNotFoundError(name)
        return installed[name]

    monkeypatch.setattr(torch_pair.metadata, "version", version)

    (finding,) = torch_pair.torch_pair(Scope(family))

    assert (finding.level, finding.message) == (level, message)


FAMILY = """
from perfcollect_core import DeviceInfo, Missing, Probe
name, cores, dtypes = "npu_like", ("NPU",), frozenset()
def probe(): return Probe(missing=(Missing("libfoo.so", "in LD_LIBRARY_PATH", "install foo"),))
def default_plan(): ...
def launch(argv, ranks, device, run_dir): ...
def device(index): ...
def environment(device): ...
def measure(kernel, plan, device): ...
def synchronize(device): ...
def read_profile(profile_dir): ...
"""


def test_what_the_family_asked_for_lacks_is_an_error(fake_distribution):
    fake_distribution("npu-like", families={"npu_like": "npu_like"}, files={"npu_like.py": FAMILY})

    (finding,) = families.families(Scope("npu_like", 20.0))

    assert finding == Finding(
        "devices", "error", "family npu_like", "lacks libfoo.so (looked in LD_LIBRARY_PATH)", "install foo"
    )


def test_what_another_family_lacks_is_no_error(fake_distribution, monkeypatch):
    fake_distribution("npu-like", families={"npu_like": "npu_like"}, files={"npu_like.py": FAMILY})
    only = PluginIndex(plugin_index().providers("families", "npu_like"))
    monkeypatch.setattr(families, "plugin_index", lambda: only)

    assert [finding.level for finding in families.families(Scope(None, 20.0))] == ["info"]


def test_an_unknown_family_is_the_users_mistake():
    with pytest.raises(
        PluginError, match="device family 'npuu' is not provided by any installed distribution"
    ):
        list(families.families(Scope("npuu")))


NEEDY = """
from perfcollect_core import Need, OperatorSpec
def perfcollect_operator_spec(operator):
    return OperatorSpec(operator, families=("cpu",), needs=(Need("env", "ASCEND_CUSTOM_OPP_PATH", families=("cpu",)),))
"""


def test_what_operators_need_and_do_not_find_is_found(fake_distribution, monkeypatch):
    monkeypatch.delenv("ASCEND_CUSTOM_OPP_PATH", raising=False)
    fake_distribution(
        "ops-needy", operators={"NeedyA": "needy_ops", "NeedyB": "needy_ops"}, files={"needy_ops.py": NEEDY}
    )
    only = PluginIndex(
        p for name in ("NeedyA", "NeedyB") for p in plugin_index().providers("operators", name)
    )
    monkeypatch.setattr(families, "plugin_index", lambda: only)

    (finding,) = families.operator_needs(Scope("cpu"))

    assert finding.level == "warning"
    assert finding.subject == "environment variable ASCEND_CUSTOM_OPP_PATH"
    assert finding.message == "is missing (ASCEND_CUSTOM_OPP_PATH is not set) and needed by NeedyA, NeedyB"


@pytest.mark.parametrize(("level", "code"), [("error", 1), ("warning", 0), ("info", 0)])
def test_only_an_error_makes_doctor_fail(monkeypatch, capsys, level, code):
    def check(scope):
        return [Finding("check", level, "subject", "is so", "do that")]

    monkeypatch.setattr("perfcollect_core.cli.doctor._checks", lambda: (check,))

    assert main(["doctor", "-q"]) == code
    assert capsys.readouterr().out.splitlines()[:2] == [
        f"{level:<7}  subject: is so",
        "         fix: do that",
    ]


def test_findings_come_as_json(monkeypatch, capsys):
    monkeypatch.setattr(
        "perfcollect_core.cli.doctor._checks", lambda: (lambda scope: [Finding("a", "ok", "b", "c")],)
    )
    monkeypatch.setattr("perfcollect_core.cli.doctor.note", lambda text: None)

    assert main(["doctor", "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out) == [
        {"check": "a", "level": "ok", "subject": "b", "message": "c", "fix": ""}
    ]
