"""The density standard: how densely a database must cover each axis (numbers in ``density_standard.yaml``)."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any, Literal, cast

import attrs

from perfcollect_core.errors import DataError
from perfcollect_core.specs import Axis

__all__ = ["AxisStandard", "Hole", "Promise", "promise_of", "read_standard"]


@attrs.frozen
class Hole:
    """Two neighbours of a bucket that are too far apart, and what the standard allows between them."""

    low: int
    high: int
    kind: Literal["gap", "ratio"]
    limit: float

    def __str__(self) -> str:
        return f"{self.low} to {self.high} ({self.kind} at most {self.limit:g})"


@attrs.frozen
class AxisStandard:
    """What the standard asks of one axis; ``spacing`` are segments (last value, kind, limit)."""

    low: int
    high: int
    spacing: tuple[tuple[int, Literal["gap", "ratio"], float], ...] = ()
    required: tuple[int, ...] = ()

    def holes(self, values: Sequence[int]) -> Iterator[Hole]:
        """Yield the neighbours of the sorted *values* that are too far apart."""
        for a, b in itertools.pairwise(values):
            for last, kind, limit in self.spacing:
                if b <= last:
                    if (b - a > limit) if kind == "gap" else (b > a * limit):
                        yield Hole(a, b, kind, limit)
                    break


@attrs.frozen
class Promise:
    """What one axis of an operator promises: the standard's numbers within the axis's own ends."""

    axis: Axis
    standard: AxisStandard
    low: int
    high: int
    required: tuple[int, ...]


def promise_of(axis: Axis, standards: Mapping[str, AxisStandard]) -> Promise | None:
    """Return what *axis* promises under a standard, ``None`` where it keeps none.

    Raises:
        DataError: The standard lacks the axis.
    """
    if not axis.standard:
        return None
    if axis.standard not in standards:
        raise DataError(
            f"density standard has no axis {axis.standard!r}, which axis {axis.name!r} keeps",
            hint=f"it has {', '.join(sorted(standards))}",
        )
    found = standards[axis.standard]
    low, high = axis.low or found.low, axis.high or found.high
    inside = {v for v in (*found.required, *axis.anchors) if low <= v <= high}
    return Promise(axis, found, low, high, tuple(sorted({low, high, *inside})))


def read_standard(path: Path | None = None) -> Mapping[str, AxisStandard]:
    """Read a density standard, by default the one that ships.

    Raises:
        DataError: The file cannot be read or is no standard; the message names the line.
    """
    try:
        if path is None:
            text = resources.files(__package__).joinpath("density_standard.yaml").read_text("utf-8")
        else:
            text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8"
        raise DataError(f"density standard {path} cannot be read: {reason}") from error
    axes = _parse(text, str(path or "density_standard.yaml")).get("axes")
    if not isinstance(axes, dict) or not axes:
        raise DataError(f"density standard {path} has no axes", hint="see docs/grid.md for its form")
    return {name: _axis(name, entry, str(path)) for name, entry in axes.items()}


def _axis(name: str, entry: object, path: str) -> AxisStandard:
    try:
        fields = cast("dict[str, Any]", entry)
        low, high = fields["range"]
        spacing = tuple((int(last), kind, float(limit)) for last, kind, limit in fields.get("spacing", ()))
        if any(kind not in ("gap", "ratio") for _, kind, _ in spacing):
            raise ValueError("spacing is by gap or ratio")
        return AxisStandard(int(low), int(high), spacing, tuple(map(int, fields.get("required", ()))))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise DataError(
            f"density standard {path}: axis {name!r} is {entry!r}, expected range, spacing and required",
            hint="see docs/grid.md for its form",
        ) from error


def _parse(text: str, path: str) -> dict[str, Any]:
    """Read nested keys by indentation, with JSON values: the part of YAML that a standard needs."""
    root: dict[str, Any] = {}
    open_at: list[tuple[int, dict[str, Any]]] = [(-1, root)]
    for number, line in enumerate(text.splitlines(), start=1):
        body = line.strip()
        if not body or body.startswith("#"):
            continue
        indent = len(line) - len(line.lstrip(" "))
        while open_at[-1][0] >= indent:
            open_at.pop()
        name, colon, value = body.partition(":")
        if not colon:
            raise DataError(f"density standard {path} line {number}: {body!r}, expected 'name: value'")
        parent, value = open_at[-1][1], value.strip()
        if value:
            try:
                parent[name] = json.loads(value)
            except ValueError:
                raise DataError(
                    f"density standard {path} line {number}: {value!r} is no JSON value",
                    hint="write numbers, lists in brackets and text in double quotes",
                ) from None
        else:
            parent[name] = {}
            open_at.append((indent, parent[name]))
    return root
