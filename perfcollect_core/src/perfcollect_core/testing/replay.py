"""Replay one row of an operator in this process: what conformance tests and plugin authors' own tests call."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import TYPE_CHECKING

import attrs

from perfcollect_core.cases import Case, Row, RowRef, Skip
from perfcollect_core.checking import difference
from perfcollect_core.host import LoadedPlugin, OperatorHost, compose
from perfcollect_core.loading import load_operator
from perfcollect_core.measurements import Inputs, Samples

from .stub_family import StubFamily

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["Replay", "host_for", "make_row", "plugin_under_test", "replay"]


@attrs.frozen(eq=False)
class Replay:
    """What one replay gave; ``wrong`` says how the outputs differ from the reference (``None``: they agree)."""

    case: Case
    inputs: Inputs
    outputs: tuple[Tensor | None, ...]
    samples: Samples
    wrong: str | None
    checked: bool


def make_row(operator: str, cells: Mapping[str, str], occurrence: int = 0) -> Row:
    """Make a row of *cells* as if it stood in ``<operator>.csv``."""
    key = tuple(f"{name}={text}" for name, text in sorted(cells.items()) if "Duration" not in name)
    return Row(RowRef(f"{operator}.csv", key, occurrence), dict(cells))


def plugin_under_test(operator: str, place: str | None) -> LoadedPlugin:
    """Load what ``module`` or ``module:attribute`` names; ``None`` finds the installed operator."""
    if place is None:
        return load_operator(operator)
    module, _, attribute = place.partition(":")
    found: object = importlib.import_module(module)
    for part in filter(None, attribute.split(".")):
        found = getattr(found, part)
    return LoadedPlugin(operator, found, "under test")


def host_for(operator: str, plugin: object) -> OperatorHost:
    """Compose *plugin* with core's defaults on the stub family."""
    return compose(LoadedPlugin(operator, plugin, "under test"), LoadedPlugin("stub", StubFamily(), "core"))


def replay(operator: str, plugin: object, cells: Mapping[str, str]) -> Replay | Skip:
    """Build, bind, run and check one row on the host's CPU; a row the operator refuses comes back as its ``Skip``.

    Raises:
        CaseError: The row passed the parent's checks and the worker's inputs refused it.
    """
    host = host_for(operator, plugin)
    case = host.make_case(host.spec(), make_row(operator, cells))
    if isinstance(case, Skip):
        return case
    device = host.family.device(0)
    inputs = host.make_inputs(case, device)
    reference = host.reference(case, inputs, device)
    kernel = host.bind_kernel(case, inputs, device)
    outputs = kernel.outputs(kernel.call())
    wrong = difference(outputs, reference) if reference else None
    samples = host.measure(case, kernel, host.family.default_plan(), device)
    return Replay(case, inputs, outputs, samples, wrong, reference is not None)
