"""Report a sweep as one self-contained HTML page: latency and bus bandwidth, who waits, what was left out."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from perfcollect_core.tables.atomic import replace_file

from .charts import Line, heat_map, line_chart
from .collectives import COLLECTIVES, bandwidths_gbps
from .run_directory import RunDirectory

__all__ = ["render_report", "write_report"]

_STYLE = """
body { font: 14px/1.5 system-ui, sans-serif; color: #222; margin: 2em auto; max-width: 1100px; padding: 0 1em }
svg { display: block; margin: 1em 0; max-width: 100% } svg text { font: 12px system-ui, sans-serif; fill: #333 }
svg text.title { font-weight: 600; font-size: 14px } svg .grid { stroke: #e5e5e5 }
table { border-collapse: collapse } td, th { border: 1px solid #ddd; padding: 2px 8px; text-align: left }
"""


def write_report(directory: RunDirectory, output: Path | None = None) -> Path:
    """Write the page of a run, by default ``report.html`` in its directory, and return its path."""
    path = output or directory.path / "report.html"
    replace_file(path, render_report(directory).encode())
    return path


def render_report(directory: RunDirectory) -> str:
    """Return the page of a run."""
    header, measured, failed = directory.header(), directory.measured(), directory.failed()
    parts = [_summary(header, measured, failed)]
    by_op: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for fields in measured.values():
        by_op.setdefault((fields["op"], fields["dtype"]), []).append(fields)
    for (op, dtype), lines in by_op.items():
        parts.append(f"<h2>{escape(op)}, {escape(dtype)}</h2>")
        parts.extend(_charts(op, lines))
        parts.append(_waiting(op, lines, int(header.get("world", 0))))
    parts.append(_left_out(failed))
    parts.append(_environment(header))
    title = f"Collectives over {escape(str(header.get('backend', 'an unknown library')))}"
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        f"<style>{_STYLE}</style></head><body><h1>{title}</h1>{''.join(parts)}</body></html>\n"
    )


def _summary(header: Mapping[str, Any], measured: Mapping[str, Any], failed: Mapping[str, Any]) -> str:
    grid = " ".join(map(str, header.get("grid", ())))
    return (
        f"<p>{len(measured)} configurations measured, {len(failed)} failed; world {header.get('world', '?')}, "
        f"grid {escape(grid)}, timer {escape(str(header.get('timer', '?')))}. A duration is the median over iterations "
        "of the slowest rank; bands run from the 5th to the 95th percentile. Bandwidths are decimal GB/s.</p>"
    )


def _series_label(fields: Mapping[str, Any]) -> str:
    at_once = f", {len(fields['groups'])} at once" if len(fields["groups"]) > 1 else ""
    return f"n={fields['n']}, tier {fields['tier']}, {fields['layout']}{at_once}"


def _charts(op: str, lines: Sequence[Mapping[str, Any]]) -> list[str]:
    latency: dict[str, list[tuple[float, float, float, float]]] = {}
    bandwidth: dict[str, list[tuple[float, float, float, float]]] = {}
    for fields in sorted(lines, key=lambda fields: (fields["n"], fields["tier"], fields["message_bytes"])):
        label, size, spread = _series_label(fields), fields["message_bytes"], fields["max_over_ranks_us"]
        latency.setdefault(label, []).append((size, spread["median"], spread["p05"], spread["p95"]))
        rate = [
            bandwidths_gbps(COLLECTIVES[op], fields["n"], size, spread[name])[1]
            for name in ("median", "p95", "p05")
        ]
        bandwidth.setdefault(label, []).append((size, rate[0], rate[1], rate[2]))
    charts = []
    for title, unit, series in (("Latency", "us", latency), ("Bus bandwidth", "GB/s", bandwidth)):
        drawn = [Line(label, tuple(points)) for label, points in series.items()]
        charts.append(line_chart(f"{title} of {op}", "message bytes (m)", unit, drawn))
    return charts


def _waiting(op: str, lines: Sequence[Mapping[str, Any]], world: int) -> str:
    """Show per rank how much longer it waited than the last one to arrive, over all sizes of a group size."""
    rows: dict[str, list[float]] = {}
    totals: dict[str, dict[int, list[float]]] = {}
    for fields in lines:
        medians = {int(rank): statistics.median(v) for rank, v in fields["samples_us"].items()}
        least = min(medians.values())
        for rank, value in medians.items():
            totals.setdefault(_series_label(fields), {}).setdefault(rank, []).append(value - least)
    for label, ranks in totals.items():
        rows[label] = [
            statistics.median(ranks[rank]) if rank in ranks else float("nan") for rank in range(world)
        ]
    return heat_map(f"Median extra wait of each rank in {op}, us", [str(rank) for rank in range(world)], rows)


def _left_out(failed: Mapping[str, Mapping[str, Any]]) -> str:
    if not failed:
        return "<h2>Left out</h2><p>No configuration failed.</p>"
    rows = "".join(
        f"<tr><td>{escape(key)}</td><td>{escape(str(fields['failure']))}</td><td>{escape(str(fields['reason']))}</td></tr>"
        for key, fields in failed.items()
    )
    return (
        f"<h2>Left out</h2><table><tr><th>configuration</th><th>class</th><th>reason</th></tr>{rows}</table>"
    )


def _environment(header: Mapping[str, Any]) -> str:
    rows = "".join(
        f"<tr><td>{escape(str(name))}</td><td>{escape(str(value))}</td></tr>"
        for name, value in dict(header.get("environment", {})).items()
    )
    return f"<h2>Environment</h2><table>{rows}</table>"
