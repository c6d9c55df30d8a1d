"""Core's own answers to the hooks, registered first and therefore asked last."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from .cases import Case, Cost, MatchedRows, Row, RunRequest, Skip
from .environment import Device, DeviceFamily
from .errors import CaseError
from .measurements import Inputs, Kernel, Measurement, Plan, Samples
from .specs import GridRequest, OperatorSpec
from .tensors import TensorSpec, parse_signature

if TYPE_CHECKING:
    from pluggy import HookRelay

__all__ = ["Defaults", "case_seed", "default_case"]


def case_seed(operator: str, key: Sequence[str]) -> int:
    """Return the seed of a case: the same operator and key give the same inputs on every machine."""
    digest = hashlib.blake2b("\x1f".join((operator, *key)).encode(), digest_size=6)
    return int.from_bytes(digest.digest(), "big")


def default_case(
    spec: OperatorSpec,
    row: Row,
    *,
    tensors: Mapping[str, TensorSpec] | None = None,
    params: Mapping[str, object] | None = None,
    assumptions: Sequence[str] = (),
) -> Case | Skip:
    """Build the case of *row*; *tensors* replaces what the signature records (operators that resolve shapes).

    Without *tensors*: input slots named after ``spec.inputs``, metadata and absent ones left out.
    """
    try:
        signature = parse_signature(row.cells)
    except ValueError as error:
        return Skip.invalid(str(error))
    if tensors is None:
        found = {}
        for index, slot in enumerate(spec.inputs):
            tensor = signature.input(index)
            if slot.metadata or tensor.is_absent:
                continue
            found[slot.name] = tensor
        missing = [s.name for s in spec.inputs if not (s.optional or s.metadata) and s.name not in found]
        if missing:
            return Skip.invalid(f"input slot {missing[0]!r} of {spec.name} is blank, expected a tensor")
        tensors = found
    for name, tensor in tensors.items():
        if tensor.shape is not None and 0 in tensor.shape:
            return Skip.invalid(f"input {name!r} has shape {tensor.shape} with no element")
    return Case(
        operator=spec.name,
        row=row.ref,
        signature=signature,
        tensors=dict(tensors),
        params=dict(params or {}),  # type: ignore[arg-type]  # values are JSON scalars by contract
        assumptions=tuple(assumptions),
        ranks=spec.ranks or 1,
        seed=case_seed(spec.name, row.ref.key),
    )


class Defaults:
    """The plugin of defaults; it holds the relay because rows are matched through ``perfcollect_make_case``."""

    def __init__(self, hook: HookRelay, family: DeviceFamily) -> None:
        self._hook = hook
        self._family = family

    def perfcollect_match_rows(
        self, spec: OperatorSpec, rows: Sequence[Row], request: RunRequest
    ) -> MatchedRows:
        cases, skips = [], []
        for row in rows:
            try:
                made = self._hook.perfcollect_make_case(spec=spec, row=row)
            except CaseError as error:
                # One row that cannot be called must not end the others.
                made = Skip.invalid(str(error))
            if isinstance(made, Case):
                cases.append(made)
            else:
                skips.append((row, made))
        return MatchedRows(tuple(cases), tuple(skips))

    def perfcollect_make_case(self, spec: OperatorSpec, row: Row) -> Case | Skip:
        return default_case(spec, row)

    def perfcollect_canonical_key(self, spec: OperatorSpec, row: Row) -> tuple[str, ...]:
        metadata = tuple(row.get(column) for column in spec.key_columns)
        try:
            return (spec.name, *parse_signature(row.cells).canonical(), *metadata)
        except ValueError:
            return (spec.name, *row.ref.key)

    def perfcollect_generate_rows(
        self, spec: OperatorSpec, templates: Sequence[Row], request: GridRequest
    ) -> Sequence[Mapping[str, str]]:
        return ()

    def perfcollect_estimate_cost(self, case: Case) -> Cost:
        tensors = (*case.tensors.values(), *case.outputs)
        return Cost(0.0, float(sum(tensor.nbytes for tensor in tensors)))

    def perfcollect_make_inputs(self, case: Case, device: Device) -> Inputs:
        from .values import ValueMaker

        make = ValueMaker(case.seed, device)
        return Inputs({name: make.by_dtype(tensor) for name, tensor in case.tensors.items()})

    def perfcollect_measure(self, kernel: Kernel, plan: Plan, device: Device) -> Samples:
        return self._family.measure(kernel, plan, device)

    def perfcollect_write_back(
        self, case: Case, measurement: Measurement, rows: Sequence[Row]
    ) -> Sequence[Mapping[str, str]]:
        return [_duration_cells(measurement, row) for row in rows]


def _duration_cells(measurement: Measurement, row: Row) -> dict[str, str]:
    samples = measurement.samples
    cold = samples.cache.startswith("cold")
    column = "Cold Average Duration(us)" if cold else "Average Duration(us)"
    provenance = f"cold: {measurement.measured_with}" if cold else measurement.measured_with
    cells = {
        column: f"{measurement.value_us:.6f}",
        "Accelerator Core": measurement.core,
        "Observed Kernel": measurement.observed_kernel,
        "Cache Policy": _beside(row.get("Cache Policy"), samples.cache, cold),
        "Measured With": _beside(row.get("Measured With"), provenance, cold)
        if measurement.measured_with
        else "",
    }
    for name, values in samples.counters.items():
        numbers = [n for n in (values if isinstance(values, tuple) else (values,)) if math.isfinite(n)]
        if numbers:
            cells[name] = f"{sum(numbers) / len(numbers):.6f}"
    return {name: text for name, text in cells.items() if text}


def _beside(old: str, new: str, cold: bool) -> str:
    """Return *new* beside what *old* says of the value under the other cache policy; both share the column."""
    kept = [entry for entry in old.split("; ") if entry and entry.startswith("cold") != cold]
    return "; ".join([*kept, new] if cold else [new, *kept])
