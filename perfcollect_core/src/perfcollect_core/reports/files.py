"""Write the three report files of a run beside its tables."""

from __future__ import annotations

import json
import os
from datetime import datetime
from pathlib import Path

import attrs

from perfcollect_core.errors import DataError
from perfcollect_core.tables.atomic import replace_file

from .hotspots import find_hotspots, render_hotspots
from .markdown import render_markdown
from .status import status_document
from .summary import RunSummary

__all__ = ["ReportPaths", "write_reports"]


@attrs.frozen
class ReportPaths:
    """Where the three files of one run are."""

    report: Path
    hotspots: Path
    status: Path


def write_reports(summary: RunSummary, directory: Path) -> ReportPaths:
    """Write report, hotspots and status into *directory*, each as a whole or not at all.

    All three carry one timestamp, local time of the run's end; a second run that ends within the same second gets
    ``_2`` behind it and overwrites nothing.

    Raises:
        DataError: The directory cannot be written.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
        paths = _claim(directory, summary.finished)
    except OSError as error:
        raise DataError(
            f"reports cannot be written to {directory}: {error.strerror or error}",
            hint="give the run another place with --run-dir",
        ) from error
    texts = {
        paths.hotspots: render_hotspots(find_hotspots(summary.results)),
        paths.report: render_markdown(summary, paths.hotspots.name),
        paths.status: json.dumps(status_document(summary), indent=2, ensure_ascii=False) + "\n",
    }
    for path, text in texts.items():
        replace_file(path, text.encode("utf-8", "surrogateescape"))
    return paths


def _claim(directory: Path, finished: datetime) -> ReportPaths:
    """Claim names nobody has by creating the report file exclusively."""
    stamp = finished.astimezone().strftime("%Y%m%d_%H%M%S")
    number = 1
    while True:
        tail = stamp if number == 1 else f"{stamp}_{number}"
        report = directory / f"profile_update_report_{tail}.md"
        try:
            os.close(os.open(report, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666))
        except FileExistsError:
            number += 1
            continue
        return ReportPaths(
            report,
            directory / f"duration_gap_hotspots_full_{tail}.csv",
            directory / f"run_status_{tail}.json",
        )
