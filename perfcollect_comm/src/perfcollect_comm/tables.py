"""The ``hcom_*.csv`` tables consumers read: merge, replace a key, write whole.

Columns ``message_bytes,num_devices,dtype,topology_tier,Duration(us),bandwidth_gbps`` and, for other libraries than
HCCL, ``Backend``. One row per key (message_bytes, num_devices, topology_tier), because a consumer takes the first row
that fits and ignores the dtype; one dtype a directory for the same reason.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import attrs

from perfcollect_core.errors import TableError, UsageError
from perfcollect_core.tables.atomic import replace_file
from perfcollect_core.tables.encoding import read_text

from .collectives import Collective

__all__ = [
    "BACKEND_COLUMN",
    "COLUMNS",
    "CommRow",
    "export_rows",
    "merge_rows",
    "read_rows",
    "render_rows",
    "write_rows",
]

COLUMNS = ("message_bytes", "num_devices", "dtype", "topology_tier", "Duration(us)", "bandwidth_gbps")
BACKEND_COLUMN = "Backend"
_LATENCY_COLUMNS = ("Average Duration(us)", "Profiling Average Duration(us)", "Duration(us)")


@attrs.frozen
class CommRow:
    """One measured key. ``backend`` is empty for HCCL tables, which have no such column."""

    message_bytes: int
    num_devices: int
    dtype: str
    topology_tier: int
    duration_us: float
    backend: str = ""

    @property
    def key(self) -> tuple[int, int, int]:
        return self.message_bytes, self.num_devices, self.topology_tier

    @property
    def bandwidth_gbps(self) -> float:
        """m / duration in GB/s, decimal, as the tables have always held it; not comparable between collectives."""
        return self.message_bytes / self.duration_us / 1e3

    def cells(self) -> dict[str, str]:
        return {
            "message_bytes": str(self.message_bytes),
            "num_devices": str(self.num_devices),
            "dtype": self.dtype,
            "topology_tier": str(self.topology_tier),
            "Duration(us)": f"{self.duration_us:.2f}",
            "bandwidth_gbps": f"{self.bandwidth_gbps:.6f}",
            BACKEND_COLUMN: self.backend,
        }


def read_rows(path: Path) -> tuple[CommRow, ...]:
    """Read a table.

    Raises:
        TableError: A Git LFS pointer, bytes that are not UTF-8, a missing column, or a cell that is not a number.
    """
    text = read_text(path)
    reader = csv.DictReader(io.StringIO(text, newline=""))
    header = tuple(reader.fieldnames or ())
    latency = next((name for name in _LATENCY_COLUMNS if name in header), None)
    missing = [name for name in ("message_bytes", "num_devices") if name not in header]
    if missing or latency is None:
        wanted = ", ".join([*missing, *([] if latency else ["Duration(us)"])])
        raise TableError(
            f"{path} lacks the column {wanted}", path=path, line=1, hint="is it an hcom_* table?"
        )
    rows = []
    for cells in reader:
        try:
            row = CommRow(
                int(cells["message_bytes"]),
                int(cells["num_devices"]),
                (cells.get("dtype") or "").strip(),
                int(cells.get("topology_tier") or 0),
                float(cells[latency] or "nan"),
                (cells.get(BACKEND_COLUMN) or "").strip(),
            )
        except (TypeError, ValueError) as error:
            raise TableError(
                f"{path}, line {reader.line_num}: {error}",
                path=path,
                line=reader.line_num,
                hint="mend the row",
            ) from None
        rows.append(row)
    return tuple(rows)


def merge_rows(old: Iterable[CommRow], new: Iterable[CommRow]) -> tuple[CommRow, ...]:
    """Let each new row replace the old one of its key; the result is sorted by n, tier and size.

    Raises:
        UsageError: The rows hold two dtypes or two backends.
    """
    merged: dict[tuple[int, int, int], CommRow] = {}
    for row in (*old, *new):
        merged[row.key] = row
    rows = sorted(merged.values(), key=lambda row: (row.num_devices, row.topology_tier, row.message_bytes))
    for name, values in (
        ("dtype", {r.dtype for r in rows}),
        ("backend", {r.backend or "hccl" for r in rows}),
    ):
        if len(values) > 1:
            raise UsageError(
                f"two values of {name} in one table, {' and '.join(sorted(values))}: consumers could not tell them apart",
                hint="export to another directory, one dtype and one backend each",
            )
    return tuple(rows)


def render_rows(rows: Sequence[CommRow]) -> bytes:
    """Return the bytes of a table; the backend column is there only where a row has one."""
    columns = (*COLUMNS, BACKEND_COLUMN) if any(row.backend for row in rows) else COLUMNS
    out = io.StringIO(newline="")
    writer = csv.DictWriter(out, columns, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    writer.writerows(row.cells() for row in rows)
    return out.getvalue().encode()


def write_rows(path: Path, rows: Sequence[CommRow]) -> None:
    """Replace *path* whole: a reader sees the old table or the new one.

    Raises:
        TableError: It cannot be written; the old table is still there.
    """
    replace_file(path, render_rows(rows))


def export_rows(
    directory: Path, rows_by_op: Mapping[Collective, Sequence[CommRow]], output: Path | None = None
) -> dict[Path, tuple[CommRow, ...]]:
    """Merge measured rows into the tables of *directory* (or the one file *output*) and return what was written.

    Everything is merged before the first write, so that a refused dtype leaves all files as they were.
    """
    merged = {}
    for op, rows in rows_by_op.items():
        path = output or directory / op.file_name
        merged[path] = merge_rows(read_rows(path) if path.exists() else (), rows)
    directory.mkdir(parents=True, exist_ok=True)
    for path, rows in merged.items():
        write_rows(path, rows)
    return merged
