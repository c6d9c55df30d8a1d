"""The two checks of ``perfcollect db check`` that judge what a grid planned: density and queries."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from perfcollect_core.grid.checking import HEADER, coverage_lines, database_coverage
from perfcollect_core.grid.queries import check_queries, manifest_hash, read_queries
from perfcollect_core.grid.standard import read_standard
from perfcollect_core.tables.checks import Finding

from .output import format_table

__all__ = ["check_density", "check_queries_of"]


def check_density(directory: Path, path: Path | None) -> tuple[list[Finding], object, list[str]]:
    """Return what the rows lack under a density standard, the numbers for JSON, and the lines of the table."""
    covered, skipped = database_coverage(directory, read_standard(path))
    findings = [
        Finding(table.table, "density", sentence) for table in covered for sentence in table.findings()
    ]
    rows = coverage_lines(covered)
    lines = [format_table(HEADER, rows, right=range(2, len(HEADER)))] if rows else []
    lines += [f"{name}: not judged, {why}" for name, why in skipped.items()]
    lines.append("planned rows decide; measured ones stand in brackets")
    return findings, {"tables": [table.as_dict() for table in covered], "not_judged": skipped}, lines


def check_queries_of(directory: Path, path: Path) -> tuple[list[Finding], object, list[str]]:

    answers = check_queries(directory, read_queries(path))
    findings = [Finding(f"{a.query.operator}.csv", "query", str(a)) for a in answers if a.is_short]
    planned, measured = Counter[str](a.planned for a in answers), Counter[str](a.measured for a in answers)
    states = ("exact", "interpolable", "missing")
    digest = manifest_hash(path)
    lines = [
        *(str(answer) for answer in answers if not answer.is_short),
        f"{path} (sha256 {digest}): {len(answers)} quer{'y' if len(answers) == 1 else 'ies'}, "
        + ", ".join(f"{planned[state]} {state}" for state in states)
        + "; by measured rows "
        + ", ".join(f"{measured[state]} {state}" for state in states),
    ]
    listed = [
        {
            "workload_id": a.query.workload,
            "kernel": a.query.operator,
            "critical": a.query.critical,
            "cells": dict(a.query.cells),
            "planned": a.planned,
            "measured": a.measured,
            "reason": a.reason,
        }
        for a in answers
    ]
    return findings, {"path": str(path), "sha256": digest, "answers": listed}, lines
