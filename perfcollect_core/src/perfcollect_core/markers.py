"""The pluggy markers and the version of the hook API."""

from __future__ import annotations

import pluggy

__all__ = ["HOOK_API", "PROJECT", "hookimpl", "hookspec"]

PROJECT = "perfcollect"

#: Version of the hooks in :mod:`perfcollect_core.hookspecs`. The minor number rises when an argument or hook is
#: added, the major one when an existing implementation would break.
HOOK_API = (1, 0)

hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)
