"""How many lines an operator takes, its data included, and how long the longest module is."""

from __future__ import annotations

import ast
import re
import statistics
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from figures import Figure, print_figures

__all__ = ["declared_lines", "module_lines", "operator_figures"]

_ROOT = Path(__file__).resolve().parents[1]
_DISTRIBUTIONS = ("perfcollect_ops_builtin", "perfcollect_ops_vllm_ascend")
#: Operators the target is about: one torch call each.
_SIMPLE_MODULES = ("elementwise", "norms")
#: Lines per operator of the predecessor, whose operators had neither a reference nor inference nor example rows.
_PREDECESSOR_LINES = 63


def declared_lines() -> dict[str, tuple[str, int]]:
    """Return operator -> (module, lines of its declaration and of the example rows it names)."""
    found: dict[str, tuple[str, int]] = {}
    for distribution in _DISTRIBUTIONS:
        package = _ROOT / distribution / "src" / distribution
        text = (_ROOT / distribution / "pyproject.toml").read_text(encoding="utf-8")
        for name, module, attribute in re.findall(
            r'^"?([\w.-]+)"? = "[\w.]+\.(\w+):(\w+)"$', text, re.MULTILINE
        ):
            source = package / f"{module}.py"
            if source.exists():
                lines = _lines_of(source, attribute, package)
                if lines:
                    found[name] = (module, lines)
    return found


def module_lines() -> dict[str, float]:
    """Return operator -> lines of its module, shared evenly between the operators in it."""
    module_of: dict[str, Path] = {}
    for distribution in _DISTRIBUTIONS:
        text = (_ROOT / distribution / "pyproject.toml").read_text(encoding="utf-8")
        for name, module in re.findall(
            r'^"?([\w.-]+)"? = "perfcollect_ops_\w+\.(\w+)(?::\w+)?"$', text, re.MULTILINE
        ):
            source = _ROOT / distribution / "src" / distribution / f"{module}.py"
            if source.exists():
                module_of[name] = source
    sharing = Counter(module_of.values())
    return {
        name: len(source.read_text(encoding="utf-8").splitlines()) / sharing[source]
        for name, source in sorted(module_of.items())
    }


def _percentile_90(counts: Iterable[float]) -> float:
    ordered = sorted(counts)
    return ordered[min(len(ordered) - 1, int(0.9 * len(ordered)))]


def _lines_of(source: Path, attribute: str, package: Path) -> int:
    for node in ast.parse(source.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and any(
            isinstance(t, ast.Name) and t.id == attribute for t in node.targets
        ):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            for text in ast.walk(node.value):
                if (
                    isinstance(text, ast.Constant)
                    and isinstance(text.value, str)
                    and text.value.endswith(".csv")
                ):
                    examples = package / text.value
                    if examples.exists():
                        lines += len(examples.read_text(encoding="utf-8").splitlines())
            return lines
    return 0


def operator_figures() -> list[Figure]:
    """Count declarations and modules of this checkout."""
    declared = declared_lines()
    figures = []
    if declared:
        counts = sorted(lines for _, lines in declared.values())
        p90 = counts[min(len(counts) - 1, int(0.9 * len(counts)))]
        simple = {name: lines for name, (module, lines) in declared.items() if module in _SIMPLE_MODULES}
        longest = max(simple, key=simple.__getitem__, default="")
        figures.append(
            Figure(
                "lines of a declared operator, data included",
                f"median {statistics.median(counts):g}, p90 {p90}",
                "<= 15 element-wise, norm",
                simple[longest] <= 15 if simple else None,
                f"{len(counts)} declared operators; longest element-wise or norm one: {longest} {simple.get(longest, 0)}",
            )
        )
    shared = module_lines()
    figures.append(
        Figure(
            "module lines an operator",
            f"median {statistics.median(shared.values()):g}, p90 {_percentile_90(shared.values()):g}",
            f"predecessor {_PREDECESSOR_LINES}",
            None,
            f"{len(shared)} operators; inference, values, reference, cost and both bindings included",
        )
    )
    modules = {
        path: len(path.read_text(encoding="utf-8").splitlines())
        for distribution in (*_DISTRIBUTIONS, "perfcollect_core", "perfcollect_comm")
        for path in (_ROOT / distribution / "src").rglob("*.py")
        if "templates" not in path.parts
    }
    worst = max(modules, key=modules.__getitem__)
    figures.append(
        Figure(
            "longest module",
            f"{modules[worst]} lines",
            "<= 300 lines",
            modules[worst] <= 300,
            f"{worst.relative_to(_ROOT)}; median {statistics.median(modules.values()):g} of {len(modules)} modules",
        )
    )
    return figures


if __name__ == "__main__":
    print_figures(operator_figures())
