"""A device family without a device whose durations come out of a profile, and an operator that troubles it.

The worker notes every launch in a file that the stand-in profiler names; the profiler turns it into an op_summary.
The column ``Trouble`` of a row says what its case does; ``Take Us`` is the duration of its kernel.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import attrs

from perfcollect_core.cases import Case, Row, Skip
from perfcollect_core.defaults import default_case
from perfcollect_core.environment import Device, DeviceInfo, Launch, Probe, TaskRecord
from perfcollect_core.measurements import Inputs, Kernel, Plan, Samples
from perfcollect_core.profiles.op_summary import read_session
from perfcollect_core.specs import OperatorSpec, Slot
from perfcollect_core.testing.stub_family import StubFamily

LOG = "PROFILED_LOG"
SPOILT = "PROFILED_STATE"
PROFILER = Path(__file__).with_name("stand_in_profiler.py")


@attrs.define
class ProfiledFamily(StubFamily):
    """Measures nothing itself."""

    name: str = "ascend"
    cores: tuple[str, ...] = ("AI_CORE", "AI_VECTOR_CORE")
    deferred: bool = True
    exit_seconds: float = 20.0
    devices: int = 1
    emulated: str = "yes"

    def probe(self) -> Probe:
        details = {"emulated": self.emulated}
        count = int(os.environ.get("PROFILED_DEVICES", "1"))
        return Probe(
            tuple(DeviceInfo(i, "ATLAS_800_A3_752T_128G_DIE", 1 << 34, details) for i in range(count)),
            versions={"cann": "8.5.0"},
        )

    def default_plan(self) -> Plan:
        return Plan(repeat=None, warmup=2, max_seconds=0.5)

    def launch(self, argv: Sequence[str], ranks: int, device: int, run_dir: Path) -> Launch:
        (run_dir / "profiles").mkdir(exist_ok=True)
        directory = Path(tempfile.mkdtemp(prefix=f"device_{device}_", dir=run_dir / "profiles"))
        return Launch((sys.executable, str(PROFILER), str(directory), *argv), {}, directory)

    def device(self, index: int) -> Device:
        return Device(family="ascend", index=index, torch_device=f"npu:{index}")

    def environment(self, device: Device) -> Mapping[str, str]:
        return {"brackets": "host epoch"}

    def read_profile(self, profile_dir: Path) -> Sequence[TaskRecord]:
        return read_session(profile_dir).tasks


def note_task(kernel: str, case: Case, at_ns: int, take_us: float, dtype: str = "") -> None:
    slot = case.signature.inputs[0]
    line = {
        "kernel": kernel,
        "start_ns": at_ns,
        "us": take_us,
        "shape": ",".join(map(str, slot.shape or ())),
        "dtype": dtype or slot.dtype_text,
    }
    with Path(os.environ[LOG]).open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")


class ProfiledOperator:
    """The hooks of operator ``Profiled``."""

    def perfcollect_operator_spec(self, operator: str) -> OperatorSpec:
        return OperatorSpec(
            name=operator,
            families=("ascend",),
            inputs=(Slot("x"),),
            outputs=(Slot("y"),),
            aliases=("ProfiledV2",),
            kernels=(operator, "Cast"),
            key_columns=("Trouble",),
        )

    def perfcollect_make_case(self, spec: OperatorSpec, row: Row) -> Case | Skip:
        params = {"trouble": row.get("Trouble"), "take_us": float(row.get("Take Us") or 10.0)}
        return default_case(spec, row, params=params)

    def perfcollect_make_inputs(self, case: Case, device: Device) -> Inputs:
        return Inputs({})

    def perfcollect_bind_kernel(self, case: Case, inputs: Inputs, device: Device) -> Kernel:
        return Kernel(lambda: None)

    def perfcollect_measure(self, case: Case, plan: Plan) -> Samples:
        trouble = str(case.params["trouble"])
        take = float(str(case.params["take_us"]))
        _misbehave(trouble, case)
        launches = plan.repeat or 10
        for _ in range(2):
            note_task("Profiled", case, time.time_ns(), 99.0)
        time.sleep(0.0012)
        start = time.time_ns()
        _launch(trouble, case, launches, take)
        end = time.time_ns()
        time.sleep(0.0012)
        return Samples(stop="repeat", warmup_us=(take, take), window_ns=(start, end), launches=launches)


def _launch(trouble: str, case: Case, launches: int, take: float) -> None:
    lost = {"lose_always": 1, "lose_once": 1 if _first_time(case) else 0}.get(trouble, 0)
    for index in range(launches):
        kernel = "ProfiledV2" if trouble == "alias" else "Profiled"
        if index >= lost:
            wide = 0.2 * take * (index % 3) if trouble == "wide" else 0.0
            note_task(kernel, case, time.time_ns(), take + wide)
        note_task("Cast", case, time.time_ns(), 1.0)
        if trouble == "twin":
            note_task(kernel, case, time.time_ns(), 55.0, dtype="FLOAT")
        if trouble == "extra" and index == 0:
            note_task(kernel, case, time.time_ns(), 55.0)


def _misbehave(trouble: str, case: Case) -> None:
    if trouble == "crash":
        os.kill(os.getpid(), signal.SIGSEGV)
    if trouble == "hang":
        time.sleep(3600)
    if trouble == "raise":
        raise RuntimeError("NPU function error: call aclnnProfiled failed, error code is 507015")
    if trouble == "raise_once" and _first_time(case):
        raise RuntimeError("NPU function error: call aclnnProfiled failed, error code is 507015")


def _first_time(case: Case) -> bool:
    mark = Path(os.environ[SPOILT], f"case_{case.seed}")
    try:
        mark.touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


family = ProfiledFamily()
operator = ProfiledOperator()
