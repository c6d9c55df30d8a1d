"""What every test of perfcollect may use."""

from __future__ import annotations

pytest_plugins = ["perfcollect_core.testing.plugin"]
