"""What the columns of a table mean, read from the data in ``key_columns.toml``."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from functools import lru_cache
from importlib import resources

import attrs

from perfcollect_core.tensors import SIGNATURE_COLUMNS

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib  # type: ignore[import-not-found, unused-ignore]  # there on 3.10 only

__all__ = [
    "AVERAGE",
    "BASE_COLUMNS",
    "CORE",
    "PROFILING_AVERAGE",
    "ColumnMeanings",
    "column_meanings",
    "duration_us",
    "has_valid_duration",
    "is_measurement",
]

AVERAGE = "Average Duration(us)"
PROFILING_AVERAGE = "Profiling Average Duration(us)"
CORE = "Accelerator Core"
BASE_COLUMNS = ("OP State", CORE, *SIGNATURE_COLUMNS)


@attrs.frozen
class ColumnMeanings:
    """The lists of ``key_columns.toml``, which says what each is."""

    key: tuple[str, ...]
    description: frozenset[str]
    measurement: frozenset[str]
    measurement_prefixes: tuple[str, ...]
    measurement_suffixes: tuple[str, ...]
    duration: tuple[str, ...]
    dropped: frozenset[str]
    renamed: Mapping[str, str]


@lru_cache(maxsize=1)
def column_meanings() -> ColumnMeanings:
    """Load what core knows about columns; cached."""
    found = tomllib.loads(resources.files(__package__).joinpath("key_columns.toml").read_text("utf-8"))
    return ColumnMeanings(
        key=tuple(found["key"]),
        description=frozenset(found["description"]),
        measurement=frozenset(found["measurement"]),
        measurement_prefixes=tuple(found["measurement_prefixes"]),
        measurement_suffixes=tuple(found["measurement_suffixes"]),
        duration=tuple(found["duration"]),
        dropped=frozenset(found["dropped"]),
        renamed=dict(found["renamed"]),
    )


def is_measurement(column: str) -> bool:
    """Tell whether *column* holds what a measurement left: a duration, a counter, a core or its provenance."""
    known = column_meanings()
    if column in known.measurement:
        return True
    if column in known.key or column in known.description or column.startswith("Runtime "):
        return False
    return column.startswith(known.measurement_prefixes) or column.endswith(known.measurement_suffixes)


def duration_us(text: str | None) -> float | None:
    """Parse a duration cell; ``None`` where it is blank, no number, not finite or not above 0."""
    word = (text or "").strip().strip('"')
    try:
        # Python reads "1_0" as ten; no other reader of the table does.
        value = math.nan if "_" in word else float(word)
    except ValueError:
        return None
    return value if math.isfinite(value) and value > 0 else None


def has_valid_duration(cells: Mapping[str, str]) -> bool:
    """Tell whether a row was ever measured: warm, cold or out of a profile."""
    return any(duration_us(cells.get(column)) is not None for column in column_meanings().duration)
