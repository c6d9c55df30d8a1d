"""A run's outcome as JSON: what ``run_status_<timestamp>.json`` holds and ``--format json`` prints."""

from __future__ import annotations

from .hotspots import find_hotspots
from .summary import RowResult, RunSummary, TableSummary

__all__ = ["status_document"]


def status_document(summary: RunSummary) -> dict[str, object]:
    """Return *summary* as JSON values; every selected row stands in exactly one of success, failed and skipped."""
    return {
        "run": summary.run_id,
        "database": str(summary.database),
        "run_dir": str(summary.run_dir) if summary.run_dir else None,
        "family": summary.family,
        "device": summary.device,
        "started": summary.started.isoformat(timespec="seconds"),
        "finished": summary.finished.isoformat(timespec="seconds"),
        "statistic": summary.statistic,
        "cache": summary.cache,
        "repeat_rule": summary.repeat_rule,
        "exit_code": summary.exit_code,
        "counts": {
            "measured": summary.count("measured"),
            "failed": summary.count("failed"),
            "skipped": summary.count("skipped"),
            "remaining": summary.remaining,
            "hotspots": len(find_hotspots(summary.results)),
        },
        "success": [_success(result) for result in summary.ended("measured")],
        "failed": [
            {**_row(result), "class": result.outcome.failure, "reason": result.outcome.reason}
            for result in summary.ended("failed")
        ],
        "skipped": [{**_row(result), "reason": result.outcome.reason} for result in summary.ended("skipped")],
        "tables": [_table(table) for table in summary.tables],
        "unreadable": dict(summary.unreadable),
        "mixed": {mixture.table: dict(mixture.counts) for mixture in summary.mixtures},
        "environment": dict(summary.environment),
        "notes": list(summary.notes),
        "next_steps": list(summary.next_steps),
    }


def _row(result: RowResult) -> dict[str, object]:
    return {"op": result.operator, "table": result.table, "row": result.row}


def _success(result: RowResult) -> dict[str, object]:
    entry: dict[str, object] = {**_row(result), "value_us": result.value_us, "cache": result.cache}
    if result.profiling_us is not None:
        entry["profiling_us"] = result.profiling_us
    if result.flags:
        entry["flags"] = list(result.flags)
    if result.checked is not None:
        entry["checked"] = result.checked
    return entry


def _table(table: TableSummary) -> dict[str, object]:
    return {
        "table": table.table,
        "op": table.operator,
        "updated": table.updated,
        "added": table.added,
        "deleted": table.deleted,
        "unchanged": table.unchanged,
        "missing": list(table.missing),
        "deleted_rows": list(table.deleted_rows),
        "duplicates": dict(table.duplicates),
        "measured_with": dict(table.measured_with),
        "gone": list(table.gone),
    }
