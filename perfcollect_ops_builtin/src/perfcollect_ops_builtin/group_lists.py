"""How many rows each group of a grouped product gets: policies, and the list a kernel takes.

Shapes do not record routing, and cost depends on it: a list that gives every expert the same number of rows is the
best case. The default draws rows at random, as balanced routing does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from perfcollect_core import Case, Device, Row
from perfcollect_core.cases import Param

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["GROUP_COLUMNS", "GroupPolicy", "busy_groups", "group_spans", "make_group_list", "read_policy"]

GROUP_COLUMNS = (
    "Runtime group_list_type",
    "Runtime group_distribution",
    "Runtime active_rows",
    "Runtime seed",
)
_DISTRIBUTIONS = ("multinomial", "uniform", "zipf")
_ZIPF_EXPONENT = 1.0
CUMULATIVE, COUNTS, SPARSE = 0, 1, 2


@attrs.frozen
class GroupPolicy:
    """What a row says, or does not say, about its group list."""

    groups: int
    active_rows: int
    list_type: int
    distribution: str
    seed: int | None
    assumptions: tuple[str, ...] = ()

    def params(self) -> dict[str, Param]:
        """Return the policy as parameters of a case."""
        return {
            "groups": self.groups,
            "active_rows": self.active_rows,
            "group_list_type": self.list_type,
            "group_distribution": self.distribution,
            "group_seed": self.seed,
        }


def read_policy(
    row: Row, *, groups: int, rows: int, sparse: bool = False, list_type: int | None = None
) -> GroupPolicy | str:
    """Read the group list's policy off the metadata columns, or say which value cannot be.

    *list_type* is the one type of an operator that takes no other.
    """
    numbers: dict[str, int | None] = {}
    for column in ("Runtime group_list_type", "Runtime active_rows", "Runtime seed"):
        text = row.get(column)
        if text and not (text.isascii() and text.isdecimal()):
            return f"column {column!r} is {text!r}, expected a non-negative integer"
        numbers[column] = int(text) if text else None
    notes = []
    if list_type is None:
        list_type = numbers["Runtime group_list_type"]
    if list_type is None:
        list_type = SPARSE if sparse else CUMULATIVE
        if not sparse:
            notes.append("group_list_type=0 (not recorded, cumulative)")
    if list_type not in (CUMULATIVE, COUNTS, SPARSE) or (list_type == SPARSE) != sparse:
        wanted = (
            "2 for a list of pairs" if sparse else "0 (cumulative) or 1 (counts) for a list of one column"
        )
        return f"column 'Runtime group_list_type' is {list_type}, expected {wanted}"
    active = numbers["Runtime active_rows"]
    if active is not None and active > rows:
        return f"column 'Runtime active_rows' is {active}, the group list cannot sum to more than M={rows}"
    distribution = row.get("Runtime group_distribution").lower()
    if not distribution:
        distribution = "multinomial"
        notes.append("group_distribution=multinomial (not recorded, balanced routing)")
    if distribution not in _DISTRIBUTIONS:
        return (
            f"column 'Runtime group_distribution' is {distribution!r}, expected {', '.join(_DISTRIBUTIONS)}"
        )
    return GroupPolicy(
        groups,
        rows if active is None else active,
        list_type,
        distribution,
        numbers["Runtime seed"],
        tuple(notes),
    )


def busy_groups(case: Case) -> float:
    """Return how many groups are expected to get a row: only their weights are read."""
    groups, rows = int(str(case.params["groups"])), int(str(case.params["active_rows"]))
    if case.params["group_distribution"] == "uniform":
        return min(groups, rows)
    # A skewed draw leaves more groups empty; the balanced one is the upper bound.
    return groups * (1.0 - (1.0 - 1.0 / groups) ** rows)


def make_group_list(case: Case, device: Device) -> Tensor:
    """Draw the group list of *case* in its list type. Worker."""
    import torch

    from perfcollect_core import ValueMaker

    counts = _draw_counts(case)
    list_type = case.params["group_list_type"]
    if list_type == CUMULATIVE:
        values = torch.cumsum(counts, 0)
    elif list_type == COUNTS:
        values = counts
    else:
        # Pairs of (group, rows), groups without rows last.
        order = torch.argsort((counts == 0).to(torch.int8), stable=True)
        values = torch.stack([order, counts[order]], dim=1)
    return ValueMaker(case.seed, device).tensor(values, "INT64")


def _draw_counts(case: Case) -> Tensor:
    import torch

    groups, rows = int(str(case.params["groups"])), int(str(case.params["active_rows"]))
    distribution, seed = case.params["group_distribution"], case.params["group_seed"]
    if distribution == "uniform":
        counts = torch.full((groups,), rows // groups, dtype=torch.int64)
        counts[: rows % groups] += 1
        return counts
    generator = torch.Generator().manual_seed(case.seed if seed is None else int(str(seed)))
    weights = torch.ones(groups, dtype=torch.float64)
    if distribution == "zipf":
        ranks = torch.arange(1, groups + 1, dtype=torch.float64) ** -_ZIPF_EXPONENT
        weights = ranks[torch.randperm(groups, generator=generator)]
    if rows == 0:
        return torch.zeros(groups, dtype=torch.int64)
    drawn = torch.multinomial(weights, rows, replacement=True, generator=generator)
    return torch.bincount(drawn, minlength=groups)


def group_spans(group_list: Tensor, list_type: int) -> list[tuple[int, int, int]]:
    """Return (group, first row, end row) of each group with rows, in row order. Worker; waits for the device."""
    values = group_list.tolist()
    if list_type == SPARSE:
        pairs = [(int(group), int(count)) for group, count in values]
    elif list_type == COUNTS:
        pairs = list(enumerate(values))
    else:
        pairs = [(g, end - start) for g, (start, end) in enumerate(zip([0, *values], values, strict=False))]
    found, row = [], 0
    for group, count in pairs:
        if count:
            found.append((group, row, row + count))
        row += count
    return found
