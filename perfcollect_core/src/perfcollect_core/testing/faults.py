"""An operator that does on request what real kernels do at bad moments: for tests of runners and of plugins.

Register it under any operator name (``Fault = "perfcollect_core.testing.faults:operator"``); the column ``Fault`` of a
row says what its case does:

=============  =====================================================================================================
``ok``         completes; also a blank cell
``raise``      raises ``ValueError`` while the kernel is bound
``memory``     raises ``MemoryError``
``segfault``   dies by SIGSEGV
``abort``      dies by SIGABRT
``exit``       leaves with status 0 and says nothing
``hang``       never returns
``stubborn``   never returns, ignores SIGTERM, and has a child in a session of its own that does too
``wrong``      computes something else than its reference
``slow``       takes 0.2 s to build its inputs
``lost``       returns samples without a record
``nan``        returns a sample that is no number
``poison``     raises as a lost device does, and so does every later case of the process
``sticky``     the same
``spoil``      completes, but every later case of the process fails
``noisy``      writes 2 MiB to stderr and completes
``flood``      writes a GiB to stderr and completes
=============  =====================================================================================================

``Sleep Ms`` makes the kernel sleep; ``Ranks`` asks for several processes; ``Fault Rank`` lets only that rank misbehave.
No torch anywhere: the values are plain Python objects. Where ``PERFCOLLECT_FAULT_TRACE`` names a file, every case that
is begun leaves a line there, so that a test can tell what was measured twice.
"""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
import time

import attrs

from perfcollect_core.cases import Case, Cost, Row, Skip
from perfcollect_core.defaults import default_case
from perfcollect_core.environment import Device, Need
from perfcollect_core.measurements import Inputs, Kernel, Plan, Reference, Samples
from perfcollect_core.specs import OperatorSpec

__all__ = ["FAULTS", "TRACE_VARIABLE", "DeviceLost", "FaultOperator", "operator"]

FAULTS = (
    "ok",
    "raise",
    "memory",
    "segfault",
    "abort",
    "exit",
    "hang",
    "stubborn",
    "wrong",
    "slow",
    "lost",
    "nan",
    "poison",
    "sticky",
    "spoil",
    "noisy",
    "flood",
)

#: Names the file that gets a line for every case begun.
TRACE_VARIABLE = "PERFCOLLECT_FAULT_TRACE"

_IGNORE_SIGTERM = """
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("deaf", flush=True)
while True:
    time.sleep(3600)
"""

#: Whether a case of this process has spoilt it for the others.
_spoilt = False


class DeviceLost(RuntimeError):
    """Stands for what a driver reports when the context, not the call, is at fault."""


@attrs.frozen
class FaultOperator:
    """The hooks; ``needs`` lets a test declare what no machine has."""

    families: tuple[str, ...] = ("noop", "sleeping", "stub", "cpu", "cuda", "ascend")
    needs: tuple[Need, ...] = ()

    def perfcollect_operator_spec(self, operator: str) -> OperatorSpec:
        return OperatorSpec(
            name=operator,
            summary="misbehaves on request",
            families=self.families,
            needs=self.needs,
            ranks=None,
        )

    def perfcollect_make_case(self, spec: OperatorSpec, row: Row) -> Case | Skip:
        fault = row.get("Fault") or "ok"
        if fault not in FAULTS:
            return Skip.invalid(f"column 'Fault' has {fault!r}, expected one of {', '.join(FAULTS)}")
        params = {
            "fault": fault,
            "sleep_ms": float(row.get("Sleep Ms") or 0),
            "fault_rank": int(row.get("Fault Rank") or -1),
        }
        made = default_case(spec, row, params=params)
        if isinstance(made, Skip):
            return made
        return attrs.evolve(made, ranks=int(row.get("Ranks") or 1))

    def perfcollect_estimate_cost(self, case: Case) -> Cost:
        sleep_ms = case.params["sleep_ms"]
        assert isinstance(sleep_ms, float)
        return Cost(sleep_ms * 1e7, 0.0)

    def perfcollect_make_inputs(self, case: Case, device: Device) -> Inputs:
        if _fault(case, device) == "slow":
            time.sleep(0.2)
        return Inputs({})

    def perfcollect_bind_kernel(self, case: Case, inputs: Inputs, device: Device) -> Kernel:
        fault = _fault(case, device)
        if fault == "raise":
            raise ValueError("fault on request")
        sleep_ms = case.params["sleep_ms"]
        assert isinstance(sleep_ms, float)

        def call() -> object:
            _misbehave(fault)
            if sleep_ms:
                time.sleep(sleep_ms / 1000)
            return case.seed + (fault == "wrong")

        return Kernel(call)

    def perfcollect_reference(self, case: Case, inputs: Inputs, device: Device) -> Reference:
        def compare(actual: tuple[object, ...]) -> str | None:
            return None if actual == (case.seed,) else f"output 0 is {actual[0]}, expected {case.seed}"

        return Reference((), (), compare)

    def perfcollect_measure(self, case: Case, kernel: Kernel, plan: Plan, device: Device) -> Samples | None:
        trace = os.environ.get(TRACE_VARIABLE)
        if trace and case.row is not None:
            with open(trace, "a", encoding="utf-8") as file:  # noqa: PTH123  # one short append, atomic on POSIX
                file.write(f"{case.row.key[1]}\n")
        fault = _fault(case, device)
        if fault == "lost":
            return Samples((), launches=plan.repeat or 1)
        if fault == "nan":
            return Samples((math.nan,))
        return None


def _fault(case: Case, device: Device) -> str:
    only = case.params["fault_rank"]
    fault = str(case.params["fault"])
    return fault if only in (-1, device.rank) else "ok"


def _misbehave(fault: str) -> None:
    global _spoilt
    if _spoilt:
        raise DeviceLost("fake error 507015: device context is lost")
    match fault:
        case "memory":
            raise MemoryError("fault on request")
        case "segfault":
            os.kill(os.getpid(), signal.SIGSEGV)
        case "abort":
            os.kill(os.getpid(), signal.SIGABRT)
        case "exit":
            os._exit(0)
        case "hang":
            time.sleep(3600)
        case "stubborn":
            _never_end()
        case "poison" | "sticky":
            _spoilt = True
            raise DeviceLost("fake error 507015: core exception")
        case "spoil":
            _spoilt = True
        case "noisy":
            _shout(2 << 20)
        case "flood":
            _shout(1 << 30)


def _never_end() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    child = subprocess.Popen(
        [sys.executable, "-c", _IGNORE_SIGTERM], stdout=subprocess.PIPE, start_new_session=True
    )
    assert child.stdout is not None
    child.stdout.readline()
    while True:
        time.sleep(3600)


def _shout(size: int) -> None:
    line = b"x" * 65535 + b"\n"
    for _ in range(size // len(line)):
        os.write(2, line)


#: The operator as an entry point names it.
operator = FaultOperator()
