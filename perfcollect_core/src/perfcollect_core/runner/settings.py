"""What the sessions of a run share."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import attrs

from perfcollect_core.cases import Outcome
from perfcollect_core.environment import DeviceFamily
from perfcollect_core.measurements import Measurement, Plan

from .case_queue import Job
from .protocol import Setup

__all__ = ["CaseResult", "SessionSettings"]


@attrs.frozen(eq=False)
class CaseResult:
    """How a case ended; ``measurement`` and the ``cells`` of its row are there exactly where it was measured.

    The measurement has its statistics and no longer its samples, which are in the journal.
    """

    job: Job
    outcome: Outcome
    measurement: Measurement | None = None
    cells: Mapping[str, str] = attrs.field(factory=dict)


@attrs.frozen
class SessionSettings:
    """What a session needs beside its cases; ``provenance`` begins the text of ``Measured With``."""

    family: DeviceFamily
    setup: Setup
    plan: Plan
    statistic: str
    provenance: str
    run_dir: Path
    check: bool = False
    check_max_flop: float = 20e9
    case_timeout: float | None = None
    max_seconds: float | None = None
    fail_fast: bool = False
    exit_seconds: float = 5.0
    keep_profiles: bool = False
