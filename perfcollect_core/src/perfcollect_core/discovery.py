"""Index the installed plugins from metadata alone: one scan a process, nothing imported."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from .errors import OperatorConflictError, PluginError, UnknownOperatorError

__all__ = [
    "GROUPS",
    "PLUGIN_DISTRIBUTIONS",
    "PluginIndex",
    "Provider",
    "is_safe_name",
    "metadata_directories",
    "normalise_distribution",
    "operator_name",
    "plugin_index",
    "read_providers",
    "scan_entry_points",
]

#: Plugin group -> what one of its names is called in messages. The entry-point group is ``perfcollect.<group>``.
GROUPS: Mapping[str, str] = {
    "operators": "operator",
    "families": "device family",
    "executors": "executor",
    "wrappers": "wrapper",
    "commands": "command",
    "comm_backends": "collective backend",
}

#: Where operators come from: the distributions released with core, for the hint on an unknown name.
PLUGIN_DISTRIBUTIONS: Mapping[str, str] = {
    "perfcollect-ops-builtin": "operators that stock torch or torch_npu launches",
    "perfcollect-ops-vllm-ascend": "operators of vllm-ascend, custom OPP packages, NNAL and triton-ascend",
    "perfcollect-comm": "hcom_* collectives",
}

_SAFE_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,199}", re.ASCII)
_HEADER = re.compile(r"^(Name|Version):[ \t]*(.+?)[ \t]*$", re.MULTILINE)


class Provider(NamedTuple):
    """One entry point: ``name`` of ``group`` is at ``value`` (``module`` or ``module:attribute``).

    A named tuple, because attrs takes 20 ms to import and a listing needs nothing else of it.
    """

    name: str
    group: str
    value: str
    distribution: str
    version: str

    @property
    def label(self) -> str:
        """Return ``"distribution version"``, how messages name a provider."""
        return f"{self.distribution} {self.version}"


def is_safe_name(name: str) -> bool:
    """Tell whether *name* may become a file name: letters, digits, ``_``, ``-``, ``.``, not led by ``.`` or ``-``."""
    return _SAFE_NAME.fullmatch(name) is not None


def normalise_distribution(name: str) -> str:
    """Return the one spelling of a distribution name (``Ops_A`` and ``ops.a`` are ``ops-a``)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def operator_name(text: str) -> tuple[str | None, str]:
    """Split what a user may type for an operator into distribution (or ``None``) and kernel type.

    ``MatMulV2``, ``MatMulV2.csv``, ``MatMulV2_run.py`` and ``ops-a:MatMulV2`` all name ``MatMulV2``.
    """
    distribution, colon, name = text.strip().rpartition(":")
    for suffix in ("_run.py", ".csv"):
        name = name.removesuffix(suffix)
    return (distribution or None) if colon else None, name


class PluginIndex:
    """What is installed, by group and name; built from providers, so that tests need no installation."""

    def __init__(self, providers: Iterable[Provider]) -> None:
        groups: dict[str, dict[str, list[Provider]]] = {group: {} for group in GROUPS}
        refused = []
        # One distribution found twice (lib and lib64, two path entries) is one provider.
        for provider in dict.fromkeys(providers):
            if provider.group not in groups:
                continue
            if not is_safe_name(provider.name):
                refused.append(provider)
                continue
            groups[provider.group].setdefault(provider.name, []).append(provider)
        self._groups = groups
        #: Entry points whose name could become a path or cannot be typed; never loaded.
        self.refused: tuple[Provider, ...] = tuple(refused)

    def names(self, group: str) -> tuple[str, ...]:
        """Return the names of *group*, sorted without regard to case."""
        return tuple(sorted(self._groups[group], key=lambda name: (name.lower(), name)))

    def providers(self, group: str, name: str) -> tuple[Provider, ...]:
        """Return who provides *name*, sorted by distribution; empty where nobody does."""
        found = self._groups[group].get(name, ())
        return tuple(
            sorted(found, key=lambda p: (normalise_distribution(p.distribution), p.version, p.value))
        )

    def all(self, group: str) -> tuple[Provider, ...]:
        """Return every provider of *group*, by name."""
        return tuple(p for name in self.names(group) for p in self.providers(group, name))

    def distributions(self) -> dict[str, str]:
        """Return the version of every distribution that provides something, sorted by name."""
        found = {p.distribution: p.version for group in self._groups for p in self.all(group)}
        return dict(sorted(found.items(), key=lambda item: normalise_distribution(item[0])))

    def require(self, group: str, name: str, distribution: str | None = None) -> Provider:
        """Return the one provider of *name*, of *distribution* where several provide it.

        Raises:
            UnknownOperatorError: Nobody provides it (``PluginError`` for a group other than operators).
            OperatorConflictError: Several distributions do, and none was named.
        """
        noun = GROUPS[group]
        if not is_safe_name(name):
            raise _unknown(group)(
                f"{noun} name {name!r} is not allowed: expected letters, digits, '_', '-' and '.' only",
                hint="perfcollect ops lists the names" if group == "operators" else None,
            )
        found = self.providers(group, name)
        if not found:
            raise self._not_found(group, name)
        if distribution is not None:
            wanted = normalise_distribution(distribution)
            chosen = tuple(p for p in found if normalise_distribution(p.distribution) == wanted)
            if not chosen:
                raise _unknown(group)(
                    f"{noun} {name!r} is not provided by {distribution}, only by {_labels(found)}",
                    hint=_choose(group, found[0]),
                )
            found = chosen
        if len(found) > 1:
            raise OperatorConflictError(
                f"{noun} {name!r} is provided by {_labels(found)}",
                hint=_choose(group, found[0]),
                provider=found[0].label,
            )
        return found[0]

    def suggestions(self, group: str, name: str) -> tuple[str, ...]:
        """Return up to three installed names that resemble *name*."""
        import difflib

        by_lower = {known.lower(): known for known in self.names(group)}
        close = difflib.get_close_matches(name.lower(), by_lower, n=3, cutoff=0.6)
        return tuple(by_lower[lower] for lower in close)

    def _not_found(self, group: str, name: str) -> PluginError:
        noun = GROUPS[group]
        close = self.suggestions(group, name)
        hints = [f"did you mean {_alternatives(close)}?"] if close else []
        if group == "operators":
            hints.append("perfcollect ops lists what is installed")
            installed = {normalise_distribution(d) for d in self.distributions()}
            absent = [f"{d} ({what})" for d, what in PLUGIN_DISTRIBUTIONS.items() if d not in installed]
            if absent:
                hints.append(f"not installed here: {', '.join(absent)}")
        else:
            hints.append(f"installed: {', '.join(self.names(group)) or 'none'}")
        return _unknown(group)(
            f"{noun} {name!r} is not provided by any installed distribution", hint="; ".join(hints)
        )


