"""Check every installed plugin: loaded in a process of its own, provided once, named safely."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

from perfcollect_core.discovery import GROUPS, Provider, plugin_index

from .child import run_child
from .findings import Finding, Scope

__all__ = ["conflicts", "loadable"]

_CHECK = "plugins"


def loadable(scope: Scope) -> Iterator[Finding]:
    """Load each plugin in a child process; one that crashes or hangs says so and disturbs no other."""
    index = plugin_index()
    providers = [provider for group in GROUPS for provider in index.all(group)]
    with ThreadPoolExecutor(max_workers=max(2, os.cpu_count() or 2)) as pool:
        answers = pool.map(lambda provider: run_child(provider._asdict(), scope.timeout_s), providers)
        found = [_finding(*pair) for pair in zip(providers, answers, strict=True)]
    broken = [finding for finding in found if finding.level != "ok"]
    yield from broken
    loaded = len(found) - sum(finding.level == "error" for finding in broken)
    yield Finding(_CHECK, "ok", "plugins", f"{loaded} of {len(found)} plugins load")


def _finding(provider: Provider, answer: dict[str, object]) -> Finding:
    subject = f"{GROUPS[provider.group]} {provider.name} ({provider.label})"
    if "error" in answer:
        fix = str(answer.get("fix") or f"repair, upgrade or uninstall {provider.distribution}")
        fix = fix.removesuffix("; perfcollect doctor checks every plugin")
        # The subject says already whose it is.
        told = f"{GROUPS[provider.group]} {provider.name!r} of {provider.label} "
        return Finding(_CHECK, "error", subject, str(answer["error"]).removeprefix(told), fix)
    heavy = answer.get("heavy")
    if isinstance(heavy, list) and heavy:
        return Finding(
            _CHECK,
            "warning",
            subject,
            f"importing it imports {', '.join(heavy)}, which slows every command that asks for it",
            f"report this to the authors of {provider.distribution}: heavy imports belong into the hooks that need them",
        )
    return Finding(_CHECK, "ok", subject, "loads")


def conflicts(scope: Scope) -> Iterator[Finding]:
    """Report names that several distributions provide, and names that could become a path."""
    index = plugin_index()
    for group, noun in GROUPS.items():
        for name in index.names(group):
            several = index.providers(group, name)
            if len(several) > 1:
                yield Finding(
                    "conflicts",
                    "warning",
                    f"{noun} {name}",
                    f"provided by {' and '.join(p.label for p in several)}",
                    f"uninstall all but one, or name one each time, as {several[0].distribution}:{name}",
                )
    for provider in index.refused:
        yield Finding(
            "conflicts",
            "error",
            f"{GROUPS[provider.group]} {provider.name!r} ({provider.label})",
            "is ignored: a name may hold letters, digits, '_', '-' and '.' only",
            f"report this to the authors of {provider.distribution}",
        )
