"""Write docs/operators.md from the specs of the installed operator distributions: ``python docs/generate_operators.py``.

``--check`` writes nothing and exits with 1 where the page is not current.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib.metadata import entry_points
from pathlib import Path

from perfcollect_core import Case, OperatorSpec, Slot, split_slots
from perfcollect_core.host import OperatorHost
from perfcollect_core.loading import load_operator
from perfcollect_core.testing.replay import host_for, make_row

__all__ = ["DISTRIBUTIONS", "FIELDS", "PAGE", "describe", "operator_names", "render"]

DISTRIBUTIONS = ("perfcollect-ops-builtin", "perfcollect-ops-vllm-ascend")
FIELDS = ("API", "Slots", "Values", "Assumed", "Refused", "Examples")
PAGE = Path(__file__).with_name("operators.md")

_HEAD = """# Operators

One section for each kernel type that perfcollect replays. Generated from the operators' own specs by
`python docs/generate_operators.py`; a test keeps it current. *Assumed* is what the row does not record (each case says
which of it applied), *refused* is an example of a row that ends as `invalid_case`, with the reason it is given.
"""


def operator_names(distribution: str) -> list[str]:
    """Return the kernel types *distribution* offers, sorted without regard to case."""
    found = entry_points(group="perfcollect.operators")
    names = {entry.name for entry in found if entry.dist is not None and entry.dist.name == distribution}
    return sorted(names, key=str.lower)


def describe(operator: str) -> dict[str, str]:
    """Return the fields of one operator's section; an empty text means that its spec says nothing."""
    host = host_for(operator, load_operator(operator).plugin)
    spec = host.spec()
    fields = {
        "Summary": spec.summary,
        "API": _api(spec),
        "Slots": _slots(spec.inputs) + " -> " + _slots(spec.outputs) if spec.inputs and spec.outputs else "",
        "Values": spec.value_policy,
        "Assumed": "; ".join(spec.assumptions),
        "Refused": "; ".join(_refusal(host, spec, cells) for cells in spec.negative),
        "Examples": "; ".join(_row(cells) for cells in spec.examples),
    }
    extra = {
        "Aliases": ", ".join(f"`{name}`" for name in spec.aliases),
        "Key columns": ", ".join(f"`{name}`" for name in spec.key_columns),
        "Needs": ", ".join(f"{need.kind} `{need.name}` ({', '.join(need.families)})" for need in spec.needs),
    }
    return {**fields, **{name: text for name, text in extra.items() if text}}


def _api(spec: OperatorSpec) -> str:
    calls: dict[str, list[str]] = {}
    for family in spec.families:
        calls.setdefault(spec.api.get(family, ""), []).append(family)
    if "" in calls:
        return ""
    return ", ".join(f"`{call}` ({', '.join(families)})" for call, families in calls.items())


def _slots(slots: tuple[Slot, ...]) -> str:
    return ", ".join(_slot(index, slot) for index, slot in enumerate(slots))


def _slot(index: int, slot: Slot) -> str:
    kinds = [word for word, holds in (("optional", slot.optional), ("not built", slot.metadata)) if holds]
    notes = "; ".join(filter(None, (slot.text, *(kind for kind in kinds if kind not in slot.text))))
    return f"{index} `{slot.name}`" + (f" ({notes})" if notes else "")


def _row(cells: Mapping[str, str]) -> str:
    left, right = (
        f"{cells.get(f'{side} Shapes', '')} | {cells.get(f'{side} Data Types', '')}".replace('"', "")
        for side in ("Input", "Output")
    )
    if len(split_slots(cells.get("Input Shapes"))) > 12:
        left = f"{left[:100]}..."
    return f"`{left} -> {right}`"


def _refusal(host: OperatorHost, spec: OperatorSpec, cells: Mapping[str, str]) -> str:
    made = host.make_case(spec, make_row(spec.name, cells))
    reason = "refused when its inputs are built" if isinstance(made, Case) else made.reason
    return f"{_row(cells)}: {reason}"


def render() -> str:
    """Return the page."""
    parts = [_HEAD]
    for distribution in DISTRIBUTIONS:
        parts.append(f"## {distribution}\n")
        for operator in operator_names(distribution):
            fields = describe(operator)
            summary = fields.pop("Summary").rstrip(".")
            lines = [f"- {name}: {text}" for name, text in fields.items()]
            parts.append("\n".join((f"### {operator}", "", f"{summary}.", "", *lines, "")))
    return "\n".join(parts)


def main() -> int:
    """Write the page, or compare it."""
    page = render()
    if "--check" in sys.argv[1:]:
        return 0 if PAGE.exists() and PAGE.read_text(encoding="utf-8") == page else 1
    PAGE.write_text(page, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
