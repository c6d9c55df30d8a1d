"""Which file a kernel type's rows go into, and which types cannot have one."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable

__all__ = ["assign_tables", "file_stem"]

_FORBIDDEN = re.compile(r'[<>:"/\\|?*\x00-\x1f]')
_RESERVED = re.compile(r"(?i:con|prn|aux|nul|com[0-9]|lpt[0-9])(?:\..*)?")


def file_stem(operator: str) -> str:
    """Return the name of an operator's table without its suffix."""
    return _FORBIDDEN.sub("_", operator).strip()


def assign_tables(
    operators: Iterable[str], existing: Collection[str] = ()
) -> tuple[dict[str, str], dict[str, str]]:
    """Give each kernel type the name of its table (``MatMulV2.csv``); the second answer says who gets none, and why.

    Two types whose tables would be one file, on any system, never share it: the type that is spelled as the file
    keeps it (among several, the one whose table is *existing*), the others are refused.
    """
    by_file: dict[str, list[str]] = {}
    refused: dict[str, str] = {}
    for operator in operators:
        stem = file_stem(operator)
        if not stem.strip("._ ") or _RESERVED.fullmatch(stem) or stem.endswith("."):
            refused[operator] = f"type {operator!r} cannot be the name of a table on every system"
        elif stem.lower().startswith("hcom_"):
            refused[operator] = f"type {operator!r} would be the table of a collective"
        else:
            by_file.setdefault(stem.casefold(), []).append(operator)
    assigned: dict[str, str] = {}
    for rivals in by_file.values():
        keeper = rivals[0] if len(rivals) == 1 else _keeper(rivals, existing)
        for operator in rivals:
            if operator == keeper:
                assigned[operator] = f"{file_stem(operator)}.csv"
                continue
            others = " and ".join(repr(name) for name in rivals if name != operator)
            refused[operator] = (
                f"type {operator!r} would share the table {file_stem(operator)}.csv with {others}"
            )
    return assigned, refused


def _keeper(rivals: list[str], existing: Collection[str]) -> str | None:
    exact = [name for name in rivals if file_stem(name) == name]
    held = [name for name in exact if f"{name}.csv" in existing]
    for candidates in (held, exact):
        if len(candidates) == 1:
            return candidates[0]
    return None
