"""Check which device families find a device here, each probed in a process of its own."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from perfcollect_core.discovery import plugin_index

from .child import run_child
from .findings import Finding, Scope

__all__ = ["families", "operator_needs"]

_CHECK = "devices"


def families(scope: Scope) -> Iterator[Finding]:
    """Probe the family asked for, or every one that is installed; what the one asked for lacks is an error."""
    index = plugin_index()
    names = (scope.family,) if scope.family else index.names("families")
    for name in names:
        if scope.family:
            # An unknown name is the user's mistake, not a finding.
            index.require("families", name)
        yield from _family(name, run_child({"probe": name}, scope.timeout_s), wanted=scope.family is not None)


def _family(name: str, answer: dict[str, Any], *, wanted: bool) -> Iterator[Finding]:
    subject = f"family {name}"
    if "error" in answer:
        fix = str(answer.get("fix") or "perfcollect doctor checks its plugin")
        yield Finding(_CHECK, "error" if wanted else "warning", subject, str(answer["error"]), fix)
        return
    versions = ", ".join(f"{what} {version}" for what, version in answer["versions"].items())
    for device in answer["devices"]:
        details = ", ".join(f"{key} {value}" for key, value in device["details"].items())
        gib = device["memory_bytes"] / 2**30
        facts = "; ".join(filter(None, (f"{device['name']}, {gib:.0f} GiB", details, versions)))
        yield Finding(_CHECK, "ok", f"{subject}, device {device['index']}", facts)
    for lack in answer["missing"]:
        yield Finding(
            _CHECK,
            "error" if wanted else "info",
            subject,
            f"lacks {lack['what']} (looked {lack['looked']})",
            lack["fix"],
        )
    if wanted and not answer["devices"] and not answer["missing"]:
        yield Finding(
            _CHECK, "error", subject, "finds no device on this machine", "run this where the device is"
        )


def operator_needs(scope: Scope) -> Iterator[Finding]:
    """Report what operators need on the family asked for and do not find here.

    A warning: the family runs, and so do the operators that are not named.
    """
    from perfcollect_core.errors import PluginError
    from perfcollect_core.host import read_spec
    from perfcollect_core.loading import load_provider
    from perfcollect_core.runner.needs import missing_needs

    if scope.family is None:
        return
    lacking: dict[tuple[str, str, str], list[str]] = {}
    environ = _worker_environ(scope.family)
    for provider in plugin_index().all("operators"):
        try:
            spec = read_spec(load_provider(provider))
        except PluginError:
            # loadable() reports it.
            continue
        if scope.family not in spec.families:
            continue
        for missing in missing_needs(spec.needs, scope.family, environ):
            lacking.setdefault((missing.what, missing.looked, missing.fix), []).append(spec.name)
    for (what, looked, fix), operators in lacking.items():
        yield Finding(
            "needs", "warning", what, f"is missing ({looked}) and needed by {', '.join(operators)}", fix
        )


def _worker_environ(family: str) -> dict[str, str] | None:
    from perfcollect_core.errors import PluginError
    from perfcollect_core.loading import load_family

    try:
        additions = getattr(load_family(family).plugin, "worker_environment", None)
    except PluginError:
        return None
    return None if additions is None else {**os.environ, **additions()[0]}
