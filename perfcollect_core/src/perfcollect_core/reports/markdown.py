"""The report of a run as Markdown."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

from .hotspots import CALM_RANGE, find_hotspots
from .summary import RowResult, RunSummary, TableSummary

__all__ = ["how_measured", "markdown_table", "render_markdown"]

_EXAMPLES = 3
_WORST = 20


def markdown_table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a padded Markdown table, ``_None_`` where it has no row; cells are kept on one line."""
    cells = [[_cell(value) for value in row] for row in rows]
    if not cells:
        return "_None_"
    widths = [max(3, len(name), *(len(row[i]) for row in cells)) for i, name in enumerate(header)]

    def line(row: Sequence[str]) -> str:
        return "| " + " | ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)) + " |"

    return "\n".join([line(header), line(["-" * width for width in widths]), *map(line, cells)])


def _cell(value: object) -> str:
    return re.sub(r"\s+", " ", str(value)).replace("|", "\\|").strip()


def how_measured(summary: RunSummary) -> tuple[str, str, str]:
    """Return the three lines every report opens with: statistic, cache policy, repeat rule."""
    achieved = Counter(result.cache or "unknown" for result in summary.ended("measured"))
    other = sorted((c, n) for c, n in achieved.items() if c != summary.cache)
    cache = f"Cache policy: {summary.cache}"
    if other:
        cache += " (" + ", ".join(f"{count} rows: {text}" for text, count in other) + ")"
    return (f"Statistic: {summary.statistic}", cache, f"Repeat rule: {summary.repeat_rule or 'not recorded'}")


def render_markdown(summary: RunSummary, hotspot_file: str) -> str:
    """Write the whole report; its last line names *hotspot_file*."""
    sections = [
        ("Operator Execution Status", _status(summary)),
        ("Overview", _overview(summary)),
        ("Update Summary", _updates(summary.tables)),
        ("Missing Shapes", _missing(summary.tables)),
        ("Deleted Empty Rows", _deleted(summary.tables)),
        ("Duplicate Signatures", _duplicates(summary.tables)),
        ("Duration Gap Hotspots", _hotspots(summary)),
        ("Mixed Provenance", _mixed(summary)),
        ("Failures", _endings(summary, "failed")),
        ("Skipped", _endings(summary, "skipped")),
        ("Suspicious Samples", _flags(summary.results)),
        ("Tables Not Read", markdown_table(("Table", "Reason"), sorted(summary.unreadable.items()))),
        ("Rows Gone", _gone(summary.tables)),
        ("Environment", markdown_table(("Fact", "Value"), sorted(summary.environment.items()))),
    ]
    lines = ["# Profile Update Report", "", *(f"- {line}" for line in how_measured(summary)), ""]
    for title, body in sections:
        lines += [f"## {title}", "", body, ""]
    for title, items in (("Notes", summary.notes), ("Next Steps", summary.next_steps)):
        if items:
            lines += [f"## {title}", "", *(f"- {item}" for item in items), ""]
    return "\n".join([*lines, f"All hotspots: `{hotspot_file}`", ""])


def _status(summary: RunSummary) -> str:
    lines = [
        f"- success: {summary.count('measured')}",
        f"- failed: {summary.count('failed')}",
        f"- skipped: {summary.count('skipped')}",
        f"- left for later: {summary.remaining}",
        f"- exit code: {summary.exit_code}",
    ]
    failures = summary.ended("failed")
    if failures:
        lines.append("")
    for result in failures[:_WORST]:
        reason = _cell(result.outcome.reason)
        lines.append(f"- {result.operator} [{_cell(result.row)}]: {result.outcome.failure}: {reason}")
    if len(failures) > _WORST:
        lines.append(
            f"- and {len(failures) - _WORST} more, by reason under Failures and singly in the status file"
        )
    return "\n".join(lines)


def _overview(summary: RunSummary) -> str:
    tables = summary.tables
    low, high = CALM_RANGE
    rows: list[tuple[str, object]] = [
        ("Run", summary.run_id),
        ("Database", summary.database),
        ("Family and device", f"{summary.family} {summary.device}".strip()),
        ("Started", summary.started.isoformat(timespec="seconds")),
        ("Seconds", f"{(summary.finished - summary.started).total_seconds():.1f}"),
        ("Files touched", sum(bool(t.updated or t.added or t.deleted) for t in tables)),
        ("Rows updated", sum(t.updated for t in tables)),
        ("Rows added", sum(t.added for t in tables)),
        ("Rows deleted", sum(t.deleted for t in tables)),
        ("Rows unchanged", sum(t.unchanged for t in tables)),
        ("Duplicate signatures", sum(len(t.duplicates) for t in tables)),
        ("Missing shapes", sum(len(t.missing) for t in tables)),
        ("Duration gap hotspots", len(find_hotspots(summary.results))),
        ("Hotspot threshold", f"measured / profiling below {low} or above {high}"),
    ]
    if summary.run_dir:
        rows.append(("Run directory", summary.run_dir))
    return markdown_table(("Item", "Value"), rows)


