"""The report of a ``parse``: what was used, what was set aside and where, as lines, JSON and Markdown."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path

import attrs

from .ledger import AsideRows, FileLedger, Tally, microseconds
from .reading import Profile, Unreadable
from .writing import TableResult

__all__ = ["ParseReport", "write_report"]

_SHOWN_LINES = 5


@attrs.frozen
class ParseReport:
    """Everything there is to say about one ``parse``."""

    database: Path
    profile: Profile
    tables: tuple[TableResult, ...] = ()
    unreadable: tuple[Unreadable, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def ai_cpu(self) -> dict[str, int]:
        """Calls by kernel type that ran on the CPU inside the device and not on its cores."""
        found: dict[str, int] = {}
        for operator, rows in self.profile.rows.items():
            for row in rows:
                if row.cells["Accelerator Core"] == "AI_CPU":
                    found[operator] = found.get(operator, 0) + row.count
        return found

    def apart(self, kind: str) -> dict[str, Tally]:
        """Collectives, or kernels without shapes, by type over all files."""
        merged: dict[str, Tally] = {}
        for ledger in self.profile.ledgers:
            for (of_kind, operator), tally in ledger.apart.items():
                if of_kind == kind:
                    merged.setdefault(operator, Tally()).add(tally.count, tally.time_ps)
        return dict(sorted(merged.items(), key=lambda item: -item[1].time_ps))

    def as_dict(self) -> dict[str, object]:
        ledgers = self.profile.ledgers
        return {
            "database": str(self.database),
            "totals": _account(ledgers),
            "files": [_file(ledger) for ledger in ledgers],
            "unreadable": [
                {"file": str(entry.path), "reason": str(entry.error), "hint": entry.error.hint}
                for entry in self.unreadable
            ],
            "collectives": _tallies(self.apart("collective")),
            "no_shape": _tallies(self.apart("no_shape")),
            "ran_on_ai_cpu": self.ai_cpu,
            "tables": [attrs.asdict(table) for table in self.tables],
            "notes": list(self.notes),
        }

    def lines(self) -> list[str]:
        """Return what a person reads at the end of the command."""
        lines = []
        for ledger in self.profile.ledgers:
            lines.append(f"{ledger.path}: {_account_line([ledger])}")
            for reason, rows in ledger.aside.items():
                lines.append(f"  set aside {_count(rows.tally)}: {reason} ({_where(rows)})")
            lines += [f"  {line}" for line in _implausible(ledger)]
            lines += [f"  note: {note}" for note in ledger.notes]
        if len(self.profile.ledgers) > 1:
            lines.append(f"all files: {_account_line(self.profile.ledgers)}")
        for title, kind in (("collectives", "collective"), ("kernels without shapes", "no_shape")):
            found = self.apart(kind)
            if found:
                listed = ", ".join(f"{name} {_count(tally)}" for name, tally in found.items())
                lines.append(f"{title}, not in tables: {listed}")
        if self.ai_cpu:
            listed = ", ".join(f"{name} {count}" for name, count in self.ai_cpu.items())
            lines.append(f"ran on the CPU inside the device (AI_CPU): {listed}")
        lines += [f"note: {note}" for note in self.notes]
        lines += [f"not read: {entry.error}" for entry in self.unreadable]
        lines += [f"not written: {table.problem}" for table in self.tables if table.problem]
        done = [table for table in self.tables if not table.problem]
        counts = [sum(getattr(table, what) for table in done) for what in ("added", "updated", "unchanged")]
        lines.append(
            f"{len(done)} tables in {self.database}: {counts[0]} rows added, {counts[1]} updated, "
            f"{counts[2]} unchanged"
        )
        return lines


def write_report(report: ParseReport, path: Path) -> None:
    """Write *report* to *path*: JSON where it ends in ``.json``, else Markdown.

    Raises:
        TableError: It cannot be written.
    """
    from perfcollect_core.tables.atomic import replace_file

    if path.suffix.lower() == ".json":
        text = json.dumps(report.as_dict(), indent=1, ensure_ascii=False) + "\n"
    else:
        text = "\n".join(_markdown(report)) + "\n"
    replace_file(path, text.encode("utf-8", "backslashreplace"))


def _account(ledgers: Sequence[FileLedger]) -> dict[str, object]:
    used, aside, apart = (
        _total(getattr(ledger, name) for ledger in ledgers) for name in ("used", "aside_tally", "apart_tally")
    )
    total_ps = sum(ledger.total_ps for ledger in ledgers)
    return {
        "rows_in": sum(ledger.rows for ledger in ledgers),
        "rows_used": used.count,
        "rows_set_aside": aside.count,
        "rows_apart": apart.count,
        "total_us": microseconds(total_ps),
        "keyed_us": used.time_us,
        "set_aside_us": aside.time_us,
        "apart_us": apart.time_us,
        "keyed_share": round(used.time_ps / total_ps, 4) if total_ps else None,
        "adds_up": all(ledger.adds_up for ledger in ledgers),
    }


def _total(tallies: Iterable[Tally]) -> Tally:
    total = Tally()
    for tally in tallies:
        total.add(tally.count, tally.time_ps)
    return total


def _file(ledger: FileLedger) -> dict[str, object]:
    return {
        "file": str(ledger.path),
        "layout": ledger.layout,
        "rank": ledger.rank,
        "capture": ledger.capture,
        **_account([ledger]),
        "set_aside": [
            {
                "reason": reason,
                "count": rows.tally.count,
                "sum_us": rows.tally.time_us,
                "lines": list(rows.lines),
                **(
                    {"cells": {str(line): text for line, text in rows.details.items()}}
                    if rows.details
                    else {}
                ),
            }
            for reason, rows in ledger.aside.items()
        ],
        "collectives": _tallies(
            {name: t for (kind, name), t in ledger.apart.items() if kind == "collective"}
        ),
        "no_shape": _tallies({name: t for (kind, name), t in ledger.apart.items() if kind == "no_shape"}),
        "implausible_cells": [
            {"line": line, "column": column, "value": text} for line, column, text in ledger.implausible
        ],
        "implausible_count": ledger.implausible_count,
        "notes": ledger.notes,
    }


def _tallies(found: dict[str, Tally]) -> dict[str, object]:
    return {name: {"count": tally.count, "sum_us": tally.time_us} for name, tally in found.items()}


def _count(tally: Tally) -> str:
    rows = f"{tally.count} row{'s' if tally.count != 1 else ''}"
    return f"{rows}, {tally.time_us:.3f} us" if tally.time_ps else rows


def _where(rows: AsideRows) -> str:
    shown = []
    for line in list(rows.lines)[:_SHOWN_LINES]:
        text = rows.details.get(line)
        shown.append(f"{line} {text!r}" if text and text.strip() else str(line))
    more = f" and {len(rows.lines) - _SHOWN_LINES} more" if len(rows.lines) > _SHOWN_LINES else ""
    return f"line{'s' if len(rows.lines) > 1 else ''} {', '.join(shown)}{more}"


def _account_line(ledgers: Sequence[FileLedger]) -> str:
    account = _account(ledgers)
    total = microseconds(sum(ledger.total_ps for ledger in ledgers))
    used, aside, apart = (
        _total(getattr(ledger, name) for ledger in ledgers) for name in ("used", "aside_tally", "apart_tally")
    )
    return (
        f"{account['rows_in']} rows, {used.count} used, {aside.count} set aside, {apart.count} apart; "
        f"kernel time {total:.3f} us = {used.time_us:.3f} used + {aside.time_us:.3f} set aside "
        f"+ {apart.time_us:.3f} apart"
    )


def _implausible(ledger: FileLedger) -> list[str]:
    lines = [
        f"implausible counter left out: line {line}, {column} {text!r}"
        for line, column, text in ledger.implausible[:_SHOWN_LINES]
    ]
    if ledger.implausible_count > _SHOWN_LINES:
        lines.append(f"{ledger.implausible_count - _SHOWN_LINES} more implausible counters left out")
    return lines


def _markdown(report: ParseReport) -> list[str]:
    lines = ["# perfcollect parse", "", f"Database: `{report.database}`", ""]
    for ledger in report.profile.ledgers:
        lines += [f"## {ledger.path}", "", _account_line([ledger]) + ".", ""]
        lines += [f"- set aside {_count(rows.tally)}: {reason}" for reason, rows in ledger.aside.items()]
        lines += [f"- {line}" for line in (*_implausible(ledger), *ledger.notes)]
        lines.append("")
        if ledger.aside:
            lines += ["| reason | line | cell |", "|---|---|---|"]
            lines += [
                f"| {reason} | {line} | {_cell(rows.details.get(line, ''))} |"
                for reason, rows in ledger.aside.items()
                for line in rows.lines
            ]
            lines.append("")
    for title, kind in (("Collectives", "collective"), ("Kernels without shapes", "no_shape")):
        lines += [f"## {title}", "", "| type | calls | us |", "|---|---|---|"]
        found = report.apart(kind)
        lines += [f"| {_cell(name)} | {t.count} | {t.time_us:.3f} |" for name, t in found.items()] or [
            "_None_"
        ]
        lines.append("")
    lines += ["## Tables", "", "| table | added | updated | unchanged | |", "|---|---|---|---|---|"]
    lines += [
        f"| {_cell(t.table)} | {t.added} | {t.updated} | {t.unchanged} | {_cell(t.problem)} |"
        for t in report.tables
    ]
    lines += [
        "",
        *(f"- {note}" for note in report.notes),
        *(f"- not read: {e.error}" for e in report.unreadable),
    ]
    return lines


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
