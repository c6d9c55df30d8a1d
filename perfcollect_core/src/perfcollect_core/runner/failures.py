"""Sort what went wrong with a case into the classes a run reports (worker side, no torch)."""

from __future__ import annotations

import re
import signal

import attrs

from perfcollect_core.cases import Failure
from perfcollect_core.errors import (
    CaseError,
    DeviceUnavailableError,
    MissingEnvironmentError,
    PluginError,
)

__all__ = ["ClassifiedFailure", "classify", "describe_exit"]

#: What drivers say when the context, not the call, is at fault.
_DEVICE_TEXT = re.compile(
    r"\b507\d{3}\b|\b107\d{3}\b|\bE[A-Z]\d{4}\b|CUDA error|device-side assert|illegal memory access|"
    r"context is (lost|destroyed)|device (is )?lost|aicore|AI Core|vector core|NPU function error",
    re.IGNORECASE,
)
#: CANN refused the arguments of a call (161xxx) or found no way to run it (561xxx) before anything was launched.
_REFUSED_TEXT = re.compile(r"error code is (161|561)\d{3}\b")
#: This CANN does not have the function.
_ABSENT_TEXT = re.compile(
    r"not in libopapi|libopapi\.so not found|does not support opType|please upgrade CANN", re.I
)
_MEMORY_TEXT = re.compile(r"out of memory|can't allocate memory|not enough memory", re.IGNORECASE)
#: What torch says of a call it has no kernel for on this device: the row is fine, it cannot run here.
_UNSUPPORTED_TEXT = re.compile(r"not implemented for|Could not run '")
_MAX_REASON = 500


@attrs.frozen
class ClassifiedFailure:
    """A failure, its reason in one sentence, and whether the process that had it may serve another case."""

    failure: Failure
    reason: str
    poisoned: bool


def classify(error: BaseException, *, on_host: bool) -> ClassifiedFailure:
    """Classify what a case raised.

    Args:
        error: The exception.
        on_host: The device is the host's processor, where a plain ``RuntimeError`` is torch refusing arguments.
            Elsewhere it may come from the device, and later launches may be dropped in silence.
    """
    failure = _failure_of(error, on_host)
    if isinstance(error, RuntimeError) and not on_host:
        poisoned = True
    else:
        poisoned = failure != "invalid_case" and not _is_unsupported(error)
    return ClassifiedFailure(failure, _one_sentence(error), poisoned)


def _is_unsupported(error: BaseException) -> bool:
    if isinstance(error, NotImplementedError):
        return True
    return type(error) is RuntimeError and _UNSUPPORTED_TEXT.search(str(error)) is not None


def _failure_of(error: BaseException, on_host: bool) -> Failure:
    text = str(error)
    match error:
        case CaseError():
            return "invalid_case"
        case MissingEnvironmentError() | PluginError() | ImportError() | AttributeError():
            return "environment"
        case DeviceUnavailableError():
            return "device_lost"
        case MemoryError():
            return "out_of_memory"
    if any("OutOfMemory" in kind.__name__ for kind in type(error).__mro__):
        return "out_of_memory"
    if _is_unsupported(error):
        return "environment"
    match error:
        case RuntimeError() if _MEMORY_TEXT.search(text):
            return "out_of_memory"
        case RuntimeError() if not on_host and _ABSENT_TEXT.search(text):
            return "environment"
        case RuntimeError() if not on_host and _REFUSED_TEXT.search(text):
            return "invalid_case"
        case RuntimeError() if type(error) is not RuntimeError or _DEVICE_TEXT.search(text):
            # torch raises subclasses (AcceleratorError) for what the device reports.
            return "device_lost"
        case RuntimeError() if not on_host:
            return "device_lost"
        case OSError():
            return "environment"
        case Exception():
            return "invalid_case"
    return "worker_crashed"


def _one_sentence(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    text = lines[0] if lines else ""
    if not isinstance(error, CaseError):
        text = f"{type(error).__name__}: {text}" if text else type(error).__name__
    return text if len(text) <= _MAX_REASON else text[: _MAX_REASON - 3] + "..."


def describe_exit(code: int | None) -> str:
    """Say how a process ended from its exit status (negative: the signal that killed it)."""
    if code is None:
        return "closed its connection and was ended"
    if code >= 0:
        return f"exited with status {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    hint = ", as the kernel's out-of-memory killer does" if name == "SIGKILL" else ""
    return f"was killed by {name}{hint}"