def _updates(tables: Sequence[TableSummary]) -> str:
    ordered = sorted(tables, key=lambda t: (-t.added, -t.updated, t.operator, t.table))
    return markdown_table(
        ("Operator", "Table", "Updated", "Added", "Deleted", "Unchanged", "Missing samples"),
        (
            (t.operator, t.table, t.updated, t.added, t.deleted, t.unchanged, _some(t.missing))
            for t in ordered
        ),
    )


def _some(texts: Sequence[str]) -> str:
    shown = "; ".join(f"[{text}]" for text in texts[:_EXAMPLES])
    return f"{shown} and {len(texts) - _EXAMPLES} more" if len(texts) > _EXAMPLES else shown


def _listed(entries: Iterable[tuple[str, Sequence[str]]]) -> str:
    ordered = sorted(((name, texts) for name, texts in entries if texts), key=lambda e: (-len(e[1]), e[0]))
    return markdown_table(
        ("Operator", "Count", "Examples"), ((name, len(texts), _some(texts)) for name, texts in ordered)
    )


def _missing(tables: Sequence[TableSummary]) -> str:
    return _listed((t.operator, t.missing) for t in tables)


def _deleted(tables: Sequence[TableSummary]) -> str:
    return _listed((t.operator, t.deleted_rows) for t in tables)


def _duplicates(tables: Sequence[TableSummary]) -> str:
    return _listed((t.operator, [f"{row} x{count}" for row, count in t.duplicates.items()]) for t in tables)


def _gone(tables: Sequence[TableSummary]) -> str:
    return _listed((t.operator, t.gone) for t in tables)


def _hotspots(summary: RunSummary) -> str:
    return markdown_table(
        ("Operator", "Table", "MicroBench(us)", "Profiling(us)", "Abs Diff(us)", "MB/Profile", "Shape"),
        (
            (
                spot.operator,
                spot.table,
                f"{spot.measured_us:.6f}",
                f"{spot.profiling_us:.6f}",
                f"{spot.difference_us:.6f}",
                f"{spot.ratio:.6f}",
                spot.row,
            )
            for spot in find_hotspots(summary.results)[:_WORST]
        ),
    )


def _mixed(summary: RunSummary) -> str:
    return markdown_table(
        ("Table", "Rows", "Measured with"),
        (
            (mixture.table, count, text)
            for mixture in summary.mixtures
            for text, count in mixture.counts.items()
        ),
    )


def _endings(summary: RunSummary, state: str) -> str:
    examples: dict[tuple[str, str, str], list[str]] = defaultdict(list)
    for result in summary.ended(state):
        key = (result.operator, result.outcome.failure or "", result.outcome.reason)
        if len(examples[key]) < _EXAMPLES:
            examples[key].append(result.row)
    counts = summary.reasons(state)
    rows = (
        (
            operator,
            failure,
            count,
            reason,
            "; ".join(f"[{row}]" for row in examples[operator, failure, reason]),
        )
        for (operator, failure, reason), count in sorted(counts.items(), key=lambda e: (-e[1], e[0]))
    )
    if state == "failed":
        return markdown_table(("Operator", "Class", "Count", "Reason", "Examples"), rows)
    return markdown_table(
        ("Operator", "Count", "Reason", "Examples"),
        ((op, n, reason, rest) for op, _, n, reason, rest in rows),
    )


def _flags(results: Sequence[RowResult]) -> str:
    rows: dict[tuple[str, str], list[str]] = defaultdict(list)
    for result in results:
        for flag in result.flags:
            # Counts inside a flag differ by row; the reader wants the kinds.
            rows[result.operator, re.sub(r"\d[\d.]*", "N", flag)].append(f"{result.row}: {flag}")
    ordered = sorted(rows.items(), key=lambda e: (-len(e[1]), e[0]))
    return markdown_table(
        ("Operator", "Rows", "Flag", "First"),
        ((operator, len(texts), flag, texts[0]) for (operator, flag), texts in ordered),
    )