def _unknown(group: str) -> type[PluginError]:
    return UnknownOperatorError if group == "operators" else PluginError


def _labels(providers: Sequence[Provider]) -> str:
    return _join([p.label for p in providers], "and")


def _alternatives(names: Sequence[str]) -> str:
    return _join(list(names), "or")


def _join(words: list[str], last: str) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} {last} {words[-1]}"


def _choose(group: str, provider: Provider) -> str:
    option = {"operators": "--ops ", "families": "--family ", "wrappers": "--with "}.get(group, "")
    if group == "operators":
        return f"choose one: {option}{provider.distribution}:{provider.name}"
    return f"uninstall all but one, for instance: pip uninstall {provider.distribution}"


def scan_entry_points() -> tuple[Provider, ...]:
    """Read every ``perfcollect.*`` entry point from the metadata on ``sys.path``."""
    found: Iterable[list[Provider]]
    if _only_directories():
        found = map(read_providers, metadata_directories())
    else:
        found = _from_importlib()
    return tuple(provider for providers in found for provider in providers)


def _only_directories() -> bool:
    """Tell whether all metadata lies in plain directories, which importlib.metadata reads five times slower."""
    others = [finder for finder in sys.meta_path if hasattr(finder, "find_distributions")]
    files = any(entry and os.path.isfile(entry) for entry in sys.path)  # noqa: PTH113 - pathlib costs a millisecond here
    return not files and [getattr(f, "__name__", "") for f in others] == ["PathFinder"]


def metadata_directories(*, every: bool = False) -> Iterator[str]:
    """Yield each distribution's metadata directory in the order of ``sys.path``.

    Of several of one name the first counts, as for pip; *every* yields those it hides as well.
    """
    seen = set()
    for entry in sys.path:
        try:
            names = sorted(os.listdir(entry or "."))  # noqa: PTH208 - as above
        except OSError:
            continue
        for name in names:
            stem, dot, suffix = name.rpartition(".")
            if not dot or suffix not in ("dist-info", "egg-info"):
                continue
            key = normalise_distribution(stem.partition("-")[0])
            if every or key not in seen:
                seen.add(key)
                yield f"{entry or '.'}/{name}"


def read_providers(path: str) -> list[Provider]:
    """Read the ``perfcollect.*`` entry points of one metadata directory."""
    text = _read(f"{path}/entry_points.txt")
    if "perfcollect." not in text:
        return []
    name, version = _name_and_version(_read(f"{path}/METADATA") or _read(f"{path}/PKG-INFO"))
    found = []
    section = ""
    for line in map(str.strip, text.splitlines()):
        if line.startswith("[") and line.endswith("]"):
            section = line[1:-1].strip()
        elif line and line[0] not in "#;" and section.startswith("perfcollect."):
            entry, _, value = line.partition("=")
            found.append(Provider(entry.strip(), section.partition(".")[2], value.strip(), name, version))
    return found


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:  # noqa: PTH123 - as above
            return file.read()
    except OSError:
        return ""


def _from_importlib() -> Iterator[list[Provider]]:
    import importlib.metadata

    # Not entry_points(group=...), which reads the disk again for each group.
    everything = importlib.metadata.entry_points()
    for group in GROUPS:
        for entry in everything.select(group=f"perfcollect.{group}"):
            if entry.dist is not None:
                text = entry.dist.read_text("METADATA") or entry.dist.read_text("PKG-INFO") or ""
                yield [Provider(entry.name, group, entry.value, *_name_and_version(text))]


def _name_and_version(metadata: str) -> tuple[str, str]:
    # The e-mail parser behind Distribution.metadata takes half a millisecond for each long README.
    fields = dict(_HEADER.findall(metadata.partition("\n\n")[0]))
    return fields.get("Name", "unknown"), fields.get("Version", "unknown")


@lru_cache(maxsize=1)
def plugin_index() -> PluginIndex:
    """Return the index of this process; ``plugin_index.cache_clear()`` after ``sys.path`` changed."""
    return PluginIndex(scan_entry_points())
