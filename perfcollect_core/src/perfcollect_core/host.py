"""Compose the plugins of one operator and call their hooks through typed façades.

One small ``PluginManager`` per operator run: core's defaults, the device family, each opted-in wrapper sorted by
name, then exactly one operator plugin; the last registered answers first.
"""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

import attrs
import pluggy

from . import hookspecs
from .cases import Case, Cost, MatchedRows, Row, RunRequest, Skip
from .defaults import Defaults
from .environment import Device, DeviceFamily
from .errors import PerfcollectError, PluginContractError, PluginError
from .loading import LoadedPlugin
from .markers import PROJECT
from .measurements import Inputs, Kernel, Measurement, Plan, Reference, Samples
from .specs import GridRequest, OperatorSpec

if TYPE_CHECKING:
    from pluggy import HookRelay

__all__ = ["LoadedPlugin", "OperatorHost", "check_family", "check_hooks", "compose", "read_spec"]

_T = TypeVar("_T")


class _Manager(pluggy.PluginManager):
    """A manager that looks at nothing but hook names, so that registering runs no property of a plugin object."""

    def parse_hookimpl_opts(self, plugin: object, name: str) -> pluggy.HookimplOpts | None:
        if not name.startswith("perfcollect_"):
            return None
        opts = super().parse_hookimpl_opts(plugin, name)
        if opts is not None:
            # The order is composition's to say, and a hook that may be missing is a misspelt one.
            return {**opts, "optionalhook": False, "tryfirst": False, "trylast": False}
        if not inspect.isroutine(getattr(plugin, name)):
            return None
        # A module of plain functions is a plugin: the prefix is marker enough.
        return {
            "wrapper": False,
            "hookwrapper": False,
            "optionalhook": False,
            "tryfirst": False,
            "trylast": False,
            "specname": None,
        }


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
        return _spec_of(LoadedPlugin(self.operator, None, self.provider), self._hook)

    def match_rows(self, spec: OperatorSpec, rows: Sequence[Row], request: RunRequest) -> MatchedRows:
        """Match rows to cases; raises ``PluginContractError`` where a row got lost."""
        matched = self._call("perfcollect_match_rows", MatchedRows, spec=spec, rows=rows, request=request)
        returned = {case.row for case in matched.cases} | {row.ref for row, _ in matched.skips}
        lost = [row.ref for row in rows if row.ref not in returned]
        if lost:
            raise self._broken("perfcollect_match_rows", f"all {len(rows)} rows back", f"{len(lost)} missing")
        for _, skip in matched.skips:
            if not isinstance(skip, Skip):
                raise self._broken("perfcollect_make_case", "Case or Skip", type(skip).__name__)
        return matched

    def make_case(self, spec: OperatorSpec, row: Row) -> Case | Skip:
        return self._call("perfcollect_make_case", (Case, Skip), spec=spec, row=row)

    def canonical_key(self, spec: OperatorSpec, row: Row) -> tuple[str, ...]:
        key = self._call("perfcollect_canonical_key", tuple, spec=spec, row=row)
        if not all(isinstance(part, str) for part in key):
            raise self._broken("perfcollect_canonical_key", "a tuple of text", repr(key))
        return key

    def generate_rows(
        self, spec: OperatorSpec, templates: Sequence[Row], request: GridRequest
    ) -> Iterable[Mapping[str, str] | tuple[object, ...]]:
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
        for patch in patches:
            if not (isinstance(patch, Mapping) and all(isinstance(cell, str) for cell in patch.values())):
                raise self._broken("perfcollect_write_back", "cells as text by column", repr(patch))
        return patches

    def _call(self, hook: str, expected: type[_T] | tuple[type, ...], **arguments: object) -> _T:
        return _call(self._hook, hook, expected, LoadedPlugin(self.operator, None, self.provider), arguments)

    def _broken(self, hook: str, expected: str, got: str) -> PluginContractError:
        return _broken(hook, self.operator, self.provider, expected, got)


def compose(
    operator: LoadedPlugin, family: LoadedPlugin, wrappers: Iterable[LoadedPlugin] = ()
) -> OperatorHost:
    """Compose the plugins of one operator; throw-away, so that a failed registration leaves nothing behind.

    Raises:
        PluginContractError: A plugin has a hook that does not exist, or takes an argument the hook does not pass.
    """
    check_family(family)
    assert isinstance(family.plugin, DeviceFamily)
    manager = _Manager(PROJECT)
    manager.add_hookspecs(hookspecs)
    _register(manager, LoadedPlugin("defaults", Defaults(manager.hook, family.plugin)))
    for layer in (family, *sorted(wrappers, key=lambda wrapper: wrapper.name), operator):
        _register(manager, layer)
    return OperatorHost(operator.name, operator.provider, family.plugin, manager.hook)


