"""The few lines a person reads on the screen when a run has ended."""

from __future__ import annotations

from .hotspots import find_hotspots
from .markdown import how_measured
from .summary import RunSummary

__all__ = ["summary_lines"]

_REASONS = 5


def summary_lines(summary: RunSummary, report: str | None = None) -> list[str]:
    """Return the short summary: how it was measured, a table by operator, reasons, and what to do next.

    Args:
        summary: The finished run.
        report: Path of the Markdown report, named in the end.
    """
    lines = [". ".join(how_measured(summary)), ""]
    lines += _table(summary)
    for state in ("failed", "skipped"):
        counts = summary.reasons(state).most_common()
        for (operator, failure, reason), count in counts[:_REASONS]:
            kind = f" ({failure})" if failure else ""
            lines.append(f"{state} {count} of {operator}{kind}: {reason}")
        rest = sum(count for _, count in counts[_REASONS:])
        if rest:
            lines.append(f"{state} {rest} more for {len(counts) - _REASONS} other reasons: see the report")
    for name, reason in sorted(summary.unreadable.items()):
        lines.append(f"not read {name}: {reason}")
    flagged = sum(bool(result.flags) for result in summary.results)
    if flagged:
        lines.append(f"{flagged} of {summary.count('measured')} measured rows have suspicious samples")
    for mixture in summary.mixtures:
        parts = ", ".join(f"{count} rows {text}" for text, count in mixture.counts.items())
        lines.append(f"{mixture.table} holds values of different statistics or tools: {parts}")
    hotspots = len(find_hotspots(summary.results))
    if hotspots:
        lines.append(f"{hotspots} rows differ from their profiling average by more than a fifth")
    if summary.remaining:
        lines.append(f"{summary.remaining} rows left for later")
    lines += summary.notes
    lines += [f"next: {step}" for step in summary.next_steps]
    if report:
        lines.append(f"report: {report}")
    lines.append(_last_line(summary))
    return lines


def _table(summary: RunSummary) -> list[str]:
    rows: list[tuple[str, ...]] = [
        ("operator", "measured", "failed", "skipped", "updated", "added", "deleted")
    ]
    operators = dict.fromkeys(
        [t.operator for t in summary.tables] + [result.operator for result in summary.results]
    )
    for operator in sorted(operators):
        states = [result.outcome.state for result in summary.results if result.operator == operator]
        tables = [t for t in summary.tables if t.operator == operator]
        numbers = (
            states.count("measured"),
            states.count("failed"),
            states.count("skipped"),
            sum(t.updated for t in tables),
            sum(t.added for t in tables),
            sum(t.deleted for t in tables),
        )
        rows.append((operator, *map(str, numbers)))
    if len(rows) == 1:
        return []
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    laid_out = [
        "  ".join([row[0].ljust(widths[0]), *(c.rjust(w) for c, w in zip(row[1:], widths[1:], strict=True))])
        for row in rows
    ]
    return [*laid_out, ""]


def _last_line(summary: RunSummary) -> str:
    measured, failed, skipped = (summary.count(s) for s in ("measured", "failed", "skipped"))
    tried = measured + failed
    line = f"{measured} measured, {failed} failed, {skipped} skipped"
    if summary.remaining:
        line += f", {summary.remaining} left"
    if tried and failed * 2 > tried:
        line = f"more than half of the cases failed: {line}"
    wrong = sum(result.outcome.failure == "wrong_result" for result in summary.results)
    if wrong:
        line += f"; {wrong} gave a wrong result"
    return f"{line} (exit {summary.exit_code})"
