"""The hooks a plugin may implement.

"Parent" hooks run in the process that owns the tables and must not import torch; "worker" hooks run in the process
that owns the device and must not touch tables. Every hook is first-result: ``None`` declines, and the next plugin is
asked (operator, then wrappers, then device family, then core's defaults); any other value is an answer, an empty one
too. Implementations may take fewer arguments than the specification, never others.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from .cases import Case, Cost, MatchedRows, Row, RunRequest, Skip
from .environment import Device
from .markers import hookspec
from .measurements import Inputs, Kernel, Measurement, Plan, Reference, Samples
from .specs import GridRequest, OperatorSpec

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = [
    "HOOKS",
    "perfcollect_bind_kernel",
    "perfcollect_canonical_key",
    "perfcollect_estimate_cost",
    "perfcollect_generate_rows",
    "perfcollect_make_case",
    "perfcollect_make_inputs",
    "perfcollect_match_rows",
    "perfcollect_measure",
    "perfcollect_operator_spec",
    "perfcollect_reference",
    "perfcollect_write_back",
]


@hookspec(firstresult=True)
def perfcollect_operator_spec(operator: str) -> OperatorSpec | None:
    """Describe *operator*. Parent; required of an operator plugin. Called once per process."""


@hookspec(firstresult=True)
def perfcollect_match_rows(
    spec: OperatorSpec, rows: Sequence[Row], request: RunRequest
) -> MatchedRows | None:
    """Match the selected *rows* of a table to cases. Parent.

    Default: every row through ``perfcollect_make_case``. Each row must come back, as a case or as a skip.
    """


@hookspec(firstresult=True)
def perfcollect_make_case(spec: OperatorSpec, row: Row) -> Case | Skip | None:
    """Turn one row into the call it describes. Parent.

    Return ``Skip.invalid(reason)`` where no such call can be made, ``Skip(reason)`` where it can but not here.
    Default: the tensors of the signature, named after ``spec.inputs``, absent and metadata slots left out.
    """


@hookspec(firstresult=True)
def perfcollect_canonical_key(spec: OperatorSpec, row: Row) -> tuple[str, ...] | None:
    """Return the key that rows of equal work share, as plain text. Parent; once per distinct row.

    Default: the normalised signature and the values of ``spec.key_columns``.
    """


@hookspec(firstresult=True)
def perfcollect_generate_rows(
    spec: OperatorSpec, templates: Sequence[Row], request: GridRequest
) -> Iterable[Mapping[str, str] | tuple[object, ...]] | None:
    """Generate theory rows lazily and in a fixed order: cells by column, or ``grid.theory.TheoryRow``. Parent.

    Default: none.
    """


@hookspec(firstresult=True)
def perfcollect_estimate_cost(case: Case) -> Cost | None:
    """Estimate the work of *case*. Parent. Default: no operations, the bytes of its tensors."""


@hookspec(firstresult=True)
def perfcollect_make_inputs(case: Case, device: Device) -> Inputs | None:
    """Build seeded, realistic inputs on *device*; never uninitialised memory. Worker; once per case, untimed.

    Default: each of ``case.tensors`` by dtype (floats N(0, 1), int8 full range, other integers 0..7, bool fair).
    """


@hookspec(firstresult=True)
def perfcollect_bind_kernel(case: Case, inputs: Inputs, device: Device) -> Kernel | None:
    """Return the call to measure. Worker; required of an operator plugin. It is called directly, never via pluggy."""


@hookspec(firstresult=True)
def perfcollect_reference(case: Case, inputs: Inputs, device: Device) -> Reference | None:
    """Compute an independent answer in higher precision, for ``--check`` and conformance. Worker.

    Must not change *inputs* and must not call what ``perfcollect_bind_kernel`` bound. Default: none.
    """


@hookspec(firstresult=True)
def perfcollect_measure(case: Case, kernel: Kernel, plan: Plan, device: Device) -> Samples | None:
    """Measure *kernel* as *plan* says and return one duration per launch, in microseconds. Worker; once per case.

    Default: the device family's ``measure``. Wrappers go around it; an operator may override it (collectives).
    """


@hookspec(firstresult=True)
def perfcollect_write_back(
    case: Case, measurement: Measurement, rows: Sequence[Row]
) -> Sequence[Mapping[str, str]] | None:
    """Return the cells to set in each of *rows*, in their order. Parent. Default: duration, core and provenance."""


HOOKS: tuple[str, ...] = tuple(name for name in __all__ if name.startswith("perfcollect_"))
