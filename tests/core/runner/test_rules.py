"""Selectors, failure classes, exit codes and needs: the small rules of a run."""

from __future__ import annotations

import os

import pytest

from perfcollect_core.cases import Outcome, Row, RowRef
from perfcollect_core.environment import Need
from perfcollect_core.errors import CaseError, MissingEnvironmentError, UsageError
from perfcollect_core.runner.failures import classify, describe_exit
from perfcollect_core.runner.needs import missing_needs
from perfcollect_core.runner.outcome import exit_code
from perfcollect_core.runner.run_dir import writable
from perfcollect_core.runner.selection import parse_rows, select_rows


def row(number: int, average: str = "", profiling: str = "") -> Row:
    cells = {"Average Duration(us)": average, "Profiling Average Duration(us)": profiling}
    return Row(RowRef("Add.csv", (str(number),)), cells)


@pytest.mark.parametrize(
    ("selector", "chosen"),
    [("1-3", [1, 2, 3]), ("2,5", [2, 5]), ("4-", [4, 5, 6]), (" 1 , 3-4 ", [1, 3, 4]), ("6", [6])],
)
def test_a_row_selector_counts_from_one(selector, chosen):
    test = parse_rows(selector)

    assert [number for number in range(1, 7) if test(number)] == chosen


@pytest.mark.parametrize("selector", ["0", "3-1", "a", "1-2-3", "-4"])
def test_a_bad_row_selector_names_the_part(selector):
    with pytest.raises(UsageError) as caught:
        parse_rows(selector)

    assert (
        str(caught.value)
        == f"row selector {selector!r}: expected row numbers from 1, such as 1-50,60 or 100-"
    )


@pytest.mark.parametrize(
    ("average", "profiling", "taken"),
    [("", "", True), ("0", "0.0", True), ("0", "7.5", False), ("18.2", "", False), ("nan", "", True)],
)
def test_missing_only_takes_rows_without_measured_and_profiled_duration(average, profiling, taken):
    selected, not_needed = select_rows([row(1, average, profiling)], numbers=None, missing_only=True)

    assert bool(selected) is taken
    assert not_needed == (not taken)


def test_rows_an_earlier_part_measured_stay_selected():
    done = row(1, "18.2")

    assert select_rows([done], numbers=None, missing_only=True, taken_before={done.ref})[0] == [done]


class OutOfMemoryError(RuntimeError):
    """As torch names it."""


class AcceleratorError(RuntimeError):
    """As torch names it."""


@pytest.mark.parametrize(
    ("error", "failure"),
    [
        (CaseError("two inputs disagree"), "invalid_case"),
        (ValueError("bad shape"), "invalid_case"),
        (TypeError("an argument too many"), "invalid_case"),
        (RuntimeError("mat1 and mat2 shapes cannot be multiplied"), "invalid_case"),
        (MemoryError(), "out_of_memory"),
        (OutOfMemoryError("tried to allocate 20 GiB"), "out_of_memory"),
        (RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory"), "out_of_memory"),
        (AttributeError("module 'torch_npu' has no attribute 'npu_x'"), "environment"),
        (ImportError("libopapi.so"), "environment"),
        (MissingEnvironmentError("ASCEND_CUSTOM_OPP_PATH is not set"), "environment"),
        (NotImplementedError("no kernel for this back end"), "environment"),
        (RuntimeError("\"addmm_impl_cpu_\" not implemented for 'Half'"), "environment"),
        (AcceleratorError("unspecified launch failure"), "device_lost"),
        (RuntimeError("ACL stream synchronize failed, error code:507015"), "device_lost"),
    ],
)
def test_an_exception_has_its_class_on_the_host(error, failure):
    assert classify(error, on_host=True).failure == failure


def test_any_runtime_error_of_a_device_ends_the_process():
    assert classify(RuntimeError("shape mismatch"), on_host=False).poisoned
    assert not classify(RuntimeError("shape mismatch"), on_host=True).poisoned
    assert not classify(NotImplementedError("no kernel for this back end"), on_host=True).poisoned
    assert not classify(CaseError("two inputs disagree"), on_host=False).poisoned


def test_a_reason_is_one_bounded_line():
    reason = classify(ValueError("first\nsecond" + "x" * 1000), on_host=True).reason

    assert reason == "ValueError: first"
    assert len(classify(ValueError("x" * 1000), on_host=True).reason) == 500


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (0, "exited with status 0"),
        (-6, "was killed by SIGABRT"),
        (-9, "was killed by SIGKILL, as the kernel's out-of-memory killer does"),
        (None, "closed its connection and was ended"),
    ],
)
def test_an_exit_status_is_said_in_words(code, words):
    assert describe_exit(code) == words


MEASURED, SKIPPED = Outcome("measured"), Outcome("skipped", "a dtype")


def failed(failure):
    return Outcome("failed", "because", failure)


@pytest.mark.parametrize(
    ("outcomes", "facts", "code"),
    [
        ([MEASURED, SKIPPED], {}, 0),
        ([], {}, 0),
        ([SKIPPED], {"left": 3}, 4),
        ([MEASURED, failed("timeout")], {"left": 3}, 3),
        ([MEASURED], {"unreadable": 1}, 3),
        ([MEASURED, failed("timeout"), failed("timeout")], {}, 1),
        ([MEASURED, MEASURED, failed("wrong_result")], {"left": 1}, 5),
        ([MEASURED, failed("wrong_result")], {"interrupted": True}, 130),
        ([MEASURED], {"error": True}, 1),
        ([failed("timeout")], {"measured_before": 5}, 3),
    ],
)
def test_the_exit_code_is_the_first_that_applies(outcomes, facts, code):
    assert exit_code(outcomes, **facts) == code


def test_needs_are_checked_by_family_and_named_with_where_they_were_looked_for(monkeypatch, tmp_path):
    monkeypatch.setenv("SET_WELL", str(tmp_path))
    monkeypatch.setenv("SET_BADLY", str(tmp_path / "nowhere"))
    monkeypatch.delenv("NOT_SET", raising=False)
    needs = [
        Need("env", "SET_WELL"),
        Need("env", "SET_BADLY"),
        Need("env", "NOT_SET", hint="source set_env.sh"),
        Need("module", "json"),
        Need("module", "no_such_module_of_ours"),
        Need("library", "libno_such_library_of_ours.so"),
        Need("env", "ONLY_CUDA", families=("cuda",)),
    ]

    missing = missing_needs(needs, "ascend")

    assert [m.what for m in missing] == [
        "environment variable SET_BADLY",
        "environment variable NOT_SET",
        "module no_such_module_of_ours",
        "library libno_such_library_of_ours.so",
    ]
    assert missing[0].looked == f"SET_BADLY={tmp_path / 'nowhere'}, which does not exist"
    assert missing[1].fix == "source set_env.sh"


def test_a_directory_is_writable_though_another_run_tidies_up_the_probe(tmp_path, monkeypatch):
    real = os.fsync

    def tidy(descriptor):
        real(descriptor)
        for left in tmp_path.glob(".*.partial"):
            left.unlink()

    monkeypatch.setattr(os, "fsync", tidy)

    assert writable(tmp_path) is None
    assert list(tmp_path.iterdir()) == []
