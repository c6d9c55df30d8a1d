"""Word the orders of a session: which worker to start, which case to run."""

from __future__ import annotations

import sys

import attrs

from .case_queue import Job
from .execution import WorkerOrder
from .protocol import Message, encode_case, encode_plan, encode_setup
from .results import visit_plan
from .settings import SessionSettings
from .slots import Slot

__all__ = ["case_message", "setup_message", "worker_order"]


def worker_order(settings: SessionSettings, slot: Slot, number: int) -> WorkerOrder:
    """Return the order for worker *number* of the run on the device of *slot*."""
    argv = [sys.executable, "-m", "perfcollect_core.runner.worker"]
    launch = settings.family.launch(argv, slot.ranks, slot.device, settings.run_dir)
    return WorkerOrder(
        argv=launch.argv,
        env=launch.env,
        device=slot.device,
        ranks=slot.ranks,
        directory=settings.run_dir,
        log=settings.run_dir / "logs" / f"worker_{number:05d}_device_{slot.device}.log",
        exit_seconds=settings.exit_seconds,
        profile_dir=launch.profile_dir,
    )


def setup_message(settings: SessionSettings, slot: Slot) -> Message:
    """Return what a worker hears first."""
    return encode_setup(attrs.evolve(settings.setup, device=slot.device, ranks=slot.ranks))


def case_message(settings: SessionSettings, job: Job) -> Message:
    """Return the order to run a case; its output is compared on the first visit only."""
    check = settings.check and not job.passes and job.planned.flops <= settings.check_max_flop
    return {
        "kind": "case",
        "id": job.number,
        "as": job.operator,
        "case": encode_case(job.planned.case),
        "plan": encode_plan(visit_plan(settings.plan)),
        "check": check,
    }
