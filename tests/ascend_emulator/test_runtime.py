"""The C core answers as CANN's runtime does: devices, memory, time, faults; seen without torch."""

from __future__ import annotations

import ctypes
import json
import re
import subprocess
import time
from pathlib import Path

import pytest
from plugin import Emulator

pytestmark = pytest.mark.ascend_emulator

PRELUDE = """
import ctypes, sys, time
acl = ctypes.CDLL("libascendcl.so")
acl.aclrtGetSocName.restype = acl.aclGetRecentErrMsg.restype = ctypes.c_char_p

def copy(count=1):
    a, b = ctypes.create_string_buffer(64), ctypes.create_string_buffer(64)
    return [acl.aclrtMemcpy(b, ctypes.c_size_t(64), a, ctypes.c_size_t(64), 1) for _ in range(count)][-1]

def allocate(megabytes):
    return acl.aclrtMalloc(ctypes.byref(ctypes.c_void_p()), ctypes.c_size_t(megabytes << 20), 0)

def devices():
    count = ctypes.c_uint32()
    acl.aclrtGetDeviceCount(ctypes.byref(count))
    return count.value

acl.aclrtSetDevice(0)
"""


def _acl(
    emulator: Emulator, code: str, *, timeout_s: float = 60, **more: str
) -> subprocess.CompletedProcess[str]:
    return emulator.run("-c", PRELUDE + code, timeout_s=timeout_s, **more)


def test_the_mark_by_which_it_is_recognised_is_exported(ascend_emulator: Emulator) -> None:
    done = _acl(ascend_emulator, 'print(ctypes.c_int.in_dll(acl, "perfcollect_emulated_cann").value)')

    assert done.stdout == "1\n"


def test_visible_devices_are_numbered_anew_and_logged_by_their_own_number(ascend_emulator: Emulator) -> None:
    ascend_emulator.set(devices=4)

    done = _acl(
        ascend_emulator,
        "print(devices(), acl.aclrtSetDevice(1), copy(), acl.aclrtSetDevice(2))",
        ASCEND_RT_VISIBLE_DEVICES="1,3",
    )

    assert done.stdout == "2 0 0 107001\n"
    assert [(launch["logical_device"], launch["device"]) for launch in ascend_emulator.launches()] == [(1, 3)]


def test_the_soc_is_the_one_asked_for(ascend_emulator: Emulator) -> None:
    ascend_emulator.set(soc="Ascend910B3")

    assert _acl(ascend_emulator, "print(acl.aclrtGetSocName().decode())").stdout == "Ascend910B3\n"


def test_memory_ends_where_the_device_does(ascend_emulator: Emulator) -> None:
    ascend_emulator.set(hbm_mb=64)

    done = _acl(ascend_emulator, "print(allocate(40), allocate(40), allocate(20))")

    assert done.stdout == "0 207001 0\n"


def test_forty_gigabytes_are_allocated_without_being_used(ascend_emulator: Emulator) -> None:
    done = _acl(
        ascend_emulator,
        "import resource\nprint(allocate(40960), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < 200_000)",
    )

    assert done.stdout == "0 True\n"


def test_an_allocation_fails_when_told_to(ascend_emulator: Emulator) -> None:
    ascend_emulator.set(faults=["aclrtMalloc@2:ret=207001"])

    assert _acl(ascend_emulator, "print(allocate(1), allocate(1), allocate(1))").stdout == "0 207001 0\n"


def test_a_lost_device_answers_with_its_error_for_ever(ascend_emulator: Emulator) -> None:
    ascend_emulator.set(faults=["memcpy@2:sync=507015"])

    done = _acl(
        ascend_emulator,
        "print(copy(), acl.aclrtSynchronizeDevice(), copy(), acl.aclrtSynchronizeDevice(), copy(), allocate(1))\n"
        "acl.aclrtSynchronizeDevice(); print(acl.aclGetRecentErrMsg().decode())",
    )

    codes, *message = done.stdout.splitlines()
    assert codes == "0 0 0 507015 507015 507015"
    assert message[0] == "EZ9999: Inner Error!"
    assert re.fullmatch(
        r"EZ9999: \[PID: \d+\] [\d:-]+ aclrtSynchronizeDevice: error code is 507015. The aicore execution is abnormal.",
        message[1],
    )


@pytest.mark.parametrize(("fault", "status"), [("exit=3", 3), ("sig=11", -11), ("sig=9", -9)])
def test_a_process_ends_in_the_midst_of_a_launch(ascend_emulator: Emulator, fault: str, status: int) -> None:
    ascend_emulator.set(faults=[f"memcpy@3:{fault}"])

    done = _acl(ascend_emulator, "copy(5)")

    assert done.returncode == status
    assert len(ascend_emulator.launches("memcpy")) == 2


def test_a_dropped_launch_reports_success_and_is_not_there(ascend_emulator: Emulator) -> None:
    ascend_emulator.set(faults=["memcpy@2:drop=1"])

    done = _acl(ascend_emulator, "print(copy(3))")

    assert done.stdout == "0\n"
    assert len(ascend_emulator.launches("memcpy")) == 2


