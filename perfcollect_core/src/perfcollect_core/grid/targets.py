"""Choose and read the tables a grid extends: what has a rule, what can be read, what can be written."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import attrs

from perfcollect_core.cases import Row
from perfcollect_core.discovery import operator_name, plugin_index
from perfcollect_core.errors import TableError, UsageError
from perfcollect_core.host import OperatorHost, compose
from perfcollect_core.loading import load_family, load_operator
from perfcollect_core.specs import GridRequest, OperatorSpec
from perfcollect_core.tables.read import Table, is_collective_table, read_table, table_paths

from .data_only import data_only_rule, is_data_only

__all__ = ["GridOptions", "Target", "check_writable", "choose_targets", "drop_headings", "read_targets"]

#: Tables of more rows are read again when their turn comes, so that memory holds one of them at a time.
_KEPT_ROWS = 2000


@attrs.frozen(kw_only=True)
class GridOptions:
    """What was asked for; ``queries`` maps an operator to the cells of rows that come first."""

    request: GridRequest
    rows: int = 1000
    seed: int = 0
    operators: tuple[str, ...] = ()
    queries: Mapping[str, Sequence[Mapping[str, str]]] = attrs.field(factory=dict)
    dry_run: bool = False


@attrs.frozen(eq=False)
class Target:
    """One table to extend, ``table`` as it is or will be, and what rows come from."""

    path: Path
    operator: str
    spec: OperatorSpec
    host: OperatorHost | None
    rule: Callable[[OperatorSpec, Sequence[Row], GridRequest], Iterable[object]]
    created: bool


def choose_targets(
    database: Path, options: GridOptions, family: str, skipped: dict[str, str]
) -> list[Target]:
    """Return the tables to extend; *skipped* takes in those left alone, with the reason.

    Raises:
        UsageError: A table of collectives was named.
    """
    present = {path.stem: path for path in table_paths(database)}
    known = set(plugin_index().names("operators"))
    texts = {operator_name(text)[1]: text for text in options.operators}
    names = sorted(texts) if texts else sorted(present)
    targets = []
    device = load_family(family)
    for name in names:
        path = present.get(name, database / f"{name}.csv")
        if is_collective_table(path):
            raise UsageError(
                f"{path.name} is a table of collectives", hint="perfcollect comm plan has their grid"
            )
        if is_data_only(name) and name not in known:
            if name not in texts:
                skipped[path.name] = f"no operator replays {name}; --ops {name} generates rows all the same"
                continue
            rule, spec, host = data_only_rule(name), OperatorSpec(name, axes=data_only_rule(name).axes), None
            targets.append(Target(path, name, spec, host, rule, name not in present))
            continue
        if name not in known and name not in texts:
            skipped[path.name] = "no rule: no operator of that name is installed"
            continue
        composed = compose(load_operator(texts.get(name, name)), device)
        targets.append(
            Target(path, name, composed.spec(), composed, composed.generate_rows, name not in present)
        )
    return targets


def read_targets(targets: Sequence[Target]) -> dict[Path, Table]:
    """Read every table, or raise one error that names all that cannot be read; large ones are not kept."""
    tables, problems = {}, []
    for target in targets:
        try:
            table = read_table(target.path)
            if len(table.rows) <= _KEPT_ROWS:
                tables[target.path] = table
        except TableError as error:
            problems.append(error)
    if len(problems) == 1:
        raise problems[0]
    if problems:
        hints = dict.fromkeys(p.hint for p in problems if p.hint)
        raise TableError(
            f"{len(problems)} tables cannot be read: {'; '.join(map(str, problems))}",
            hint="no file was changed; " + "; ".join(hints),
            path=problems[0].path,
        )
    return tables


def drop_headings(
    targets: list[Target], tables: Mapping[Path, Table], options: GridOptions, skipped: dict[str, str]
) -> None:
    """Leave out tables that are a heading alone, unless they are named."""
    for target in list(targets):
        table = tables.get(target.path)
        if table is not None and not table.rows and not options.operators:
            targets.remove(target)
            skipped[target.path.name] = (
                f"has a header and no row; --ops {target.operator} fills it from the operator's rule"
            )


def check_writable(paths: Sequence[Path], dry_run: bool) -> None:
    """Raise where one of *paths* is there and read-only."""
    if dry_run:
        return
    locked = [path for path in paths if path.exists() and not path.stat().st_mode & 0o222]
    if locked:
        raise TableError(
            f"{', '.join(map(str, locked))} cannot be written: read-only",
            hint="no file was changed; give yourself write access (chmod u+w), or extend a copy with --out",
            path=locked[0],
        )
