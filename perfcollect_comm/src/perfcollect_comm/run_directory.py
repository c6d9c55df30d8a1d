"""The directory of a sweep: what was asked, every finished configuration, the logs of the ranks."""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

from perfcollect_core.errors import TableError, UsageError

from .collectives import COLLECTIVES, bandwidths_gbps, comm_dtype
from .plan import CommPlan
from .sweep import ConfigOutcome
from .tables import CommRow

__all__ = ["RunDirectory", "rows_of"]

_JOURNAL = "journal.jsonl"


@attrs.frozen
class RunDirectory:
    """A run directory; each finished configuration is one line of its journal, on disk before the next one starts."""

    path: Path

    @classmethod
    def create(cls, path: Path | None) -> RunDirectory:
        """Make the directory, by default ``./perfcollect-comm/<time>-<pid>``.

        Raises:
            TableError: It cannot be made or written to.
        """
        chosen = path or Path("perfcollect-comm") / f"{time.strftime('%Y%m%dT%H%M%S')}-{os.getpid()}"
        try:
            chosen.mkdir(parents=True, exist_ok=True)
            probe = chosen / f".{os.getpid()}.partial"
            probe.touch()
            probe.unlink()
        except OSError as error:
            raise TableError(
                f"cannot write the run directory {chosen}: {error.strerror}",
                path=chosen,
                hint="give another --run-dir",
            ) from None
        return cls(chosen)

    @property
    def journal(self) -> Path:
        return self.path / _JOURNAL

    @property
    def logs(self) -> Path:
        return self.path / "logs"

    def begin(self, header: Mapping[str, object]) -> None:
        """Write what the run is, first of all."""
        self._append({"run": dict(header)})

    def record(self, outcome: ConfigOutcome) -> None:
        """Write one outcome and force it to disk."""
        self._append(_outcome_line(outcome))

    def _append(self, fields: Mapping[str, object]) -> None:
        try:
            with self.journal.open("ab") as stream:
                # A line torn by a crash must not swallow the next one.
                if stream.tell() and not self._ends_whole():
                    stream.write(b"\n")
                stream.write(json.dumps(fields).encode() + b"\n")
                stream.flush()
                os.fsync(stream.fileno())
        except OSError as error:
            raise TableError(
                f"cannot write {self.journal}: {error.strerror}",
                path=self.journal,
                hint="free space, then go on with --resume",
            ) from None

    def _ends_whole(self) -> bool:
        with self.journal.open("rb") as stream:
            stream.seek(-1, os.SEEK_END)
            return stream.read(1) == b"\n"

    def lines(self) -> Iterator[dict[str, Any]]:
        """Yield the journal's lines, a torn one left out."""
        try:
            text = self.journal.read_bytes()
        except FileNotFoundError:
            raise UsageError(
                f"{self.path} holds no {_JOURNAL}", hint="give the run directory of a perfcollect comm run"
            ) from None
        for line in text.split(b"\n"):
            try:
                fields = json.loads(line)
            except ValueError:
                continue
            if isinstance(fields, dict):
                yield fields

    def header(self) -> dict[str, Any]:
        """Return what the newest run in this directory was asked to do."""
        return next((fields["run"] for fields in reversed(list(self.lines())) if "run" in fields), {})

    def measured(self) -> dict[str, dict[str, Any]]:
        """Return the newest measurement of each configuration key."""
        return {fields["key"]: fields for fields in self.lines() if fields.get("state") == "measured"}

    def failed(self) -> dict[str, dict[str, Any]]:
        """Return the configurations whose newest outcome is a failure."""
        newest = {fields["key"]: fields for fields in self.lines() if "key" in fields}
        return {key: fields for key, fields in newest.items() if fields["state"] == "failed"}


def _outcome_line(outcome: ConfigOutcome) -> dict[str, object]:
    config = outcome.config
    line: dict[str, object] = {
        "key": config.key,
        "state": outcome.state,
        "op": config.op,
        "dtype": config.dtype,
        "n": config.n,
        "tier": config.tier,
        "layout": config.layout,
        "groups": config.groups,
        "asked_bytes": config.size.asked,
        "message_bytes": config.size.message_bytes,
        "rank_input_bytes": config.size.rank_input_bytes,
        "rank_output_bytes": config.size.rank_output_bytes,
        "nccl_bytes": config.size.nccl_bytes,
        "time": time.time(),
    }
    if outcome.state == "launched":
        return {**line, "windows": {rank: attrs.astuple(window) for rank, window in outcome.windows.items()}}
    if outcome.reduced is None:
        return {**line, "failure": outcome.failure, "reason": outcome.reason, "wrong": outcome.wrong}
    reduced = outcome.reduced
    algbw, busbw = bandwidths_gbps(
        COLLECTIVES[config.op], config.n, config.size.message_bytes, reduced.duration_us
    )
    return {
        **line,
        "duration_us": reduced.duration_us,
        "max_over_ranks_us": attrs.asdict(reduced.largest),
        "min_over_ranks_us": attrs.asdict(reduced.smallest),
        "skew_median_us": reduced.skew_median_us,
        "late_rank": reduced.late_rank,
        "rejected_iterations": reduced.rejected,
        "iterations": outcome.iterations,
        "algbw_GBps": algbw,
        "busbw_GBps": busbw,
        "predicted_us": None if math.isnan(config.predicted_us) else config.predicted_us,
        "wrong": outcome.wrong,
        "samples_us": {
            str(rank): [round(v, 3) for v in values] for rank, values in outcome.samples_us.items()
        },
    }


def rows_of(measured: Sequence[Mapping[str, Any]], backend: str, dtype: str) -> dict[str, list[CommRow]]:
    """Return the table rows of measured lines by collective: isolated groups of *dtype* only."""
    table_dtype = comm_dtype(dtype).table
    rows: dict[str, list[CommRow]] = {}
    for fields in measured:
        if len(fields["groups"]) == 1 and fields["dtype"] == comm_dtype(dtype).name:
            row = CommRow(
                fields["message_bytes"],
                fields["n"],
                table_dtype,
                fields["tier"],
                fields["duration_us"],
                "" if backend == "hccl" else backend,
            )
            rows.setdefault(fields["op"], []).append(row)
    return rows


def check_same_plan(directory: RunDirectory, plan: CommPlan, backend: str) -> None:
    """Refuse to resume a run of another plan or backend.

    Raises:
        UsageError: The journal belongs to something else.
    """
    header = directory.header()
    if header and (header.get("backend"), header.get("digest")) != (backend, plan.digest()):
        raise UsageError(
            f"{directory.path} holds a run of backend {header.get('backend')} with plan {header.get('digest')}, "
            f"asked is {backend} with plan {plan.digest()}",
            hint="repeat the options of that run, or start another --run-dir",
        )
