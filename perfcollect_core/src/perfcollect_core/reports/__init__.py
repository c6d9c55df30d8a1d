"""What a run reports: three files beside the tables and a few lines on the screen."""

from __future__ import annotations

from .files import ReportPaths, write_reports
from .screen import summary_lines
from .status import status_document
from .summary import RowResult, RunSummary, TableSummary

__all__ = [
    "ReportPaths",
    "RowResult",
    "RunSummary",
    "TableSummary",
    "status_document",
    "summary_lines",
    "write_reports",
]
