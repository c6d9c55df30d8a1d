"""Rows, the cases made of them, and what becomes of a case."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, Union, get_args

import attrs

from .tensors import Signature, TensorSpec

__all__ = [
    "FAILURES",
    "Case",
    "Cost",
    "Failure",
    "MatchedRows",
    "Outcome",
    "Param",
    "Row",
    "RowRef",
    "RunRequest",
    "Skip",
]

#: A value that goes to the worker as JSON.
Param = Union[bool, int, float, str, None, "tuple[Param, ...]"]

Failure = Literal[
    "invalid_case",
    "environment",
    "out_of_memory",
    "device_lost",
    "timeout",
    "worker_crashed",
    "wrong_result",
    "not_observed",
]
FAILURES: tuple[str, ...] = get_args(Failure)


@attrs.frozen
class RowRef:
    """Which row of which table: never by line number, which other writers move.

    ``key`` is the row's raw key (``tables/key_columns.toml``), ``occurrence`` counts equal keys from 0.
    """

    table: str
    key: tuple[str, ...]
    occurrence: int = 0


@attrs.frozen
class Row:
    """One row of a table: ``cells`` maps column to text as it stands in the file, quotes and all."""

    ref: RowRef
    cells: Mapping[str, str]

    def get(self, column: str) -> str:
        """Return the stripped text of *column*, empty where it is absent."""
        return (self.cells.get(column) or "").strip().strip('"').strip()


@attrs.frozen
class Case:
    """One call to measure.

    Attributes:
        operator: Kernel type as it stands in the data.
        row: The row that asked for it; ``None`` where the case was generated.
        signature: The tensors the row records.
        tensors: Logical tensors the call needs by argument name (true dimensions, base order), what memory and dtype
            checks look at and what the worker builds. A ``FRACTAL_NZ`` format asks the Ascend binding for a cast.
        params: Scalars the binding needs (``{"transpose_b": True}``); JSON values.
        assumptions: What was assumed because the row does not record it, a short ``name=value (why)`` each.
        ranks: Processes one call needs.
        seed: Seed of its inputs; the same row always gets the same values.
    """

    operator: str
    row: RowRef | None
    signature: Signature
    tensors: Mapping[str, TensorSpec] = attrs.field(factory=dict)
    params: Mapping[str, Param] = attrs.field(factory=dict)
    assumptions: tuple[str, ...] = ()
    ranks: int = 1
    seed: int = 0

    @property
    def outputs(self) -> tuple[TensorSpec, ...]:
        return self.signature.outputs

    def integer(self, name: str) -> int:
        """Return parameter *name*, a whole number."""
        value = self.params[name]
        if not isinstance(value, int):
            raise TypeError(f"parameter {name!r} is {value!r}, expected an integer")
        return value

    def integers(self, name: str) -> tuple[int, ...]:
        """Return parameter *name*, a sequence of whole numbers (JSON makes lists of tuples)."""
        value = self.params[name]
        if not isinstance(value, (tuple, list)):
            raise TypeError(f"parameter {name!r} is {value!r}, expected integers")
        return tuple(int(str(item)) for item in value)


@attrs.frozen
class Skip:
    """Why a row is not measured: ``skipped`` (the row is fine) or ``invalid_case`` (no such call can be made).

    ``reason`` is one sentence a user can act on, naming slot and value.
    """

    reason: str
    kind: Literal["skipped", "invalid_case"] = "skipped"

    @classmethod
    def invalid(cls, reason: str) -> Skip:
        return cls(reason, "invalid_case")


@attrs.frozen
class MatchedRows:
    """The answer of ``perfcollect_match_rows``: every row it was given ends in one of the two."""

    cases: tuple[Case, ...] = ()
    skips: tuple[tuple[Row, Skip], ...] = ()


@attrs.frozen
class RunRequest:
    """What a run asks of an operator: the device family, the ranks one launch may have and plugin options."""

    family: str
    options: Mapping[str, Param] = attrs.field(factory=dict)


@attrs.frozen
class Cost:
    """Work of one call: floating-point (or integer) operations and compulsory bytes to and from memory."""

    flops: float
    nbytes: float


@attrs.frozen
class Outcome:
    """How a selected row ended; ``failure`` is set exactly when ``state`` is ``failed``."""

    state: Literal["measured", "skipped", "failed"]
    reason: str = ""
    failure: Failure | None = None

    def __attrs_post_init__(self) -> None:
        if (self.failure is not None) != (self.state == "failed"):
            raise ValueError(f"outcome {self.state!r} with failure {self.failure!r}")
