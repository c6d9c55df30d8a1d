"""Offer the emulated CANN to tests: the environment of a process, faults, durations and the launch log.

Use it with ``pytest -p plugin`` and this directory on ``PYTHONPATH``, or import the fixtures in a ``conftest.py``.
"""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from build import EmulatorUnavailableError, build, environment

__all__ = ["Emulator", "ascend_emulator", "ascend_env", "read_summaries"]


class Emulator:
    """One test's emulated CANN: what it is told to do, and what was launched on it.

    Everything reaches a process through its environment, so only processes started with ``env()`` see it.
    """

    def __init__(self, home: Path, base: Mapping[str, str], directory: Path) -> None:
        self.home = home
        self.directory = directory
        self.log_directory = directory / "launches"
        self.log_directory.mkdir(parents=True, exist_ok=True)
        self._base = dict(base)
        self._settings: dict[str, str] = {}

    def set(
        self,
        *,
        devices: int | None = None,
        soc: str | None = None,
        hbm_mb: int | None = None,
        faults: Sequence[str] | None = None,
        faults_outlive_processes: bool = False,
        durations: Mapping[str, float] | None = None,
        jitter: float | None = None,
        virtual_clock: bool | None = None,
        lose: Sequence[str] | None = None,
        msprof: Sequence[str] | None = None,
        cann_version: str | None = None,
        hccl_timeout_s: float | None = None,
    ) -> None:
        """Change what later processes see; ``None`` leaves a setting as it is."""
        words = {
            "CANN_EMU_DEVICES": devices,
            "CANN_EMU_SOC": soc,
            "CANN_EMU_HBM_MB": hbm_mb,
            "CANN_EMU_JITTER": jitter,
            "CANN_EMU_CANN_VERSION": cann_version,
            "CANN_EMU_HCCL_TIMEOUT_S": hccl_timeout_s,
            "CANN_EMU_FAULTS": None if faults is None else " ".join(faults),
            "CANN_EMU_LOSE": None if lose is None else " ".join(lose),
            "CANN_EMU_MSPROF": None if msprof is None else " ".join(msprof),
            "CANN_EMU_DURATIONS": None
            if durations is None
            else " ".join(f"{name}={value!r}" for name, value in durations.items()),
            "CANN_EMU_CLOCK": None if virtual_clock is None else ("virtual" if virtual_clock else "real"),
        }
        self._settings.update({name: str(value) for name, value in words.items() if value is not None})
        if faults_outlive_processes:
            self._settings["CANN_EMU_FAULT_STATE"] = str(self.directory / "fault_counters")

    def env(self, **more: str) -> dict[str, str]:
        """Return the whole environment of a process that is to run on this CANN."""
        return {
            **self._base,
            **self._settings,
            "CANN_EMU_LOG": str(self.log_directory / "%p.jsonl"),
            "CANN_EMU_HCCL_DIR": str(self.directory / "hccl"),
            **more,
        }

    def run(
        self, *arguments: str | Path, timeout_s: float = 120, msprof: Sequence[str] | None = None, **more: str
    ) -> subprocess.CompletedProcess[str]:
        """Run this interpreter with *arguments*, under the stand-in msprof with these options where given."""
        command: list[str | Path] = [sys.executable, *arguments]
        if msprof is not None:
            command = [self.home / "bin" / "msprof", *msprof, *command]
        return subprocess.run(
            command,
            env=self.env(**more),
            cwd=self.directory,
            capture_output=True,
            text=True,
            timeout=timeout_s,
        )

    def run_code(self, code: str, **options: Any) -> subprocess.CompletedProcess[str]:
        """Run Python *code* with ``torch`` and ``torch_npu`` imported."""
        return self.run("-c", f"import torch, torch_npu\n{code}", **options)

    def launches(self, *kinds: str) -> list[dict[str, Any]]:
        """Return the logged records of every process, by their start; of these kinds where given."""
        records = list(_records(sorted(self.log_directory.glob("*.jsonl"))))
        chosen = [record for record in records if not kinds or record["kind"] in kinds]
        return sorted(chosen, key=lambda record: record.get("start_ns", record.get("host_ns", 0)))

    def kernels(self) -> list[dict[str, Any]]:
        """Return the launches of operators: no copies, no marks."""
        return self.launches("aclnn", "aclop", "atb", "hccl")

    def forget_launches(self) -> None:
        """Delete the log of what was launched so far."""
        for path in self.log_directory.glob("*.jsonl"):
            path.unlink()


def read_summaries(directory: Path) -> list[dict[str, str]]:
    """Return the rows of every op_summary below an msprof output directory."""
    rows: list[dict[str, str]] = []
    for path in sorted(directory.glob("PROF_*/mindstudio_profiler_output/op_summary_*.csv")):
        with path.open(newline="", encoding="utf-8-sig") as file:
            rows += csv.DictReader(file)
    return rows


def _records(paths: Iterable[Path]) -> Iterator[dict[str, Any]]:
    for path in paths:
        for line in path.read_text(encoding="utf-8").splitlines():
            if line.endswith("}"):
                yield json.loads(line)


@pytest.fixture(scope="session")
def ascend_env() -> dict[str, str]:
    """Build the emulated CANN once; return the environment of a process on it.

    Where it cannot be built the test is skipped with the reason; with ``CI=true`` that is a failure.
    """
    try:
        home = build()
    except EmulatorUnavailableError as error:
        if os.environ.get("CI") == "true":
            pytest.fail(str(error), pytrace=False)
        pytest.skip(str(error))
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(("CANN_EMU_", "ASCEND_"))
    }
    for name in ("PYTHONSAFEPATH", "RANK", "WORLD_SIZE", "LD_PRELOAD"):
        kept.pop(name, None)
    return {**kept, **environment(home), "OMP_NUM_THREADS": "1"}


@pytest.fixture
def ascend_emulator(ascend_env: dict[str, str], tmp_path: Path) -> Emulator:
    """Return this test's emulated CANN: one A3 device that does as it is told."""
    return Emulator(Path(ascend_env["ASCEND_HOME_PATH"]), ascend_env, tmp_path)
