"""What a grid did: per table the candidates, what became of them, coverage before and after."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import attrs

from perfcollect_core.specs import GridRequest

from .coverage import TableCoverage
from .models import ModelShapes, model_table_version
from .projections import local_heads, tp_degrees

__all__ = ["GridReport", "TableReport", "make_report", "write_report"]

_RULES_VERSION = 1


@attrs.frozen(kw_only=True)
class TableReport:
    """One table. ``left`` candidates did not fit under the cap; of ``curves`` along the first axis, so many are whole."""

    table: str
    operator: str
    candidates: int
    kept: int
    present: int
    dropped: Mapping[str, int]
    left: int
    curves: int
    curves_whole: int
    strata: Mapping[str, int]
    created: bool
    columns_added: tuple[str, ...]
    replayable: bool
    before: TableCoverage
    after: TableCoverage

    def as_dict(self) -> dict[str, object]:
        """Return the report of the table as JSON values."""
        plain = attrs.asdict(self, recurse=False)
        return {**plain, "before": self.before.as_dict(), "after": self.after.as_dict()}

    def coverage(self) -> list[str]:
        """Return a line for each axis: required values and compliant buckets, before and after."""
        return [
            f"{after.axis}: required values {before.anchors - len(before.anchors_missing)} to "
            f"{after.anchors - len(after.anchors_missing)} of {after.anchors}, compliant buckets "
            f"{before.compliant} to {after.compliant} of {after.owned}"
            for before, after in zip(self.before.planned, self.after.planned, strict=True)
        ]


@attrs.frozen(kw_only=True)
class GridReport:
    """A whole grid; ``skipped`` maps a file to why no rows were generated for it."""

    database: Path
    dry_run: bool
    models: tuple[str, ...]
    versions: Mapping[str, str]
    options: Mapping[str, object]
    tables: tuple[TableReport, ...]
    skipped: Mapping[str, str]
    notes: tuple[str, ...]
    seconds: Mapping[str, float]

    @property
    def added(self) -> int:
        return sum(table.kept for table in self.tables)

    def as_dict(self) -> dict[str, object]:
        """Return the report as JSON values."""
        return {
            **attrs.asdict(self, recurse=False),
            "database": str(self.database),
            "added": self.added,
            "tables": [table.as_dict() for table in self.tables],
        }

    def lines(self) -> list[str]:
        """Return the report as lines for a screen."""
        found = []
        for table in self.tables:
            found.append(f"{table.table}: {_sentence(table)}")
            found += [f"  {line}" for line in _details(table)]
        found += [f"{name}: {why}" for name, why in self.skipped.items()]
        found += [f"note: {note}" for note in self.notes]
        changed = sum(table.kept > 0 for table in self.tables)
        verb = "would be added to" if self.dry_run else "added to"
        found.append(f"{self.added} rows {verb} {changed} tables of {self.database}")
        return found

    def markdown(self) -> str:
        """Return the report as Markdown."""
        rows = [
            f"| {t.table} | {t.candidates} | {t.present} | {t.kept} | {t.left} | "
            f"{'; '.join(f'{count} {why}' for why, count in t.dropped.items()) or '-'} | {t.curves_whole} of {t.curves} |"
            for t in self.tables
        ]
        coverage = [f"- {t.table}, {line}" for t in self.tables for line in t.coverage()]
        notes = [f"- {name}: {why}" for name, why in self.skipped.items()] + [f"- {n}" for n in self.notes]
        parts = [
            f"# Theory rows for {self.database}",
            "",
            f"{self.added} rows {'would be added' if self.dry_run else 'added'}; models: {', '.join(self.models)}; "
            + ", ".join(f"{name} {version}" for name, version in self.versions.items()),
            "",
            "| table | candidates | already there | added | left by the cap | dropped | whole curves |",
            "|---|---|---|---|---|---|---|",
            *rows,
            "",
            "## Coverage, before and after",
            "",
            *coverage,
        ]
        return "\n".join([*parts, "", "## Not extended", "", *notes, ""] if notes else [*parts, ""])


def _sentence(table: TableReport) -> str:
    parts = [f"{table.candidates} candidates", f"{table.kept} added"]
    if table.present:
        parts.append(f"{table.present} already there")
    dropped = sum(table.dropped.values())
    if dropped:
        parts.append(f"{dropped} dropped")
    if table.left:
        parts.append(f"{table.left} left by the cap")
    return ", ".join(parts) + (
        "" if table.replayable else " (not replayable: no operator measures this kernel)"
    )


def _details(table: TableReport) -> list[str]:
    lines = [f"dropped {count}: {why}" for why, count in table.dropped.items()]
    if table.created:
        lines.append("the table is new, made from its rule")
    elif table.columns_added:
        lines.append(f"columns added: {', '.join(table.columns_added)}")
    if table.kept:
        lines += [f"coverage of {line}" for line in table.coverage()]
    if table.left:
        lines.append(
            f"the cap leaves {table.curves - table.curves_whole} of {table.curves} curves incomplete"
        )
    return lines


def make_report(
    database: Path,
    request: GridRequest,
    tables: Sequence[TableReport],
    skipped: Mapping[str, str],
    seconds: Mapping[str, float],
    *,
    dry_run: bool,
    options: Mapping[str, object],
) -> GridReport:
    """Put the reports of the tables together, with what the models do not state and the versions behind the rows."""
    from perfcollect_core import __version__

    models = [model for model in request.models if isinstance(model, ModelShapes)]
    notes = [
        f"{model.name} ({model.source}) does not state {', '.join(model.unknown)}: rows that need it are left out"
        for model in models
        if model.unknown and request.targeted
    ]
    notes += [
        f"{model.name}: tp {tp} does not divide its {model.heads} heads: no rows of its attention"
        for model in models
        if request.targeted
        for tp in tp_degrees(model, request)
        if local_heads(model, tp) is None
    ]
    notes += [f"{t.table}: no model asked for has rows of {t.operator}" for t in tables if not t.candidates]
    return GridReport(
        database=database,
        dry_run=dry_run,
        models=tuple(model.name for model in models),
        versions={
            "perfcollect": __version__,
            "rules": str(_RULES_VERSION),
            "model table": str(model_table_version()),
            "density standard": "1",
        },
        options={**options, "max_bytes": request.max_bytes, "tp": list(request.tp), "ep": list(request.ep)},
        tables=tuple(tables),
        skipped=dict(sorted(skipped.items())),
        notes=tuple(notes),
        seconds={phase: round(spent, 3) for phase, spent in seconds.items()},
    )


def write_report(report: GridReport, path: Path) -> None:
    """Write *report* to *path*: JSON if it ends so, else Markdown."""
    import json

    json_text = json.dumps(report.as_dict(), indent=2, default=str, ensure_ascii=False) + "\n"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json_text if path.suffix == ".json" else report.markdown(), encoding="utf-8")
