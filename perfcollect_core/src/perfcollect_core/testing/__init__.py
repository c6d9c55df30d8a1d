"""The testing kit for authors of plugins: conformance tests, fake distributions, a stub family. Imported on use."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .conformance import OperatorConformance
    from .distributions import FakeDistribution, write_distribution
    from .replay import Replay, host_for, make_row
    from .stub_family import StubFamily

__all__ = [
    "FakeDistribution",
    "OperatorConformance",
    "Replay",
    "StubFamily",
    "host_for",
    "make_row",
    "write_distribution",
]

_HOME_OF = {
    "FakeDistribution": "distributions",
    "OperatorConformance": "conformance",
    "Replay": "replay",
    "StubFamily": "stub_family",
    "host_for": "replay",
    "make_row": "replay",
    "write_distribution": "distributions",
}


def __getattr__(name: str) -> object:
    if name in _HOME_OF:
        return getattr(importlib.import_module(f"{__name__}.{_HOME_OF[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
