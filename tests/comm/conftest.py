"""Sweeps of the real program over gloo, with and without a misbehaving rank."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("torch")


class Outcome:
    """What one ``perfcollect comm`` process left behind."""

    def __init__(self, done: subprocess.CompletedProcess[str]) -> None:
        self.code, self.out, self.err = done.returncode, done.stdout, done.stderr

    @property
    def object(self) -> dict:
        return json.loads(self.out)


@pytest.fixture
def comm(tmp_path: Path) -> Callable[..., Outcome]:
    """Run ``perfcollect comm`` in an empty directory; ``fault`` and ``model`` install the test backends."""

    def run(
        *arguments: str,
        fault: str | None = None,
        model: dict | None = None,
        timeout: float = 120,
        **environment: str,
    ) -> Outcome:
        variables = {k: v for k, v in os.environ.items() if k not in ("RANK", "WORLD_SIZE", "MASTER_PORT")}
        variables.update(environment)
        if fault is not None or model is not None:
            site = tmp_path / "site"
            metadata = site / "faulty_comm-1.0.dist-info"
            metadata.mkdir(parents=True, exist_ok=True)
            (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: faulty-comm\nVersion: 1.0\n")
            (metadata / "entry_points.txt").write_text(
                "[perfcollect.comm_backends]\nfaulty = faulty_backend\nsimulated = simulated_backend\n"
            )
            for module in ("faulty_backend.py", "simulated_backend.py"):
                (site / module).write_text(Path(__file__).with_name(module).read_text())
            variables["PYTHONPATH"] = str(site)
        if fault is not None:
            variables["PERFCOLLECT_TEST_FAULT"] = fault
        if model is not None:
            variables["PERFCOLLECT_TEST_SIM"] = json.dumps(model)
        command = [str(Path(sys.executable).with_name("perfcollect")), "comm", *arguments]
        done = subprocess.run(
            command, cwd=tmp_path, env=variables, capture_output=True, text=True, timeout=timeout, check=False
        )
        return Outcome(done)

    return run
