"""Ask an operator whether it can replay generated rows."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence

from perfcollect_core.cases import Row, RunRequest
from perfcollect_core.host import OperatorHost
from perfcollect_core.specs import OperatorSpec

from .cells import row_of
from .theory import TheoryRow

__all__ = ["PlanCheck"]


class PlanCheck:
    """Asks the operator whether it can replay a row, and whether another row already asks for the same work."""

    def __init__(
        self,
        host: OperatorHost | None,
        spec: OperatorSpec,
        existing: Sequence[Row],
        *,
        table: str,
        family: str,
        drop: Callable[[str], None],
    ) -> None:
        self._host, self._spec, self._table, self._family, self._drop = host, spec, table, family, drop
        self._canonical: Collection[tuple[str, ...]] = (
            {host.canonical_key(spec, row) for row in existing} if host else ()
        )
        # Rows of one work share the output or the first input; for all others the key need not be made.
        self._outputs = {row.ref.key[4] for row in existing}
        self._firsts = {row.ref.key[1].partition(";")[0] for row in existing}

    def accepted(self, rows: Sequence[TheoryRow]) -> list[TheoryRow]:
        """Return those of *rows* that a run would take up; the others are counted by reason."""
        host, spec = self._host, self._spec
        if host is None or not rows:
            return list(rows)
        written = [row_of(self._table, spec.name, row) for row in rows]
        matched = host.match_rows(spec, written, RunRequest(self._family))
        refused = {id(row): skip for row, skip in matched.skips}
        kept = []
        for row, text in zip(rows, written, strict=True):
            skip = refused.get(id(text))
            if skip is not None:
                self._drop(f"refused by {spec.name}: {_general(skip.reason)}")
            elif self._may_repeat(text) and host.canonical_key(spec, text) in self._canonical:
                self._drop("same work as a row of the table")
            else:
                kept.append(row)
        return kept

    def _may_repeat(self, row: Row) -> bool:
        key = row.ref.key
        return key[4] in self._outputs or key[1].partition(";")[0] in self._firsts


def _general(reason: str) -> str:
    """Return *reason* without its numbers, so that equal reasons count together."""
    return re.sub(r"[0-9]+(?:,[0-9]+)*", "#", reason)
