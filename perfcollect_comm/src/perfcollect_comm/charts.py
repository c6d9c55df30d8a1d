"""Small charts as SVG text: lines on log axes with a band, and a heat map. No script, so a page opens offline."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape

import attrs

__all__ = ["Line", "heat_map", "line_chart"]

_WIDTH, _HEIGHT, _LEFT, _BOTTOM, _RIGHT, _TOP = 760, 380, 80, 50, 200, 30
_COLOURS = ("#0b6e99", "#d9730d", "#0f7b6c", "#ad1a72", "#6940a5", "#e03e3e", "#64473a", "#37352f")


@attrs.frozen
class Line:
    """One line: points (x, y, low, high), all positive."""

    label: str
    points: tuple[tuple[float, float, float, float], ...]


def line_chart(title: str, x_label: str, y_label: str, lines: Sequence[Line]) -> str:
    """Return an SVG with *lines* on two log axes, a shaded band from low to high, and a legend."""
    xs = [x for line in lines for x, *_ in line.points]
    ys = [y for line in lines for _, *values in line.points for y in values]
    x_axis, y_axis = _Axis.over(xs, _LEFT, _WIDTH - _RIGHT), _Axis.over(ys, _HEIGHT - _BOTTOM, _TOP)
    parts = [_frame(title, x_label, y_label)]
    parts.extend(
        f'<line x1="{x_axis.at(t):.1f}" x2="{x_axis.at(t):.1f}" y1="{_TOP}" y2="{_HEIGHT - _BOTTOM}" class="grid"/>'
        f'<text x="{x_axis.at(t):.1f}" y="{_HEIGHT - _BOTTOM + 16}" text-anchor="middle">{_short(t)}</text>'
        for t in x_axis.ticks()
    )
    parts.extend(
        f'<line x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y_axis.at(t):.1f}" y2="{y_axis.at(t):.1f}" class="grid"/>'
        f'<text x="{_LEFT - 6}" y="{y_axis.at(t) + 4:.1f}" text-anchor="end">{_short(t)}</text>'
        for t in y_axis.ticks()
    )
    for index, line in enumerate(lines):
        colour = _COLOURS[index % len(_COLOURS)]
        upper = [f"{x_axis.at(x):.1f},{y_axis.at(high):.1f}" for x, _, _, high in line.points]
        lower = [f"{x_axis.at(x):.1f},{y_axis.at(low):.1f}" for x, _, low, _ in reversed(line.points)]
        middle = " ".join(f"{x_axis.at(x):.1f},{y_axis.at(y):.1f}" for x, y, *_ in line.points)
        parts.append(f'<polygon points="{" ".join(upper + lower)}" fill="{colour}" opacity="0.15"/>')
        parts.append(f'<polyline points="{middle}" fill="none" stroke="{colour}" stroke-width="2"/>')
        y = _TOP + 14 + 18 * index
        parts.append(
            f'<rect x="{_WIDTH - _RIGHT + 14}" y="{y - 9}" width="12" height="12" fill="{colour}"/>'
            f'<text x="{_WIDTH - _RIGHT + 32}" y="{y + 2}">{escape(line.label)}</text>'
        )
    return _svg(_WIDTH, max(_HEIGHT, _TOP + 24 + 18 * len(lines)), parts)


def heat_map(title: str, columns: Sequence[str], rows: Mapping[str, Sequence[float]]) -> str:
    """Return an SVG with a cell per value, darker where it is larger; each cell carries its number as a tooltip."""
    top = max((v for values in rows.values() for v in values if math.isfinite(v)), default=0.0) or 1.0
    size, left = 26, 240
    parts = [f'<text x="0" y="16" class="title">{escape(title)}</text>']
    for column, name in enumerate(columns):
        parts.append(
            f'<text x="{left + size * column + size / 2}" y="38" text-anchor="middle">{escape(name)}</text>'
        )
    for index, (label, values) in enumerate(rows.items()):
        y = 44 + size * index
        parts.append(f'<text x="{left - 8}" y="{y + 17}" text-anchor="end">{escape(label)}</text>')
        for column, value in enumerate(values):
            shade = max(0.0, min(1.0, value / top)) if math.isfinite(value) else 0.0
            parts.append(
                f'<rect x="{left + size * column}" y="{y}" width="{size - 2}" height="{size - 2}" fill="#d9730d" '
                f'fill-opacity="{0.06 + 0.94 * shade:.2f}"><title>{escape(columns[column])}: {value:.1f}</title></rect>'
            )
    return _svg(left + size * len(columns) + 20, 56 + size * len(rows), parts)


@attrs.frozen
class _Axis:
    low: float
    high: float
    begin: float
    end: float

    @classmethod
    def over(cls, values: Sequence[float], begin: float, end: float) -> _Axis:
        low, high = math.log10(min(values)), math.log10(max(values))
        # A single value would leave no room to draw in.
        return cls(low - 0.05, max(high + 0.05, low + 0.2), begin, end)

    def at(self, value: float) -> float:
        share = (math.log10(value) - self.low) / (self.high - self.low)
        return self.begin + share * (self.end - self.begin)

    def ticks(self) -> list[float]:
        powers = range(math.ceil(self.low), math.floor(self.high) + 1)
        ticks = [10.0**power for power in powers]
        return ticks if len(ticks) > 1 else [10**self.low, 10**self.high]


def _short(value: float) -> str:
    for suffix, scale in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if value >= scale:
            return f"{value / scale:.3g}{suffix}"
    return f"{value:.3g}"


def _frame(title: str, x_label: str, y_label: str) -> str:
    middle = (_HEIGHT - _BOTTOM + _TOP) / 2
    return (
        f'<text x="{_LEFT}" y="18" class="title">{escape(title)}</text>'
        f'<text x="{(_LEFT + _WIDTH - _RIGHT) / 2}" y="{_HEIGHT - 12}" text-anchor="middle">{escape(x_label)}</text>'
        f'<text x="16" y="{middle}" text-anchor="middle" transform="rotate(-90 16 {middle})">{escape(y_label)}</text>'
        f'<rect x="{_LEFT}" y="{_TOP}" width="{_WIDTH - _RIGHT - _LEFT}" height="{_HEIGHT - _BOTTOM - _TOP}" '
        'fill="none" stroke="#bbb"/>'
    )


def _svg(width: float, height: float, parts: Sequence[str]) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}" role="img">{"".join(parts)}</svg>'
    )
