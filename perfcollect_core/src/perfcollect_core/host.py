"""Compose the plugins of one operator and call their hooks through typed façades.

One small ``PluginManager`` per operator run: core's defaults, the device family, each opted-in wrapper sorted by
name, then exactly one operator plugin; the last registered answers first.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

import attrs
import pluggy

from . import hookspecs
from .cases import Case, Cost, MatchedRows, Row, RunRequest, Skip
from .defaults import Defaults
from .environment import Device, DeviceFamily
from .errors import PerfcollectError, PluginContractError
from .loading import LoadedPlugin
from .markers import PROJECT
from .measurements import Inputs, Kernel, Measurement, Plan, Reference, Samples
from .specs import GridRequest, OperatorSpec

if TYPE_CHECKING:
    from pluggy import HookRelay

__all__ = ["LoadedPlugin", "OperatorHost", "compose"]

_T = TypeVar("_T")


class _Manager(pluggy.PluginManager):
    """A manager that looks at nothing but hook names, so that registering runs no property of a plugin object."""

    def parse_hookimpl_opts(self, plugin: object, name: str) -> pluggy.HookimplOpts | None:
        if not name.startswith("perfcollect_"):
            return None
        opts = super().parse_hookimpl_opts(plugin, name)
        if opts is None and callable(getattr(plugin, name)):
            # A module of plain functions is a plugin: the prefix is marker enough.
            opts = {
                "wrapper": False,
                "hookwrapper": False,
                "optionalhook": False,
                "tryfirst": False,
                "trylast": False,
                "specname": None,
            }
        return opts


@attrs.frozen(eq=False)
class OperatorHost:
    """The composed hooks of one operator on one device family.

    Every method calls one hook and checks what it returned; errors name the provider of the operator.
    """

    operator: str
    provider: str
    family: DeviceFamily
    _hook: HookRelay

    def spec(self) -> OperatorSpec:
        """Return the operator's spec; raises ``PluginContractError`` where the plugin gives none for its name."""
        spec = self._call("perfcollect_operator_spec", OperatorSpec, operator=self.operator)
        if spec.name != self.operator:
            raise self._broken(
                "perfcollect_operator_spec", f"a spec named {self.operator!r}", repr(spec.name)
            )
        return spec

    def match_rows(self, spec: OperatorSpec, rows: Sequence[Row], request: RunRequest) -> MatchedRows:
        """Match rows to cases; raises ``PluginContractError`` where a row got lost."""
        matched = self._call("perfcollect_match_rows", MatchedRows, spec=spec, rows=rows, request=request)
        returned = {case.row for case in matched.cases} | {row.ref for row, _ in matched.skips}
        lost = [row.ref for row in rows if row.ref not in returned]
        if lost:
            raise self._broken("perfcollect_match_rows", f"all {len(rows)} rows back", f"{len(lost)} missing")
        return matched

    def make_case(self, spec: OperatorSpec, row: Row) -> Case | Skip:
        return self._call("perfcollect_make_case", (Case, Skip), spec=spec, row=row)

    def canonical_key(self, spec: OperatorSpec, row: Row) -> tuple[str, ...]:
        return self._call("perfcollect_canonical_key", tuple, spec=spec, row=row)

    def generate_rows(
        self, spec: OperatorSpec, templates: Sequence[Row], request: GridRequest
    ) -> Iterable[Mapping[str, str]]:
        return self._call(
            "perfcollect_generate_rows", Iterable, spec=spec, templates=templates, request=request
        )

    def estimate_cost(self, case: Case) -> Cost:
        return self._call("perfcollect_estimate_cost", Cost, case=case)

    def make_inputs(self, case: Case, device: Device) -> Inputs:
        return self._call("perfcollect_make_inputs", Inputs, case=case, device=device)

    def bind_kernel(self, case: Case, inputs: Inputs, device: Device) -> Kernel:
        return self._call("perfcollect_bind_kernel", Kernel, case=case, inputs=inputs, device=device)

    def reference(self, case: Case, inputs: Inputs, device: Device) -> Reference | None:
        """Return the reference, or ``None`` where the operator has none."""
        answer = self._hook.perfcollect_reference(case=case, inputs=inputs, device=device)
        if answer is not None and not isinstance(answer, Reference):
            raise self._broken("perfcollect_reference", "Reference", type(answer).__name__)
        return answer

    def measure(self, case: Case, kernel: Kernel, plan: Plan, device: Device) -> Samples:
        return self._call("perfcollect_measure", Samples, case=case, kernel=kernel, plan=plan, device=device)

    def write_back(
        self, case: Case, measurement: Measurement, rows: Sequence[Row]
    ) -> Sequence[Mapping[str, str]]:
        patches = self._call(
            "perfcollect_write_back", Sequence, case=case, measurement=measurement, rows=rows
        )
        if len(patches) != len(rows):
            raise self._broken("perfcollect_write_back", f"{len(rows)} patches", str(len(patches)))
        return patches

    def _call(self, hook: str, expected: type[_T] | tuple[type, ...], **arguments: object) -> _T:
        try:
            answer = getattr(self._hook, hook)(**arguments)
        except PerfcollectError as error:
            if getattr(error, "provider", "") is None:
                error.provider = self.provider  # type: ignore[attr-defined]  # only PluginError has it
            raise
        if not isinstance(answer, expected):
            wanted = (
                expected.__name__ if isinstance(expected, type) else " or ".join(t.__name__ for t in expected)
            )
            raise self._broken(hook, wanted, type(answer).__name__)
        return answer  # type: ignore[return-value]  # checked above

    def _broken(self, hook: str, expected: str, got: str) -> PluginContractError:
        return PluginContractError(
            f"{hook} of operator {self.operator!r} ({self.provider}): expected {expected}, got {got}",
            hint=f"report this to the authors of {self.provider}",
            provider=self.provider,
        )


def compose(
    operator: LoadedPlugin, family: LoadedPlugin, wrappers: Iterable[LoadedPlugin] = ()
) -> OperatorHost:
    """Compose the plugins of one operator; throw-away, so that a failed registration leaves nothing behind.

    Raises:
        PluginContractError: A plugin has a hook that does not exist, or takes an argument the hook does not pass.
    """
    if not isinstance(family.plugin, DeviceFamily):
        missing = [
            n for n in ("name", "cores", "dtypes", "probe", "measure") if not hasattr(family.plugin, n)
        ]
        raise PluginContractError(
            f"device family {family.name!r} ({family.provider}): expected the DeviceFamily protocol, "
            f"got {type(family.plugin).__name__} without {', '.join(missing) or 'all of its methods'}",
            provider=family.provider,
        )
    manager = _Manager(PROJECT)
    manager.add_hookspecs(hookspecs)
    layers = [
        LoadedPlugin("defaults", Defaults(manager.hook, family.plugin)),
        family,
        *sorted(wrappers, key=lambda w: w.name),
        operator,
    ]
    for layer in layers:
        try:
            manager.register(layer.plugin, name=f"{layer.provider}:{layer.name}")
            manager.check_pending()
        except pluggy.PluginValidationError as error:
            raise PluginContractError(
                f"plugin {layer.name!r} ({layer.provider}) does not fit the hooks: {error}",
                hint=f"the hooks are {', '.join(hookspecs.HOOKS)}",
                provider=layer.provider,
            ) from None
    return OperatorHost(operator.name, operator.provider, family.plugin, manager.hook)
