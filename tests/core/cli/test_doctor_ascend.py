"""`doctor` says what of the Ascend stack is here, which parts contradict each other, and what a device list hides."""

from __future__ import annotations

from pathlib import Path

import pytest

from perfcollect_core.diagnosis.ascend_stack import ascend_stack, ascend_visible_devices
from perfcollect_core.diagnosis.cuda_visible import cuda_visible_devices
from perfcollect_core.diagnosis.findings import Scope
from perfcollect_core.families.ascend_probe import AscendMachine, probe_ascend

VISIBLE = "ASCEND_RT_VISIBLE_DEVICES"
PAIR = {"torch": "2.9.0", "torch-npu": "2.9.0.post9"}


def machine(tmp_path: Path, devices=(), installed=None, ask=dict, **environ: str) -> AscendMachine:
    (tmp_path / "dev").mkdir(exist_ok=True)
    for number in devices:
        (tmp_path / "dev" / f"davinci{number}").touch()
    return AscendMachine(
        environ={"PATH": str(tmp_path / "bin"), **environ},
        root=tmp_path,
        installed=dict(installed or {}).get,
        ask=ask,
    )


def toolkit(directory: Path, version: str) -> Path:
    (directory / "bin").mkdir(parents=True)
    (directory / "version.info").write_text(f"Version={version}\n")
    (directory / "bin" / "msprof").write_text("#!/bin/sh\n")
    (directory / "bin" / "msprof").chmod(0o755)
    return directory


def found(findings, subject: str):
    return [(f.level, f.message, f.fix) for f in findings if f.subject == subject]


def test_a_machine_without_any_sign_of_ascend_gets_no_findings(tmp_path):
    here = machine(tmp_path)

    assert [*ascend_stack(Scope(), here), *ascend_visible_devices(Scope(), here)] == []


def test_cann_is_named_with_the_file_that_states_it_and_msprof_with_its_path(tmp_path):
    cann = toolkit(tmp_path / "cann", "8.5.0")

    findings = list(ascend_stack(Scope(), machine(tmp_path, ASCEND_HOME_PATH=str(cann))))

    assert found(findings, "CANN")[0] == ("ok", f"8.5.0 (stated by {cann / 'version.info'})", "")
    assert found(findings, "msprof") == [("ok", str(cann / "bin" / "msprof"), "")]


def test_two_toolkits_that_state_different_versions_are_a_warning(tmp_path):
    first, second = toolkit(tmp_path / "a", "8.5.0"), toolkit(tmp_path / "b", "8.3.RC1")
    here = machine(tmp_path, ASCEND_HOME_PATH=str(first), ASCEND_TOOLKIT_HOME=str(second))

    findings = list(ascend_stack(Scope(), here))

    assert found(findings, "CANN")[1] == (
        "warning",
        f"{first / 'version.info'} says 8.5.0 and counts, {second / 'version.info'} says 8.3.RC1",
        "source the set_env.sh of the CANN you mean, or give --cann-version 8.3.RC1",
    )


def test_two_variables_that_name_one_toolkit_contradict_nothing(tmp_path):
    cann = toolkit(tmp_path / "cann", "8.5.0")
    (tmp_path / "latest").symlink_to(cann)
    here = machine(tmp_path, ASCEND_HOME_PATH=str(cann), ASCEND_TOOLKIT_HOME=str(tmp_path / "latest"))

    levels = [level for level, _, _ in found(ascend_stack(Scope(), here), "CANN")]

    assert levels == ["ok"]


def test_a_custom_operator_path_that_holds_none_is_a_warning(tmp_path):
    here = machine(tmp_path, ASCEND_CUSTOM_OPP_PATH="/opt/vendors/gone")

    assert found(ascend_stack(Scope("ascend"), here), "ASCEND_CUSTOM_OPP_PATH") == [
        (
            "warning",
            "/opt/vendors/gone holds no op_api/lib/libcust_opapi.so",
            "name the vendor directory of an installed custom operator package",
        )
    ]


def test_custom_operators_and_atb_are_found_where_they_are(tmp_path):
    vendor, atb = tmp_path / "vendors" / "custom", tmp_path / "nnal" / "lib"
    (vendor / "op_api" / "lib").mkdir(parents=True)
    (vendor / "op_api" / "lib" / "libcust_opapi.so").touch()
    atb.mkdir(parents=True)
    (atb / "libatb.so").touch()
    here = machine(tmp_path, ASCEND_CUSTOM_OPP_PATH=str(vendor), LD_LIBRARY_PATH=str(atb))

    findings = list(ascend_stack(Scope(), here))

    assert found(findings, "ASCEND_CUSTOM_OPP_PATH") == [("ok", str(vendor), "")]
    assert found(findings, "NNAL") == [("ok", f"{atb}/libatb.so", "")]