def check_family(family: LoadedPlugin) -> None:
    """Raise ``PluginContractError`` where a plugin does not offer the ``DeviceFamily`` protocol."""
    if not isinstance(family.plugin, DeviceFamily):
        lacks = [name for name in _FAMILY_MEMBERS if not hasattr(family.plugin, name)]
        raise PluginContractError(
            f"device family {family.name!r} ({family.provider}): expected the DeviceFamily protocol, "
            f"got {type(family.plugin).__name__} without {', '.join(lacks)}",
            hint=f"report this to the authors of {family.provider}",
            provider=family.provider,
        )


def check_hooks(plugin: LoadedPlugin) -> None:
    """Raise ``PluginContractError`` where a plugin has a hook that does not exist or takes a wrong argument."""
    manager = _Manager(PROJECT)
    manager.add_hookspecs(hookspecs)
    _register(manager, plugin)


def read_spec(operator: LoadedPlugin) -> OperatorSpec:
    """Return what an operator says about itself, where no device family is at hand (listings, new tables)."""
    manager = _Manager(PROJECT)
    manager.add_hookspecs(hookspecs)
    _register(manager, operator)
    return _spec_of(operator, manager.hook)


_FAMILY_MEMBERS = (
    *(name for name in DeviceFamily.__annotations__),
    *(name for name, member in vars(DeviceFamily).items() if inspect.isfunction(member) and name[0] != "_"),
)


def _register(manager: _Manager, layer: LoadedPlugin) -> None:
    for name in dir(layer.plugin):
        if not name.startswith("perfcollect_") or name in hookspecs.HOOKS:
            continue
        opts = manager.parse_hookimpl_opts(layer.plugin, name)
        if opts is not None and opts.get("specname") is None:
            close = difflib.get_close_matches(name, hookspecs.HOOKS, n=1)
            raise PluginContractError(
                f"plugin {layer.name!r} ({layer.provider}) has hook {name!r}, which does not exist",
                hint=f"did you mean {close[0]}?" if close else f"the hooks are {', '.join(hookspecs.HOOKS)}",
                provider=layer.provider,
            )
    try:
        manager.register(layer.plugin, name=f"{layer.provider}:{layer.name}")
        manager.check_pending()
    except (pluggy.PluginValidationError, ValueError) as error:
        # ValueError is pluggy's word for one object, or two equal ones, registered twice.
        raise PluginContractError(
            f"plugin {layer.name!r} ({layer.provider}) does not fit the hooks: {' '.join(str(error).split())}",
            hint=f"report this to the authors of {layer.provider}",
            provider=layer.provider,
        ) from None


def _spec_of(operator: LoadedPlugin, relay: HookRelay) -> OperatorSpec:
    hook = "perfcollect_operator_spec"
    spec = _call(relay, hook, OperatorSpec, operator, {"operator": operator.name})
    if spec.name != operator.name:
        wanted = f"a spec named {operator.name!r}"
        raise _broken(hook, operator.name, operator.provider, wanted, repr(spec.name))
    for field in ("families", "aliases", "kernels", "key_columns", "assumptions"):
        # ("ascend") is a text, and would be iterated by its letters.
        if isinstance(getattr(spec, field), str):
            raise _broken(hook, operator.name, operator.provider, f"a tuple in {field}", "a text")
    return spec


def _call(
    relay: HookRelay,
    hook: str,
    expected: type[_T] | tuple[type, ...],
    operator: LoadedPlugin,
    arguments: Mapping[str, object],
) -> _T:
    try:
        answer = getattr(relay, hook)(**arguments)
    except PluginError as error:
        error.provider = error.provider or operator.provider
        raise
    except PerfcollectError:
        raise
    except Exception as error:
        if hook in _WORKER_HOOKS:
            # The worker tells failures of a case apart by what torch raised.
            raise
        cause = f"{type(error).__name__}: {error}"
        raise PluginContractError(
            f"{hook} of operator {operator.name!r} ({operator.provider}) raised {' '.join(cause.split())}",
            hint=f"report this to the authors of {operator.provider}; -v shows where",
            provider=operator.provider,
        ) from error
    if not isinstance(answer, expected):
        wanted = (
            expected.__name__ if isinstance(expected, type) else " or ".join(t.__name__ for t in expected)
        )
        raise _broken(hook, operator.name, operator.provider, wanted, type(answer).__name__)
    return answer  # type: ignore[return-value]  # checked above


_WORKER_HOOKS = frozenset(
    f"perfcollect_{name}" for name in ("make_inputs", "bind_kernel", "reference", "measure")
)


def _broken(hook: str, operator: str, provider: str, expected: str, got: str) -> PluginContractError:
    return PluginContractError(
        f"{hook} of operator {operator!r} ({provider}): expected {expected}, got {got}",
        hint=f"report this to the authors of {provider}",
        provider=provider,
    )
