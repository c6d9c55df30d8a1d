"""Which tables of a database a run replays, and under which operator."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Mapping
from pathlib import Path

import attrs

from perfcollect_core.discovery import operator_name, plugin_index
from perfcollect_core.errors import DataError, PluginError, UsageError
from perfcollect_core.loading import load_provider
from perfcollect_core.specs import OperatorSpec
from perfcollect_core.tables.read import is_collective_table, table_paths

from .options import RunOptions

__all__ = ["TableChoice", "choose_tables", "what_to_do"]


@attrs.frozen
class TableChoice:
    """Tables to replay with the operator of each (as typed), whether they were named, and what nobody replays."""

    tables: tuple[tuple[Path, str], ...]
    named: bool
    unclaimed: tuple[str, ...] = ()


def choose_tables(database: Path, options: RunOptions) -> TableChoice:
    """Choose the tables of a run: those named, else every one an installed operator claims by name or alias.

    Raises:
        DataError: An operator was named that has no table.
        UsageError: ``--table`` names a file that is not there.
    """
    present = {path.name: path for path in table_paths(database, collectives=True)}
    chosen: list[tuple[Path, str]] = []
    for file, operator in options.tables.items():
        name = file if file.endswith(".csv") else f"{file}.csv"
        if name not in present:
            raise UsageError(f"--table {file}={operator}: no table {name} in {database}")
        chosen.append((present[name], operator))
    for text in options.operators:
        chosen.append(_named(text, database, present))
    if chosen:
        return TableChoice(tuple(dict.fromkeys(chosen)), named=True)
    return _all_claimed({name: path for name, path in present.items() if not is_collective_table(path)})


def _named(text: str, database: Path, present: Mapping[str, Path]) -> tuple[Path, str]:
    distribution, name = operator_name(text)
    file = f"{name}.csv"
    if not plugin_index().providers("operators", name) and file in present:
        owner = _aliases().get(name)
        if owner is not None:
            return present[file], owner
    # The operator's name is checked first: a misspelt one deserves suggestions, not a list of files.
    plugin_index().require("operators", name, distribution)
    if file in present:
        return present[file], text
    raise DataError(
        f"operator {name!r} has no table in {database}, expected {file}",
        hint=f"there are {_listed(present)}; perfcollect db init makes one",
    )


def _all_claimed(present: Mapping[str, Path]) -> TableChoice:
    known = set(plugin_index().names("operators"))
    others = [path for path in present.values() if path.stem not in known]
    # Aliases stand in the specs, whose modules are imported only where a table's own name says nothing.
    owners = _aliases() if others else {}
    tables = [
        (path, path.stem if path.stem in known else owners.get(path.stem, "")) for path in present.values()
    ]
    unclaimed = tuple(path.name for path in others if path.stem not in owners)
    return TableChoice(tuple((path, owner) for path, owner in tables if owner), False, unclaimed)


def _aliases() -> dict[str, str]:
    """Return alias -> operator over every installed operator that loads; the first by name wins."""
    owners: dict[str, str] = {}
    for name in sorted(plugin_index().names("operators")):
        try:
            spec = _spec(name)
        except PluginError:
            # Not asked for: a broken plugin is doctor's business.
            continue
        for alias in spec.aliases if spec is not None else ():
            owners.setdefault(alias, name)
    return owners


def _spec(name: str) -> OperatorSpec | None:
    plugin = load_provider(plugin_index().require("operators", name)).plugin
    describe = getattr(plugin, "perfcollect_operator_spec", None)
    found = describe(operator=name) if callable(describe) else None
    return found if isinstance(found, OperatorSpec) else None


def what_to_do(table: str) -> str:
    """Say what to do with a table that no operator claims."""
    stem = Path(table).stem
    names = plugin_index().names("operators")
    close = [n for n in names if stem.startswith(n)] or difflib.get_close_matches(stem, names, n=1)
    operator = max(close, key=len) if close else "OPERATOR"
    return f"no installed operator claims {table}; replay it with --table {table}={operator}, or install its plugin"


def _listed(names: Collection[str]) -> str:
    ordered = sorted(names)
    shown = ", ".join(ordered[:8]) or "none"
    return f"{shown} and {len(ordered) - 8} more" if len(ordered) > 8 else shown
