"""Make the fixtures of the emulated CANN available here; leave its tests out where torch_npu is not at home."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from plugin import ascend_emulator, ascend_env

__all__ = ["ascend_emulator", "ascend_env"]

# `make test-emulator` asks for these tests: there a missing torch_npu is a reason to say, in CI a failure.
_asked_for = os.environ.get("PERFCOLLECT_EMULATOR_TESTS") == "1"
collect_ignore_glob = [] if _asked_for or importlib.util.find_spec("torch_npu") else ["test_*.py"]