def test_a_hang_holds_the_synchronisation_and_ends_by_a_kill(ascend_emulator: Emulator) -> None:
    ascend_emulator.set(faults=["memcpy:hang=3600"])

    with pytest.raises(subprocess.TimeoutExpired):
        _acl(ascend_emulator, "copy(); acl.aclrtSynchronizeDevice()", timeout_s=2)

    assert len(ascend_emulator.launches("memcpy")) == 1


def test_a_bounded_synchronisation_returns_the_time_out(ascend_emulator: Emulator) -> None:
    ascend_emulator.set(faults=["memcpy:hang=3600"])

    done = _acl(ascend_emulator, "copy(); print(acl.aclrtSynchronizeDeviceWithTimeout(100))", timeout_s=30)

    assert done.stdout == "507046\n"


def test_a_fault_of_one_device_spares_the_others(ascend_emulator: Emulator) -> None:
    ascend_emulator.set(devices=2, faults=["1!memcpy:launch=507015"])

    done = _acl(ascend_emulator, "print(copy()); acl.aclrtSetDevice(1); print(copy())")

    assert done.stdout.split() == ["0", "507015"]


def test_counters_of_faults_outlive_the_process_when_asked(ascend_emulator: Emulator) -> None:
    ascend_emulator.set(faults=["memcpy@2:launch=507015"], faults_outlive_processes=True)

    codes = [_acl(ascend_emulator, "print(copy())").stdout for _ in range(3)]

    assert codes == ["0\n", "507015\n", "0\n"]


def test_a_rule_that_cannot_be_read_is_named(ascend_emulator: Emulator) -> None:
    ascend_emulator.set(faults=["memcpy"])

    assert "CANN_EMU_FAULTS: cannot read the rule 'memcpy'" in _acl(ascend_emulator, "copy()").stderr


def test_synchronising_waits_for_the_device(ascend_emulator: Emulator) -> None:
    ascend_emulator.set(durations={"memcpy": 200_000.0})

    done = _acl(
        ascend_emulator,
        "start = time.time(); copy(2); acl.aclrtSynchronizeDevice(); print(time.time() - start)",
    )

    first, second = ascend_emulator.launches("memcpy")
    assert 0.4 <= float(done.stdout) < 2
    assert second["start_ns"] == first["start_ns"] + 200_000_000
    assert first["duration_ns"] == 200_000_000


def test_the_virtual_clock_does_not_wait(ascend_emulator: Emulator) -> None:
    ascend_emulator.set(durations={"memcpy": 60e6}, virtual_clock=True)
    start = time.monotonic()

    done = _acl(ascend_emulator, "print(copy(), acl.aclrtSynchronizeDevice())")

    assert done.stdout == "0 0\n"
    assert time.monotonic() - start < 30


def test_jitter_is_the_same_in_every_process(ascend_emulator: Emulator) -> None:
    ascend_emulator.set(jitter=0.05)
    runs = []

    for _ in range(2):
        ascend_emulator.forget_launches()
        _acl(ascend_emulator, "copy(8)")
        runs.append([launch["duration_ns"] for launch in ascend_emulator.launches()])

    assert runs[0] == runs[1]
    assert len(set(runs[0])) > 1
    assert max(runs[0]) <= 1.06 * min(runs[0]) * 1.06


def test_every_process_writes_a_log_of_its_own(ascend_emulator: Emulator) -> None:
    _acl(ascend_emulator, "import os\ncopy()\nif not os.fork():\n    copy(); os._exit(0)\nos.wait()")

    logs = sorted(ascend_emulator.log_directory.iterdir())
    assert [log.suffix for log in logs] == [".jsonl", ".jsonl"]
    assert {json.loads(log.read_text().splitlines()[0])["pid"] for log in logs} == {
        int(log.stem) for log in logs
    }


def test_libraries_of_cann_have_the_names_that_torch_npu_loads(ascend_emulator: Emulator) -> None:
    home = ascend_emulator.home
    here = {path.name for path in (home / "lib64").iterdir()}

    assert here >= {"libascendcl.so", "libopapi.so", "libhccl.so", "libge_runner.so", "libmspti.so"}
    # ATB belongs to another package, which may be missing.
    assert "libatb.so" not in here
    assert (home / "nnal/atb/cxx_abi_1/lib/libatb.so").is_file()
    assert ctypes.sizeof(ctypes.c_void_p) == 8


def test_the_environment_file_and_the_command_agree(ascend_env: dict[str, str], tmp_path: Path) -> None:
    from build import environment

    home = Path(ascend_env["ASCEND_HOME_PATH"])

    assert environment(home, base={})["ASCEND_OPP_PATH"] == str(home / "opp")
    assert environment(home, base={"PATH": "/usr/bin"})["PATH"] == f"{home}/bin:/usr/bin"
    assert environment(home, base={"PATH": f"{home}/bin:/usr/bin"})["PATH"] == f"{home}/bin:/usr/bin"
