"""Read every profiler file of a ``parse`` and say what was used, what was not, and why."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path

import attrs

from perfcollect_core.errors import DataError, UsageError

from .collecting import Collector, Selection
from .discover import Discovery, ProfileFile
from .groups import KernelRow
from .headers import ProfileHeader, read_header
from .layouts import STEP
from .ledger import FileLedger
from .table_names import assign_tables

__all__ = ["Profile", "Unreadable", "open_files", "parse_steps", "read_profile"]


@attrs.frozen
class Unreadable:
    """A file that could not be read, and why."""

    path: Path
    error: DataError


@attrs.frozen
class Profile:
    """What profiler files say.

    Attributes:
        rows: Rows by kernel type, in order of first appearance.
        tables: Table names by kernel type.
        ledgers: The account of each file.
    """

    rows: Mapping[str, tuple[KernelRow, ...]]
    tables: Mapping[str, str]
    ledgers: tuple[FileLedger, ...]


def parse_steps(texts: Iterable[str]) -> frozenset[str] | None:
    """Parse ``--steps``: values of ``Step Id`` and ranges of them (``10,12-15``); ``None`` where nothing is said."""
    steps: set[str] = set()
    for word in filter(None, (part.strip() for part in ",".join(texts).split(","))):
        first, dash, last = word.partition("-")
        if dash and first.isdecimal() and last.isdecimal():
            steps.update(map(str, range(int(first), int(last) + 1)))
        elif word.isdecimal():
            steps.add(str(int(word)))
        else:
            raise UsageError(f"--steps {word!r} is no number or range", hint="for example --steps 10,12-15")
    return frozenset(steps) or None


def open_files(
    discovery: Discovery, named: Collection[Path], steps: frozenset[str] | None
) -> tuple[list[tuple[ProfileFile, ProfileHeader]], list[Unreadable]]:
    """Read every header before any body, so that a file of another kind is refused before work.

    Raises:
        DataError: A file in *named* cannot be read, or none can.
    """
    opened, unreadable = [], []
    for file in discovery.files:
        try:
            header = read_header(file.path)
            if steps is not None and STEP not in header.columns:
                raise DataError(
                    f"{file.path} has no column {STEP!r}, so --steps cannot choose among its rows",
                    hint="take the profile with a step schedule, or leave --steps out",
                )
        except DataError as error:
            unreadable.append(Unreadable(file.path, error))
        else:
            opened.append((file, header))
    refused = [entry for entry in unreadable if entry.path in named]
    if refused or (unreadable and not opened):
        _refuse(refused or unreadable)
    return opened, unreadable


def _refuse(unreadable: Sequence[Unreadable]) -> None:
    if len(unreadable) == 1:
        raise unreadable[0].error
    hints = dict.fromkeys(entry.error.hint for entry in unreadable if entry.error.hint)
    raise DataError(
        f"{len(unreadable)} files cannot be read: " + "; ".join(str(entry.error) for entry in unreadable),
        hint="; ".join(hints) or None,
    )


def read_profile(
    opened: Sequence[tuple[ProfileFile, ProfileHeader]],
    *,
    steps: frozenset[str] | None = None,
    existing: Collection[str] = (),
    advance: Callable[[int], None] = lambda _: None,
) -> Profile:
    """Read *opened* files one after the other; *existing* names the tables that are there.

    *advance* is called with the number of bytes read.
    """
    refused: dict[str, str] = {}
    while True:
        collector = Collector(Selection(steps), several=len(opened) > 1, refused=refused)
        for file, header in opened:
            ledger = FileLedger(file.path, header.layout.name, file.rank, file.capture)
            collector.read(header, ledger, source=file.source, advance=advance)
        operators = dict.fromkeys(group.operator for group in collector.groups.items)
        tables, newly = assign_tables(operators, existing)
        if not newly:
            break
        # Rare: read again, so that each row of a type without a table is set aside with its line.
        refused |= newly
    collector.groups.resolve_open()
    rows: dict[str, list[KernelRow]] = {}
    for row in collector.groups.rows():
        rows.setdefault(row.operator, []).append(row)
    return Profile(
        {operator: tuple(found) for operator, found in rows.items()}, tables, tuple(collector.ledgers)
    )
