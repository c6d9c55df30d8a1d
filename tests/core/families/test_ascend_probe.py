"""Finding NPUs: what is missing is named with where it was looked for and how to get it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import attrs
import pytest

from perfcollect_core.environment import DeviceFamily
from perfcollect_core.errors import DataError, MissingEnvironmentError
from perfcollect_core.families import ascend
from perfcollect_core.families.ascend_probe import AscendMachine, _ask_child, probe_ascend
from perfcollect_core.families.ascend_visible import classify_visible_devices
from perfcollect_core.families.launching import run_child

A3 = {"index": 0, "soc": "Ascend910_9392", "memory_bytes": 64 << 30}
VERSIONS = {"torch": "2.9.0+cpu", "torch-npu": "2.9.0.post9"}


def answer(*devices: Mapping[str, object], **more: object) -> Callable[[], Mapping[str, object]]:
    return lambda: {"devices": list(devices), "versions": {"cann": "8.5.0"}, **more}


@pytest.fixture
def machine(tmp_path: Path) -> AscendMachine:
    """Two NPUs with driver, toolkit, profiler and a fitting torch pair."""
    toolkit = tmp_path / "usr/local/Ascend/cann"
    msprof = toolkit / "tools/profiler/bin/msprof"
    msprof.parent.mkdir(parents=True)
    msprof.write_text("#!/bin/sh\n")
    msprof.chmod(0o755)
    (toolkit / "opp").mkdir()
    (tmp_path / "dev").mkdir()
    for index in range(2):
        (tmp_path / f"dev/davinci{index}").touch()
    (tmp_path / "dev/davinci_manager").touch()
    driver = tmp_path / "usr/local/Ascend/driver/version.info"
    driver.parent.mkdir(parents=True)
    driver.write_text("Version=25.2.0\nascendhal_version=7.35\n")
    environ = {"ASCEND_HOME_PATH": str(toolkit), "ASCEND_OPP_PATH": str(toolkit / "opp"), "PATH": ""}
    return AscendMachine(environ, tmp_path, VERSIONS.get, answer(A3, {**A3, "index": 1}))


def missing(machine: AscendMachine) -> dict[str, tuple[str, str]]:
    found = probe_ascend(machine)
    assert found.devices == ()
    return {entry.what: (entry.looked, entry.fix) for entry in found.missing}


def with_environ(machine: AscendMachine, **changes: str) -> AscendMachine:
    return attrs.evolve(machine, environ={**machine.environ, **changes})


def test_a_complete_machine_gives_its_devices_and_versions(machine):
    found = probe_ascend(machine)

    assert found.missing == ()
    assert [(d.index, d.name, d.memory_bytes) for d in found.devices] == [
        (0, "ATLAS_800_A3_752T_128G_DIE", 64 << 30),
        (1, "ATLAS_800_A3_752T_128G_DIE", 64 << 30),
    ]
    assert found.devices[0].details == {"soc": "Ascend910_9392", "generation": "A3", "emulated": "no"}
    assert found.versions["driver"] == "25.2.0"
    assert found.versions["torch_npu"] == "2.9.0.post9"
    assert found.versions["cann"] == "8.5.0"
    assert found.versions["msprof"].endswith("tools/profiler/bin/msprof")


def test_a_910b_is_of_generation_a2(machine):
    found = probe_ascend(
        attrs.evolve(machine, ask=answer({**A3, "soc": "Ascend910B3"}, {**A3, "soc": "Ascend910B3"}))
    )

    assert {d.details["generation"] for d in found.devices} == {"A2"}


def test_an_emulated_library_is_recognised(machine):
    found = probe_ascend(attrs.evolve(machine, ask=answer(A3, A3, emulated=True)))

    assert {d.details["emulated"] for d in found.devices} == {"yes"}


def test_a_bare_machine_is_told_everything_at_once(tmp_path):
    bare = AscendMachine(
        {"PATH": ""}, tmp_path, lambda name: None, lambda: pytest.fail("asked without packages")
    )

    assert missing(bare) == {
        "torch": (
            f"in the packages of {sys.prefix}",
            "install the torch release that torch_npu was built for",
        ),
        "torch_npu": (f"in the packages of {sys.prefix}", "pip install the torch_npu release"),
        "CANN (ASCEND_HOME_PATH)": (
            "ASCEND_HOME_PATH is not set",
            "install the CANN toolkit and kernels for this NPU and run `source <CANN>/set_env.sh` in this shell",
        ),
        "CANN (ASCEND_OPP_PATH)": (
            "ASCEND_OPP_PATH is not set",
            "install the CANN toolkit and kernels for this NPU and run `source <CANN>/set_env.sh` in this shell",
        ),
        "msprof": ("on PATH", "install the CANN toolkit, which brings it, and put it on PATH"),
        "an NPU": (
            f"{tmp_path}/dev/davinci* does not exist",
            "install the Ascend driver, or pass the NPUs into the container (--device /dev/davinci0 ...)",
        ),
    }


def test_a_torch_that_does_not_fit_torch_npu_is_named(machine):
    odd = attrs.evolve(machine, installed={"torch": "2.13.0", "torch-npu": "2.9.0.post9"}.get)

    assert missing(odd) == {
        "torch 2.9.0 for torch_npu 2.9.0.post9": (
            f"in the packages of {sys.prefix}, found torch 2.13.0",
            "install torch 2.9.0 or the torch_npu release for torch 2.13.0",
        )
    }


def test_a_toolkit_variable_that_names_no_directory_is_named_with_its_value(machine):
    assert missing(with_environ(machine, ASCEND_OPP_PATH="/nonex"))["CANN (ASCEND_OPP_PATH)"][0] == (
        "ASCEND_OPP_PATH=/nonex is no directory"
    )


def test_what_torch_npu_says_is_passed_on(machine):
    broken = attrs.evolve(
        machine, ask=lambda: {"error": "ImportError: libhccl.so: cannot open shared object file"}
    )

    assert missing(broken)["a torch_npu that starts"] == (
        "torch_npu said: ImportError: libhccl.so: cannot open shared object file",
        "source CANN's set_env.sh and check that torch, torch_npu and CANN fit each other",
    )


def test_devices_the_runtime_does_not_see_are_missing(machine):
    assert missing(attrs.evolve(machine, ask=answer()))["an NPU the runtime sees"][0] == (
        "/dev/davinci0, /dev/davinci1 exist and the runtime reports no device"
    )


def test_a_visible_list_in_the_wrong_order_is_the_reason_for_no_device(machine):
    hidden = attrs.evolve(with_environ(machine, ASCEND_RT_VISIBLE_DEVICES="1,0"), ask=answer())

    assert missing(hidden) == {
        "usable visible devices": (
            "ASCEND_RT_VISIBLE_DEVICES lists 1,0, but ids must ascend: the runtime takes such a list for no device",
            "correct ASCEND_RT_VISIBLE_DEVICES or unset it",
        )
    }


def test_a_list_the_runtime_cuts_short_is_refused_rather_than_run_on_fewer(machine):
    cut = attrs.evolve(with_environ(machine, ASCEND_RT_VISIBLE_DEVICES="0,1"), ask=answer(A3))

    assert missing(cut)["usable visible devices"][0] == (
        "ASCEND_RT_VISIBLE_DEVICES asks for 2 devices and the runtime sees 1"
    )


@pytest.mark.parametrize(
    ("text", "physical", "seen", "requested", "finding", "say"),
    [
        (None, [0, 1], 2, None, "ok", ""),
        (None, [], 0, None, "no_device", "there is no NPU in this machine or container"),
        ("0, 1", [0, 1], 2, None, "ok", ""),
        ("3", [0, 1, 2, 3], 1, None, "ok", ""),
        (
            "",
            [0, 1],
            0,
            None,
            "empty",
            "ASCEND_RT_VISIBLE_DEVICES is set but empty, which hides every device: unset it or list ids",
        ),
        (
            "npu0",
            [0],
            0,
            None,
            "not_a_number",
            "ASCEND_RT_VISIBLE_DEVICES has 'npu0', expected a device number",
        ),
        (
            "0,,1",
            [0, 1],
            0,
            None,
            "not_a_number",
            "ASCEND_RT_VISIBLE_DEVICES has '', expected a device number",
        ),
        ("0,0", [0, 1], 1, None, "repeated", "ASCEND_RT_VISIBLE_DEVICES names device 0 more than once"),
        (
            "4,5",
            [0, 1],
            0,
            None,
            "out_of_range",
            "ASCEND_RT_VISIBLE_DEVICES names device 4, but only 0..1 exist in this machine or container",
        ),
        (
            "0,1,3,4",
            [0, 1, 3, 4],
            3,
            None,
            "dropped",
            "ASCEND_RT_VISIBLE_DEVICES asks for 4 devices and the runtime sees 3: id 4 is no index, "
            "the numbering has holes",
        ),
        (
            "4,5,6,7",
            range(8),
            4,
            5,
            "logical_vs_physical",
            "device 5 is logical device 1 under ASCEND_RT_VISIBLE_DEVICES=4,5,6,7",
        ),
        ("4,5,6,7", range(8), 4, 3, "ok", ""),
        (None, [0, 1], 2, 2, "out_of_range", "device 2 was asked for, but only 0..1 are visible"),
    ],
)
def test_visible_lists_are_classified(text, physical, seen, requested, finding, say):
    found = classify_visible_devices(text, physical, seen, requested)

    assert (found.finding, found.say) == (finding, say)


FAKE_NPU = """
from types import SimpleNamespace
__version__ = "2.9.0.post9"
version = SimpleNamespace(cann="8.5.0")
print("noise on stdout that no parser may see")
npu = SimpleNamespace(
    device_count=lambda: 1,
    get_device_properties=lambda index: SimpleNamespace(name="Ascend910B3", total_memory=1 << 36),
)
"""


def test_the_child_reports_devices_past_noise_on_stdout(tmp_path, monkeypatch):
    (tmp_path / "torch.py").write_text("__version__ = '2.9.0+cpu'\n")
    (tmp_path / "torch_npu.py").write_text(FAKE_NPU)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))

    assert _ask_child() == {
        "devices": [{"index": 0, "soc": "Ascend910B3", "memory_bytes": 1 << 36}],
        "versions": {"torch": "2.9.0+cpu", "torch_npu": "2.9.0.post9", "cann": "8.5.0"},
        "emulated": False,
    }


def test_the_child_passes_on_the_first_line_of_an_error(tmp_path, monkeypatch):
    (tmp_path / "torch.py").write_text("__version__ = '2.9.0'\n")
    (tmp_path / "torch_npu.py").write_text("raise Exception('ASCEND_OPP_PATH is not set\\nmore lines')\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))

    assert _ask_child()["error"] == "Exception: ASCEND_OPP_PATH is not set"


def test_a_child_that_dies_is_said_to_have_died(tmp_path, monkeypatch):
    (tmp_path / "torch.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))

    assert _ask_child() == {"error": "the probing process was ended by SIGSEGV"}


def test_a_child_that_hangs_is_killed():
    assert run_child([sys.executable, "-c", "import time; time.sleep(600)"], {}, seconds=0.3) == (
        "did not end within 0.3 s"
    )


def test_the_family_satisfies_the_protocol_and_never_launches_another(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", "")
    for variable in (
        "ASCEND_HOME_PATH",
        "ASCEND_TOOLKIT_HOME",
        "ASCEND_TOOLKIT_HOME_PATH",
        "ASCEND_INSTALL_PATH",
    ):
        monkeypatch.delenv(variable, raising=False)

    assert isinstance(ascend, DeviceFamily)
    assert {"INT4", "BF16", "INT8"} <= ascend.dtypes
    with pytest.raises(MissingEnvironmentError) as caught:
        ascend.launch(["worker"], 1, 0, tmp_path)

    assert str(caught.value) == "msprof is missing (on PATH and in the CANN toolkit)"


@pytest.fixture
def profiler(tmp_path, monkeypatch) -> Path:
    """An msprof on the path of this process."""
    path = tmp_path / "bin" / "msprof"
    path.parent.mkdir()
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    monkeypatch.setenv("PATH", str(path.parent))
    return path


@pytest.mark.parametrize(
    ("listed", "device", "shown"), [(None, 2, "2"), ("4,5,7", 2, "7"), ("3", 0, "3"), ("0, 1", 1, "1")]
)
def test_a_worker_under_msprof_sees_its_device_alone(profiler, tmp_path, monkeypatch, listed, device, shown):
    monkeypatch.delenv("ASCEND_RT_VISIBLE_DEVICES", raising=False)
    if listed is not None:
        monkeypatch.setenv("ASCEND_RT_VISIBLE_DEVICES", listed)

    launch = ascend.launch(["python", "-m", "worker"], 1, device, tmp_path)

    assert launch.profile_dir is not None
    assert launch.profile_dir.parent == tmp_path / "profiles"
    assert launch.argv[:2] == (str(profiler), f"--output={launch.profile_dir}")
    assert launch.argv[-3:] == ("python", "-m", "worker")
    assert launch.env["ASCEND_RT_VISIBLE_DEVICES"] == shown


def test_several_ranks_run_under_torchrun_inside_msprof(profiler, tmp_path):
    launch = ascend.launch(["python", "-m", "worker"], 2, 0, tmp_path)

    assert launch.argv[0] == str(profiler)
    assert "torch.distributed.run" in launch.argv
    assert "ASCEND_RT_VISIBLE_DEVICES" not in launch.env


def test_two_workers_never_share_a_profile(profiler, tmp_path):
    launches = [ascend.launch(["worker"], 1, 0, tmp_path) for _ in range(2)]

    assert launches[0].profile_dir != launches[1].profile_dir


def test_a_full_disk_is_told_before_anything_is_measured(profiler, tmp_path, monkeypatch):
    monkeypatch.setattr("shutil.disk_usage", lambda path: (1 << 40, 1 << 40, 3 << 29))

    with pytest.raises(DataError) as caught:
        ascend.launch(["worker"], 1, 0, tmp_path)

    assert str(caught.value) == f"{tmp_path}/profiles has 1.5 GiB left, a profiling session needs 2"
    assert caught.value.hint == "make room, or name another place with --run-dir"
