"""Operators that are one torch call, declared as data."""

from __future__ import annotations

import csv
import importlib
import io
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import resources
from typing import TYPE_CHECKING

import attrs

from .cases import Case, Cost, MatchedRows, Param, Row, RunRequest, Skip
from .defaults import default_case
from .environment import Device, Need
from .errors import CaseError
from .measurements import Inputs, Kernel, Reference, Tolerance
from .specs import Axis, GridRequest, OperatorSpec, Slot

if TYPE_CHECKING:
    from torch import Tensor

    from .values import ValueMaker

__all__ = ["DeclaredOperator", "bytes_moved", "declare", "flops_per_output", "read_examples"]

CostRule = Callable[[Case], Cost]
ReferenceRule = Callable[[Case, Inputs], "tuple[Tensor | None, ...] | Reference"]
RowsRule = Callable[
    [OperatorSpec, Sequence[Row], GridRequest], Iterable[Mapping[str, str] | tuple[object, ...]]
]
Tolerances = Sequence[Tolerance] | Callable[[Case], tuple[Tolerance, ...]]


def bytes_moved(case: Case) -> float:
    """Return the compulsory bytes of a call: every tensor it reads, every output it writes."""
    return float(sum(t.nbytes for t in (*case.tensors.values(), *case.outputs)))


def flops_per_output(count: float) -> CostRule:
    """Return a cost rule: *count* operations for each element of the first output."""

    def cost(case: Case) -> Cost:
        return Cost(count * case.signature.output().numel, bytes_moved(case))

    return cost


#: Names of inputs that are only counted.
_INPUT_NAMES = "xyzuvw"

#: The cost of an operator that says nothing else.
_ONE_PER_OUTPUT = flops_per_output(1)


def read_examples(package: str, path: str) -> tuple[Mapping[str, str], ...]:
    """Read example rows from a CSV file shipped inside *package*."""
    text = resources.files(package).joinpath(path).read_text(encoding="utf-8")
    return tuple(dict(row) for row in csv.DictReader(io.StringIO(text)))


