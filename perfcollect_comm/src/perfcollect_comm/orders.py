"""What a launcher tells the fork server of its node, as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from perfcollect_core.discovery import plugin_index
from perfcollect_core.errors import PluginContractError
from perfcollect_core.loading import load_provider

from .backend import CommBackend
from .plan import CommRequest
from .rank import RankSettings
from .topology import Grid

__all__ = ["Orders", "load_backend"]


def load_backend(name: str) -> CommBackend:
    """Load the communication backend called *name* from its entry point.

    Raises:
        PluginError: Nobody, or more than one distribution, provides it, or it lacks a part of the protocol.
    """
    plugin = load_provider(plugin_index().require("comm_backends", name))
    if not isinstance(plugin.plugin, CommBackend):
        raise PluginContractError(
            f"communication backend {name!r} ({plugin.provider}) does not offer the CommBackend protocol",
            provider=plugin.provider,
        )
    return plugin.plugin


@attrs.frozen
class Orders:
    """The ranks to start here, with everything they need to make the same plan as all others."""

    request: CommRequest
    backend: str
    ranks: tuple[RankSettings, ...]
    log_dir: str
    environment: Mapping[str, str] = attrs.field(factory=dict)

    def load_backend(self) -> CommBackend:
        return load_backend(self.backend)

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> Orders:
        """Build orders from what ``attrs.asdict`` made of them."""
        request = dict(fields["request"])
        request["grid"] = Grid(tuple(request["grid"]["shape"]))
        for name in ("ops", "num_devices", "tiers", "bytes_grid"):
            request[name] = tuple(request[name])
        ranks = tuple(RankSettings(**{**rank, "control": tuple(rank["control"])}) for rank in fields["ranks"])
        return cls(
            CommRequest(**request), fields["backend"], ranks, fields["log_dir"], dict(fields["environment"])
        )