@pytest.mark.parametrize(
    ("installed", "level", "message"),
    [
        ({"triton-ascend": "3.2.0"}, "ok", "3.2.0"),
        ({}, "info", "is not installed"),
        ({"triton": "3.5.0"}, "info", "is not installed, only triton 3.5.0, which knows no NPU"),
        (
            {"triton": "3.5.0", "triton-ascend": "3.2.0"},
            "warning",
            "triton 3.5.0 and triton-ascend 3.2.0 share one folder, the one installed last wins",
        ),
    ],
)
def test_triton_is_judged(tmp_path, installed, level, message):
    here = machine(tmp_path, installed={**PAIR, **installed})

    assert found(ascend_stack(Scope(), here), "triton-ascend")[0][:2] == (level, message)


@pytest.mark.parametrize(
    ("text", "devices", "say"),
    [
        ("1,0", (0, 1), "lists 1,0, but ids must ascend: the runtime takes such a list for no device"),
        ("4,5", (0, 1), "names device 4, but only 0..1 exist in this machine or container"),
        ("0,0", (0, 1), "names device 0 more than once"),
        ("npu0", (0, 1), "has 'npu0', expected a device number"),
        ("", (0, 1), "is set but empty, which hides every device: unset it or list ids"),
    ],
)
def test_a_list_that_hides_devices_is_an_error_for_ascend(tmp_path, text, devices, say):
    here = machine(tmp_path, devices, **{VISIBLE: text})

    assert found(ascend_visible_devices(Scope("ascend"), here), VISIBLE) == [
        ("error", f"{VISIBLE} {say}", f"correct {VISIBLE} or unset it")
    ]
    assert [f.level for f in ascend_visible_devices(Scope(), here)] == ["warning"]


@pytest.mark.parametrize(("text", "said"), [("0, 1", "devices 0, 1"), (None, "is not set: devices 0, 1")])
def test_a_list_that_says_what_it_means_is_fine(tmp_path, text, said):
    here = machine(tmp_path, (0, 1), **({VISIBLE: text} if text is not None else {}))

    assert found(ascend_visible_devices(Scope("ascend"), here), VISIBLE) == [("ok", said, "")]


def test_a_list_on_a_machine_without_an_npu_is_said(tmp_path):
    here = machine(tmp_path, **{VISIBLE: "0"})

    assert found(ascend_visible_devices(Scope(), here), VISIBLE)[0][:2] == (
        "warning",
        "there is no NPU in this machine or container",
    )


def test_ids_the_runtime_drops_are_something_the_family_lacks(tmp_path):
    cann = toolkit(tmp_path / "cann", "8.5.0")
    seen = {"devices": [{"index": i, "soc": "Ascend910B3", "memory_bytes": 1 << 36} for i in range(3)]}
    here = machine(
        tmp_path,
        (0, 1, 3, 4),
        PAIR,
        lambda: seen,
        ASCEND_HOME_PATH=str(cann),
        ASCEND_OPP_PATH=str(cann),
        **{VISIBLE: "0,1,3,4"},
    )

    (lack,) = probe_ascend(here).missing

    assert lack.looked == (
        f"{VISIBLE} asks for 4 devices and the runtime sees 3: id 4 is no index, the numbering has holes"
    )


@pytest.mark.parametrize(
    ("text", "say"),
    [
        ("", "CUDA_VISIBLE_DEVICES is set but empty, which hides every device"),
        ("0,-1,1", "CUDA_VISIBLE_DEVICES has '-1', which ends the list: what stays visible is 0"),
        ("cuda:0", "CUDA_VISIBLE_DEVICES has 'cuda:0', which ends the list: what stays visible is no device"),
        ("1,1", "CUDA_VISIBLE_DEVICES names a device twice, which hides every device"),
    ],
)
def test_a_cuda_list_that_hides_devices_is_found(text, say):
    (finding,) = cuda_visible_devices(Scope("cuda"), {"CUDA_VISIBLE_DEVICES": text})

    assert (finding.level, finding.message) == ("error", say)


@pytest.mark.parametrize("text", ["0", "1,0", "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6", "MIG-GPU-89/1/0"])
def test_a_cuda_list_of_devices_is_fine(text):
    (finding,) = cuda_visible_devices(Scope("cuda"), {"CUDA_VISIBLE_DEVICES": text})

    assert (finding.level, finding.message) == ("ok", text)


def test_every_finding_that_is_not_fine_says_what_to_do(tmp_path):
    here = machine(tmp_path, (), PAIR, ASCEND_CUSTOM_OPP_PATH="/gone", **{VISIBLE: "1,0"})

    findings = [*ascend_stack(Scope("ascend"), here), *ascend_visible_devices(Scope("ascend"), here)]

    assert [f.subject for f in findings if f.level != "ok" and not f.fix] == []
