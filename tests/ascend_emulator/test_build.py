"""The emulated CANN says why it cannot be built, and is built once for a wheel and its own sources."""

from __future__ import annotations

import os
import platform
import sys
from pathlib import Path

import build
import pytest
from build import EmulatorUnavailableError
from wheel_symbols import read_symbols

pytestmark = pytest.mark.ascend_emulator


def test_another_processor_is_refused_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")

    with pytest.raises(EmulatorUnavailableError) as caught:
        build.build()

    assert str(caught.value) == "the emulated CANN passes arguments as x86-64 Linux does, not aarch64 linux"


def test_a_missing_compiler_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")

    with pytest.raises(EmulatorUnavailableError) as caught:
        build.build()

    assert str(caught.value) == "building the emulated CANN needs 'gcc', which is not on PATH"


def test_a_missing_wheel_is_named_with_the_way_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build.importlib.util, "find_spec", lambda name: None)

    with pytest.raises(EmulatorUnavailableError) as caught:
        build.build()

    assert str(caught.value) == (
        f"torch_npu is not installed for {sys.executable}: run 'make emulator' and use .venv-ascend/bin/python"
    )


def test_a_second_build_is_the_first_one(ascend_env: dict[str, str]) -> None:
    home = build.build()
    before = (home / "complete").stat().st_mtime_ns

    assert build.build() == home
    assert str(home) == ascend_env["ASCEND_HOME_PATH"]
    assert (home / "complete").stat().st_mtime_ns == before


def test_the_wheel_names_what_it_lacks(ascend_env: dict[str, str]) -> None:
    wheel = build.SITE_PACKAGES / "torch_npu"

    symbols = read_symbols([wheel], [wheel.parent / "torch" / "lib"])

    assert {"libascendcl.so", "libhccl.so", "libatb.so", "libge_runner.so", "libopapi.so"} <= set(
        symbols.libraries
    )
    assert {"aclnnMm", "aclnnFusedInferAttentionScoreV3", "AtbRingMLA"} <= set(symbols.two_phase)
    assert {"aclrtMalloc", "aclopCompileAndExecute"} <= set(symbols.linked)
    # What the C library defines is left to it.
    assert not {"dlopen", "pthread_create", "memcpy"} & set(symbols.linked)


def test_an_older_cann_lacks_the_names_that_are_hidden(ascend_env: dict[str, str], tmp_path: Path) -> None:
    home = build.build(tmp_path, hide=["aclnnDynamicQuantV2"])
    exported = os.fspath(home / "lib64" / "libopapi.so")

    names = set(build.subprocess.run(["nm", "-D", exported], capture_output=True, text=True).stdout.split())

    assert "aclnnMm" in names
    assert "aclnnDynamicQuantV2" not in names
    assert "aclnnDynamicQuantV2GetWorkspaceSize" not in names