@attrs.frozen(eq=False, kw_only=True)
class DeclaredOperator:
    """The object ``declare`` makes; it carries hooks as a module of functions would."""

    operator: OperatorSpec
    torch: Mapping[str, str]
    counts: tuple[int, ...]
    scalar_second: bool
    keywords: Mapping[str, Param]
    cost: CostRule
    columns: Mapping[str, str]
    infer: Callable[[Case], Case | Skip] | None
    unavailable: Callable[[Case, str], Skip | None] | None
    canonical_key: Callable[[OperatorSpec, Row], tuple[str, ...] | None] | None
    values: Mapping[str, Callable[[ValueMaker, Case], Tensor]]
    call: Callable[[Case, Inputs, Device], Kernel] | None
    reference: ReferenceRule | None
    tolerances: Tolerances | None
    examples: tuple[str, str] | None
    rows: RowsRule | None = None

    def perfcollect_operator_spec(self, operator: str) -> OperatorSpec:
        if self.examples is None or self.operator.examples:
            return self.operator
        return attrs.evolve(self.operator, examples=read_examples(*self.examples))

    def perfcollect_make_case(self, spec: OperatorSpec, row: Row) -> Case | Skip:
        recorded = {name: row.get(column) for name, column in self.columns.items() if row.get(column)}
        params = {name: int(text) if text.isdecimal() else text for name, text in recorded.items()}
        made = default_case(spec, row, params={**self.keywords, **params})
        if isinstance(made, Skip):
            return made
        count = sum(not t.is_absent for t in made.signature.inputs)
        if count not in self.counts:
            wanted = " or ".join(map(str, self.counts))
            return Skip.invalid(f"{spec.name} records {count} input tensors, expected {wanted}")
        return self.infer(made) if self.infer else made

    def perfcollect_match_rows(
        self, spec: OperatorSpec, rows: Sequence[Row], request: RunRequest
    ) -> MatchedRows | None:
        if self.unavailable is None:
            return None
        cases: list[Case] = []
        skips: list[tuple[Row, Skip]] = []
        for row in rows:
            made = self.perfcollect_make_case(spec, row)
            if isinstance(made, Case):
                made = self.unavailable(made, request.family) or made
            if isinstance(made, Case):
                cases.append(made)
            else:
                skips.append((row, made))
        return MatchedRows(tuple(cases), tuple(skips))

    def perfcollect_canonical_key(self, spec: OperatorSpec, row: Row) -> tuple[str, ...] | None:
        return self.canonical_key(spec, row) if self.canonical_key else None

    def perfcollect_generate_rows(
        self, spec: OperatorSpec, templates: Sequence[Row], request: GridRequest
    ) -> Iterable[Mapping[str, str] | tuple[object, ...]] | None:
        return self.rows(spec, templates, request) if self.rows else None

    def perfcollect_estimate_cost(self, case: Case) -> Cost:
        return self.cost(case)

    def perfcollect_make_inputs(self, case: Case, device: Device) -> Inputs:
        from .values import ValueMaker

        make = ValueMaker(case.seed, device)
        return Inputs(
            {
                name: self.values[name](make, case) if name in self.values else make.by_dtype(tensor)
                for name, tensor in case.tensors.items()
            }
        )

    def perfcollect_bind_kernel(self, case: Case, inputs: Inputs, device: Device) -> Kernel:
        if self.call is not None:
            return self.call(case, inputs, device)
        path = self.torch.get(device.family) or self.torch.get("*")
        if path is None:
            raise CaseError(f"{case.operator} names no torch call for family {device.family}")
        function = resolve(path)
        positional = [inputs[slot.name] for slot in self.operator.inputs if slot.name in inputs.tensors]
        keywords = dict(case.params)
        return Kernel(call=lambda: function(*positional, **keywords))

    def perfcollect_reference(self, case: Case, inputs: Inputs, device: Device) -> Reference | None:
        if self.reference is None:
            return None
        ascend = device.family == "ascend"
        if ascend:
            # The device has no float64, and an answer of its own would not be independent.
            inputs = Inputs({name: tensor.cpu() for name, tensor in inputs.tensors.items()})
        answer = self.reference(case, inputs)
        if isinstance(answer, Reference):
            return answer
        if not ascend:
            # Optional outputs are those that only the kernel on Ascend gives.
            optional = [slot.optional for slot in self.operator.outputs]
            answer = tuple(None if skip else got for got, skip in zip(answer, optional, strict=True))
        if self.tolerances is None:
            dtype = next(iter(case.tensors.values())).dtype
            return Reference(answer, (Tolerance.of_dtype(dtype, 4, 1e-6),) * len(answer))
        tolerances = self.tolerances(case) if callable(self.tolerances) else tuple(self.tolerances)
        return Reference(answer, tolerances)


def resolve(path: str) -> Callable[..., object]:
    """Import the callable a dotted *path* names (``"torch.nn.functional.silu"``). Worker side."""
    parts = path.split(".")
    found: object = importlib.import_module(parts[0])
    for index, part in enumerate(parts[1:], start=2):
        if not hasattr(found, part):
            importlib.import_module(".".join(parts[:index]))
        found = getattr(found, part)
    return found  # type: ignore[return-value]  # calling it is the caller's business


