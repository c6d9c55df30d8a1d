"""The exit code a run deserves, and why (decision 9)."""

from __future__ import annotations

from collections.abc import Iterable

from perfcollect_core.cases import Outcome

__all__ = ["exit_code"]


def exit_code(
    outcomes: Iterable[Outcome],
    *,
    measured_before: int = 0,
    left: int = 0,
    unreadable: int = 0,
    interrupted: bool = False,
    error: bool = False,
) -> int:
    """Return the first that applies of 130, 5, 6, 1, 3, 4, else 0.

    Args:
        outcomes: How the selected rows ended.
        measured_before: Cases an earlier part of the run measured.
        left: Rows that budget or limit left over.
        unreadable: Tables nobody named that could not be read.
        interrupted: The user or a signal ended the run.
        error: The run could not go on or could not write what it measured.
    """
    states: dict[str, int] = {}
    for outcome in outcomes:
        kind = outcome.failure or outcome.state
        states[kind] = states.get(kind, 0) + 1
    measured = states.pop("measured", 0) + measured_before
    states.pop("skipped", 0)
    failed = sum(states.values())
    if interrupted:
        return 130
    if states.get("wrong_result"):
        return 5
    if error or failed > measured:
        return 1
    if failed or unreadable:
        return 3
    return 4 if left else 0
