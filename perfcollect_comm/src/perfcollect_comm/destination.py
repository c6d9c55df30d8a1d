"""Where the tables of a sweep go, and when they may."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import attrs

from perfcollect_core.errors import DatabaseMismatchError, TableError, UsageError
from perfcollect_core.tables.identity import read_identity

from .collectives import Collective, collective, comm_dtype
from .plan import CommRequest
from .run_directory import RunDirectory, rows_of
from .tables import CommRow, export_rows, merge_rows, read_rows

__all__ = ["Destination"]


@attrs.frozen
class Destination:
    """A directory of ``hcom_*.csv`` tables, one table file, or nothing at all."""

    directory: Path | None
    file: Path | None
    dtype: str
    ops: tuple[str, ...]
    backend: str = "hccl"

    @classmethod
    def from_options(
        cls, directory: Path | None, file: Path | None, request: CommRequest, backend: str, *, named: bool
    ) -> Destination:
        """Check what can be checked without touching the disk.

        Raises:
            UsageError: One file for several collectives, or tables of another library that nobody asked for by name.
        """
        if file is not None and len(set(request.ops)) > 1:
            raise UsageError(
                f"--output-csv with {len(set(request.ops))} collectives, expected one",
                hint="give one of --ops, or --database-path for a table each",
            )
        if (directory or file) and backend != "hccl" and not named:
            raise UsageError(
                f"hcom_* tables would hold durations of {backend}, which no --backend asked for",
                hint=f"add --backend {backend} if that is what you want; the rows then say so",
            )
        return cls(directory, file, request.dtype, request.ops, backend)

    def __str__(self) -> str:
        return f"tables in {self.file or self.directory}" if self else "no tables are written"

    def __bool__(self) -> bool:
        return self.directory is not None or self.file is not None

    def prepare(self) -> None:
        """Make sure that tables can be written, before anything is measured.

        Raises:
            TableError: The directory cannot be made or written.
            DatabaseMismatchError: It is an Ascend database and the library is not HCCL.
        """
        if not self:
            return
        parent = self.directory if self.file is None else self.file.parent
        assert parent is not None
        probe = parent / ".perfcollect-comm.partial"
        try:
            parent.mkdir(parents=True, exist_ok=True)
            probe.touch()
            probe.unlink()
        except OSError as error:
            raise TableError(
                f"cannot write {parent}: {error.strerror}",
                path=parent,
                hint="give another --database-path; nothing was measured",
            ) from None
        identity = read_identity(parent)
        if identity is not None and identity.family == "ascend" and self.backend != "hccl":
            raise DatabaseMismatchError(
                f"{parent} is an Ascend database, this run measures {self.backend}",
                hint="give a directory of its own to the tables of another library",
            )
        self._refuse_mixture()

    def _refuse_mixture(self) -> None:
        """Refuse another dtype or library than the tables already hold, before anything is measured."""
        probe = CommRow(
            1, 2, comm_dtype(self.dtype).table, 0, 1.0, "" if self.backend == "hccl" else self.backend
        )
        for name in self.ops:
            path = self._table(collective(name))
            if path.exists():
                merge_rows(read_rows(path), [probe])

    def _table(self, op: Collective) -> Path:
        return self.file or (self.directory or Path()) / op.file_name

    def export(
        self, run: RunDirectory, backend: str, correction: Path | None = None
    ) -> Mapping[Path, tuple[CommRow, ...]]:
        """Merge what *run* measured into the tables and return what was written."""
        if not self:
            return {}
        measured = list(run.measured().values())
        by_op = {collective(op): rows for op, rows in rows_of(measured, backend, self.dtype).items()}
        if correction is not None:
            overheads = json.loads(correction.read_text(encoding="utf-8"))
            by_op = {
                op: [
                    _corrected(row, float(overheads.get(op.name, {}).get(str(row.num_devices), 0)))
                    for row in rows
                ]
                for op, rows in by_op.items()
            }
        directory = self.directory if self.directory is not None else (self.file or Path()).parent
        return export_rows(directory, by_op, self.file)


def _corrected(row: CommRow, overhead_us: float) -> CommRow:
    return attrs.evolve(row, duration_us=row.duration_us + overhead_us)
