"""What torch_npu raises is told apart: a refused call, a missing function, a lost device."""

from __future__ import annotations

import pytest

from perfcollect_core.runner.failures import classify

CALL = "operator():build/CMakeFiles/x.cpp:42 NPU function error: call aclnnMm failed, error code is {}"
QUEUE = (
    "The Inner error is reported as above. The process exits for this inner error, and the current working operator "
    "name is aclnnMm."
)


@pytest.mark.parametrize(
    ("text", "failure"),
    [
        (CALL.format(161002), "invalid_case"),
        (CALL.format(561002), "invalid_case"),
        (CALL.format(507015), "device_lost"),
        (QUEUE, "device_lost"),
        ("aclnnX or aclnnXGetWorkspaceSize not in libopapi.so, or libopapi.so not found.", "environment"),
        ("NPU out of memory. Tried to allocate 66.00 MiB", "out_of_memory"),
    ],
)
def test_errors_of_torch_npu_are_told_apart(text, failure):
    assert classify(RuntimeError(text), on_host=False).failure == failure


@pytest.mark.parametrize("text", [CALL.format(161002), QUEUE])
def test_any_runtime_error_of_torch_npu_ends_the_worker(text):
    assert classify(RuntimeError(text), on_host=False).poisoned
