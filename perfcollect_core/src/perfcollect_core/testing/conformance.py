"""The tests every operator plugin passes: derive a class from ``OperatorConformance`` and name the operator."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import ClassVar

import attrs
import pytest

from perfcollect_core.cases import Case, Row, RunRequest
from perfcollect_core.checking import difference
from perfcollect_core.errors import CaseError
from perfcollect_core.host import LoadedPlugin, OperatorHost
from perfcollect_core.measurements import Inputs, Kernel, Reference, Tolerance

from .replay import host_for, make_row, plugin_under_test
from .tensor_checks import check_output, record_calls, same_bytes, spoil

__all__ = ["OperatorConformance"]


class OperatorConformance:
    """Base of a conformance test class.

    Attributes:
        operator: Kernel type, as the entry point names it.
        plugin: ``module`` or ``module:attribute`` where the operator is not installed; ``None`` finds it by name.
        rows: Cells of rows to replay; ``None`` takes the examples of the spec.
        negative_rows: Cells of rows to refuse; ``None`` takes those of the spec.
        deviations: Check (name of the test without ``test_``) -> why this operator does not pass it.
        constant_inputs: Input -> why all its values are equal.
        max_bytes, max_flops: Rows above are described but not run.
    """

    operator: ClassVar[str] = ""
    plugin: ClassVar[str | ModuleType | None] = None
    rows: ClassVar[Sequence[Mapping[str, str]] | None] = None
    negative_rows: ClassVar[Sequence[Mapping[str, str]] | None] = None
    deviations: ClassVar[Mapping[str, str]] = {}
    constant_inputs: ClassVar[Mapping[str, str]] = {}
    max_bytes: ClassVar[float] = 2**30
    max_flops: ClassVar[float] = 20e9

    @classmethod
    def loaded(cls) -> LoadedPlugin:
        """Load the operator under test."""
        if isinstance(cls.plugin, ModuleType):
            return LoadedPlugin(cls.operator, cls.plugin, "under test")
        return plugin_under_test(cls.operator, cls.plugin)

    @classmethod
    def host(cls) -> OperatorHost:
        """Compose the operator with core's defaults on the stub family."""
        return host_for(cls.operator, cls.loaded().plugin)

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """Run a check once for each row."""
        for argument in ("row", "negative_row"):
            if argument in metafunc.fixturenames:
                rows = self._rows() if argument == "row" else self._negative_rows()
                metafunc.parametrize(argument, rows, ids=[str(index) for index in range(len(rows))])

    @classmethod
    def _rows(cls) -> tuple[Row, ...]:
        cells = cls.host().spec().examples if cls.rows is None else cls.rows
        return tuple(make_row(cls.operator, row, index) for index, row in enumerate(cells))

    @classmethod
    def _negative_rows(cls) -> tuple[Row, ...]:
        cells = cls.host().spec().negative if cls.negative_rows is None else cls.negative_rows
        return tuple(make_row(cls.operator, row, index) for index, row in enumerate(cells))

    @pytest.fixture(autouse=True)
    def _skip_deviation(self, request: pytest.FixtureRequest) -> None:
        check = request.function.__name__.removeprefix("test_")
        if self.deviations.get(check, "").strip():
            pytest.skip(f"deviation: {self.deviations[check]}")

    def _case(self, row: Row) -> Case:
        host = self.host()
        case = host.make_case(host.spec(), row)
        assert isinstance(case, Case), f"row is refused: {case.reason}"
        return case

    def _runnable(self, row: Row) -> tuple[OperatorHost, Case]:
        """Return the case where it can run on this machine's CPU; skips the check otherwise."""
        pytest.importorskip("torch")
        host, case = self.host(), self._case(row)
        if "cpu" not in host.spec().families:
            pytest.skip(f"{self.operator} has no CPU binding, only {', '.join(host.spec().families)}")
        cost = host.estimate_cost(case)
        if cost.nbytes > self.max_bytes or cost.flops > self.max_flops:
            pytest.skip(
                f"row of {cost.nbytes:.3g} bytes and {cost.flops:.3g} operations is too large to run here"
            )
        return host, case

    def _build(self, host: OperatorHost, case: Case) -> tuple[Inputs, Kernel]:
        device = host.family.device(0)
        inputs = host.make_inputs(case, device)
        return inputs, host.bind_kernel(case, inputs, device)

    def test_deviations_have_reasons(self) -> None:
        checks = {name.removeprefix("test_") for name in dir(type(self)) if name.startswith("test_")}

        unknown = set(self.deviations) - checks
        blank = [
            name
            for name, reason in (*self.deviations.items(), *self.constant_inputs.items())
            if not reason.strip()
        ]

        assert not unknown, f"deviations from checks that do not exist: {sorted(unknown)}"
        assert not blank, f"deviations without a written reason: {blank}"

    def test_spec_is_complete(self) -> None:
        spec = self.host().spec()

        lacking = [
            name
            for name in ("summary", "families", "inputs", "outputs", "value_policy")
            if not getattr(spec, name)
        ]
        unbound = [family for family in spec.families if not spec.api.get(family)]
        slots = [slot.name for slot in spec.inputs]

        assert not lacking, f"spec of {spec.name} lacks {', '.join(lacking)}"
        assert not unbound, f"spec.api of {spec.name} says nothing for {', '.join(unbound)}"
        assert len(set(slots)) == len(slots), f"spec of {spec.name} has two input slots of one name: {slots}"

    def test_has_example_rows(self) -> None:
        assert self._rows(), "no example rows: give spec.examples or the class attribute rows"

    def test_has_negative_rows(self) -> None:
        assert self._negative_rows(), (
            "no negative rows: give spec.negative or the class attribute negative_rows"
        )

    def test_row_is_accepted(self, row: Row) -> None:
        host = self.host()

        matched = host.match_rows(host.spec(), [row], RunRequest("cpu"))

        assert not matched.skips, f"row is refused: {matched.skips[0][1].reason}"
        assert len(matched.cases) == 1
        assert matched.cases[0].operator == self.operator

    def test_negative_row_is_refused(self, negative_row: Row) -> None:
        host = self.host()

        made = host.make_case(host.spec(), negative_row)

        if isinstance(made, Case):
            pytest.importorskip("torch")
            with pytest.raises(CaseError) as caught:
                self._build(host, made)
            assert str(caught.value)
        else:
            assert made.kind == "invalid_case", (
                f"refused as {made.kind}, expected invalid_case: {made.reason}"
            )
            assert made.reason

    def test_parent_hooks_import_no_torch(self) -> None:
        rows = [dict(row.cells) for row in (*self._rows(), *self._negative_rows())]
        plugin = self.plugin.__name__ if isinstance(self.plugin, ModuleType) else self.plugin
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        command = [sys.executable, "-m", "perfcollect_core.testing.parent_hooks"]

        done = subprocess.run(
            command,
            input=json.dumps({"operator": self.operator, "plugin": plugin, "rows": rows}),
            env=environment,
            capture_output=True,
            encoding="utf-8",
            timeout=120,
            check=False,
        )

        assert done.returncode == 0, done.stderr
        heavy = json.loads(done.stdout.splitlines()[-1])
        assert not heavy, f"parent hooks of {self.operator} import {', '.join(heavy)}"

    def test_canonical_key_is_text(self, row: Row) -> None:
        host = self.host()

        key = host.canonical_key(host.spec(), row)

        assert key
        assert all(isinstance(part, str) for part in key), (
            f"canonical key {key!r} has parts that are not text"
        )
        assert key == host.canonical_key(host.spec(), row)

    def test_cost_is_positive(self, row: Row) -> None:
        cost = self.host().estimate_cost(self._case(row))

        assert cost.nbytes > 0
        assert cost.flops >= 0

    def test_inputs_are_seeded(self, row: Row) -> None:
        host, case = self._runnable(row)
        device = host.family.device(0)

        first = host.make_inputs(case, device)
        again = host.make_inputs(case, device)
        others = [host.make_inputs(attrs.evolve(case, seed=case.seed + n), device) for n in (1, 2, 3, 4)]

        assert first.tensors.keys() == again.tensors.keys()
        changed = [name for name in first.tensors if not same_bytes(first[name], again[name])]
        assert not changed, f"inputs differ though the seed is the same: {changed}"
        # Four other seeds: a single index out of eight may fall on the same value once.
        assert any(not same_bytes(first[name], other[name]) for other in others for name in first.tensors), (
            "inputs do not depend on the seed"
        )

    def test_inputs_are_not_constant(self, row: Row) -> None:
        host, case = self._runnable(row)

        inputs = host.make_inputs(case, host.family.device(0))

        constant = [
            name
            for name, tensor in inputs.tensors.items()
            if tensor.is_floating_point()
            and tensor.numel() > 1
            and bool((tensor == tensor.flatten()[0]).all())
        ]
        unexplained = sorted(set(constant) - set(self.constant_inputs))
        assert not unexplained, f"all values of inputs {unexplained} are equal: say why in constant_inputs"

    def test_outputs_match_the_row(self, row: Row) -> None:
        host, case = self._runnable(row)
        _, kernel = self._build(host, case)

        outputs = kernel.outputs(kernel.call())

        recorded = [spec for spec in case.outputs if not spec.is_absent]
        assert len(outputs) >= len(recorded), f"{len(outputs)} outputs, the row records {len(recorded)}"
        for slot, (spec, got) in enumerate(zip(case.outputs, outputs, strict=False)):
            if got is not None and not spec.is_absent and not spec.is_nz_storage:
                check_output(slot, spec, got)

    def test_reference_agrees(self, row: Row) -> None:
        host, case = self._runnable(row)
        inputs, kernel = self._build(host, case)

        reference = host.reference(case, inputs, host.family.device(0))
        assert reference is not None, "no reference: implement perfcollect_reference"
        outputs = kernel.outputs(kernel.call())

        assert difference(outputs, reference) is None

    def test_reference_notices_a_wrong_output(self, row: Row) -> None:
        host, case = self._runnable(row)
        inputs, kernel = self._build(host, case)
        reference = host.reference(case, inputs, host.family.device(0))
        assert reference is not None, "no reference: implement perfcollect_reference"

        wrong = tuple(None if got is None else spoil(got) for got in kernel.outputs(kernel.call()))

        assert difference(wrong, reference) is not None, "outputs far from the reference pass as right"

    def test_reference_is_independent(self, row: Row) -> None:
        host, case = self._runnable(row)
        inputs, kernel = self._build(host, case)
        before = {name: tensor.clone() for name, tensor in inputs.tensors.items()}
        device = host.family.device(0)

        reference_calls = record_calls(lambda: host.reference(case, inputs, device))
        changed = [name for name, tensor in before.items() if not same_bytes(tensor, inputs[name])]
        kernel_calls = record_calls(kernel.call)

        assert not changed, f"the reference changes inputs {changed}"
        assert not (kernel_calls and kernel_calls <= reference_calls), (
            f"the reference makes the very calls of the kernel: {sorted(kernel_calls)}"
        )

    def test_repeated_calls_do_equal_work(self, row: Row) -> None:
        host, case = self._runnable(row)
        inputs, kernel = self._build(host, case)
        results = []

        for _ in range(2):
            for reset in (inputs.reset, kernel.reset):
                if reset is not None:
                    reset()
            outputs = kernel.outputs(kernel.call())
            results.append(tuple(None if got is None else got.clone() for got in outputs))

        close = tuple(Tolerance(1e-3, 1e-3) for _ in results[0])
        assert difference(results[1], Reference(results[0], close)) is None, (
            "the second call gives something else"
        )
