"""Import the plugins that were asked for, strictly: a failure names who provides it and what to do."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence

import attrs

from .discovery import GROUPS, Provider, normalise_distribution, operator_name, plugin_index
from .errors import IncompatiblePluginError, PluginLoadError
from .markers import HOOK_API

__all__ = [
    "LoadedPlugin",
    "load_executor",
    "load_family",
    "load_operator",
    "load_provider",
    "load_wrappers",
]


@attrs.frozen
class LoadedPlugin:
    """An imported plugin: the object with the hooks and who provides it (``"ops-a 1.0"``)."""

    name: str
    plugin: object
    provider: str = "core"


def load_operator(text: str) -> LoadedPlugin:
    """Load the operator *text* names: ``MatMulV2``, ``dist:MatMulV2``, ``MatMulV2.csv`` or ``MatMulV2_run.py``.

    Raises:
        UnknownOperatorError, OperatorConflictError: No, or more than one, distribution provides it.
        IncompatiblePluginError: Its distribution was written for another core.
        PluginLoadError: Importing it failed.
    """
    distribution, name = operator_name(text)
    return load_provider(plugin_index().require("operators", name, distribution))


def load_family(name: str) -> LoadedPlugin:
    """Load device family *name*; errors as for operators."""
    return load_provider(plugin_index().require("families", name))


def load_executor(name: str) -> LoadedPlugin:
    """Load executor *name*; errors as for operators."""
    return load_provider(plugin_index().require("executors", name))


def load_wrappers(names: Sequence[str]) -> tuple[LoadedPlugin, ...]:
    """Load the wrappers that ``--with`` names, sorted by name and each once."""
    index = plugin_index()
    return tuple(load_provider(index.require("wrappers", name)) for name in sorted(set(names)))


def load_provider(provider: Provider) -> LoadedPlugin:
    """Import the object an entry point names, after checking that its distribution fits this core."""
    _check_requirement(provider)
    module_name, _, attribute = provider.value.partition(":")
    module_name, attribute = module_name.strip(), attribute.partition("[")[0].strip()
    try:
        plugin: object = importlib.import_module(module_name)
        for part in filter(None, attribute.split(".")):
            plugin = getattr(plugin, part)
    except (Exception, SystemExit) as error:
        raise _load_error(provider, error) from error
    if isinstance(plugin, type):
        raise PluginLoadError(
            f"{_described(provider)} names the class {plugin.__name__}, expected a module or an object",
            hint=f"report this to the authors of {provider.distribution}",
            provider=provider.label,
        )
    _check_hook_api(provider, plugin, module_name)
    return LoadedPlugin(provider.name, plugin, provider.label)


def _described(provider: Provider) -> str:
    return f"{GROUPS[provider.group]} {provider.name!r} of {provider.label} (entry point {provider.value})"


def _load_error(provider: Provider, error: BaseException) -> PluginLoadError:
    cause = str(error) or type(error).__name__
    if not isinstance(error, (ImportError, AttributeError)):
        cause = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    fix = f"repair or upgrade it (pip install --upgrade {provider.distribution}) or uninstall it"
    missing = getattr(error, "name", None) if isinstance(error, ModuleNotFoundError) else None
    if missing and missing.partition(".")[0] != provider.value.partition(".")[0]:
        fix = f"install the module {missing!r} into this environment, or {fix}"
    return PluginLoadError(
        f"{_described(provider)} failed to load: {' '.join(cause.split())}",
        hint=f"{fix}; perfcollect doctor checks every plugin",
        provider=provider.label,
    )


def _check_requirement(provider: Provider) -> None:
    """Refuse, before importing it, a distribution that asks for another core than this one."""
    # Workers load plugins that were checked here, and start faster without this.
    from importlib.metadata import PackageNotFoundError, requires

    from packaging.requirements import InvalidRequirement, Requirement

    from . import __version__

    try:
        wanted = requires(provider.distribution) or ()
    except PackageNotFoundError:
        return
    for text in wanted:
        try:
            requirement = Requirement(text)
        except InvalidRequirement:
            continue
        if normalise_distribution(requirement.name) != "perfcollect-core":
            continue
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": ""}):
            continue
        if not requirement.specifier.contains(__version__, prereleases=True):
            raise IncompatiblePluginError(
                f"{provider.label} needs perfcollect-core{requirement.specifier}, installed is {__version__}",
                hint=f"install a matching pair: pip install --upgrade perfcollect-core {provider.distribution}",
                provider=provider.label,
            )


def _check_hook_api(provider: Provider, plugin: object, module_name: str) -> None:
    """Refuse a plugin that says, in an attribute ``HOOK_API``, that it needs hooks this core does not have.

    Looked for on the plugin, its module and the module's top package, the first found counts; none is needed.
    """
    top = sys.modules.get(module_name.partition(".")[0])
    for place in (plugin, sys.modules.get(module_name), top):
        wanted = getattr(place, "HOOK_API", None)
        if wanted is not None:
            break
    else:
        return
    if not (isinstance(wanted, tuple) and len(wanted) == 2 and all(isinstance(n, int) for n in wanted)):
        raise IncompatiblePluginError(
            f"{_described(provider)} has HOOK_API {wanted!r}, expected a pair of integers such as {HOOK_API!r}",
            hint=f"report this to the authors of {provider.distribution}",
            provider=provider.label,
        )
    if wanted[0] != HOOK_API[0] or wanted[1] > HOOK_API[1]:
        raise IncompatiblePluginError(
            f"{_described(provider)} needs hook API {wanted[0]}.{wanted[1]}, "
            f"this perfcollect-core has {HOOK_API[0]}.{HOOK_API[1]}",
            hint=f"install a matching pair: pip install --upgrade perfcollect-core {provider.distribution}",
            provider=provider.label,
        )