def declare(
    name: str,
    *,
    torch: str | Mapping[str, str],
    inputs: Sequence[int | Slot] = (1,),
    outputs: Sequence[Slot] = (Slot("out"),),
    scalar_second: bool = False,
    keywords: Mapping[str, Param] | None = None,
    cost: CostRule = _ONE_PER_OUTPUT,
    examples: str | None = None,
    summary: str = "",
    aliases: Sequence[str] = (),
    families: Sequence[str] = ("ascend", "cuda", "cpu"),
    needs: Sequence[Need] = (),
    key_columns: Sequence[str] = (),
    axes: Sequence[Axis] = (),
    value_policy: str = "floats N(0, 1), int8 full range, other integers 0..7, seeded by row",
    assumptions: Sequence[str] = (),
    negative: Sequence[Mapping[str, str]] = (),
    columns: Mapping[str, str] | None = None,
    infer: Callable[[Case], Case | Skip] | None = None,
    unavailable: Callable[[Case, str], Skip | None] | None = None,
    canonical_key: Callable[[OperatorSpec, Row], tuple[str, ...] | None] | None = None,
    values: Mapping[str, Callable[[ValueMaker, Case], Tensor]] | None = None,
    call: Callable[[Case, Inputs, Device], Kernel] | None = None,
    reference: ReferenceRule | None = None,
    tolerances: Tolerances | None = None,
    rows: RowsRule | None = None,
) -> DeclaredOperator:
    """Declare an operator that is one torch call.

    Args:
        name: Kernel type as it stands in the data.
        torch: Dotted path of the call, or one per family with ``"*"`` for the others.
        inputs: Either how many tensors the call takes (named ``x``, ``y``, ``z``) or its slots.
        outputs: Output slots; an optional one is given, and compared, on Ascend only.
        scalar_second: The second input may be a 0-D tensor or missing altogether.
        keywords: Keyword arguments of the call.
        cost: Operations and bytes of a case.
        examples: CSV file of example rows, relative to the package that declares.
        summary: What it computes, one line.
        aliases, families, needs, key_columns, axes, value_policy, assumptions, negative: As in ``OperatorSpec``.
        columns: Parameters read from metadata columns where the row has them (whole numbers become integers).
        infer: Completes or refuses a case (parent; no torch).
        unavailable: Skips a case on one device family.
        canonical_key: The key that rows of equal work share; ``None`` leaves a row to the default.
        values: Draws single inputs by name.
        call: Binds the kernel where it is not a plain call.
        reference: Outputs in higher precision, by other means than the call itself.
        rows: Generates theory rows, like ``perfcollect_generate_rows``.
        tolerances: One for each output, or what gives them for a case; default: four roundings of the first input's type.
    """
    counted = tuple(n for n in inputs if isinstance(n, int))
    slots = tuple(slot for slot in inputs if isinstance(slot, Slot))
    if counted and (slots or not 1 <= min(counted) <= max(counted) <= len(_INPUT_NAMES)):
        raise ValueError(
            f"inputs of {name} are {inputs!r}, expected slots, or counts from 1 to {len(_INPUT_NAMES)}"
        )
    if counted:
        names = _INPUT_NAMES[: max(counted)]
        slots = tuple(Slot(name, optional=i >= min(counted)) for i, name in enumerate(names))
    required = sum(not (slot.optional or slot.metadata) for slot in slots)
    counts = counted or tuple(range(required, len(slots) + 1))
    paths = {"*": torch} if isinstance(torch, str) else dict(torch)
    if scalar_second:
        slots = (slots[0], attrs.evolve(slots[1], optional=True), *slots[2:])
        counts = (1, *counts)
    module = sys._getframe(1).f_globals["__name__"]
    spec = OperatorSpec(
        name=name,
        summary=summary,
        api={family: paths.get(family, paths.get("*", "")) for family in families},
        families=tuple(families),
        inputs=slots,
        outputs=tuple(outputs),
        aliases=tuple(aliases),
        key_columns=(*key_columns, *(columns or {}).values()),
        axes=tuple(axes),
        needs=tuple(needs),
        value_policy=value_policy,
        assumptions=tuple(assumptions),
        negative=tuple(negative),
    )
    return DeclaredOperator(
        operator=spec,
        torch=paths,
        counts=counts,
        scalar_second=scalar_second,
        keywords=keywords or {},
        cost=cost,
        columns=columns or {},
        infer=infer,
        unavailable=unavailable,
        canonical_key=canonical_key,
        values=values or {},
        call=call,
        reference=reference,
        tolerances=tolerances,
        examples=(module.partition(".")[0], examples) if examples else None,
        rows=rows,
    )
