"""Load one plugin, or probe one family, in a process of its own and report as a JSON line."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence

import attrs

from perfcollect_core.discovery import Provider, plugin_index
from perfcollect_core.environment import DeviceFamily
from perfcollect_core.errors import PerfcollectError

__all__ = ["main", "run_child"]

#: What the result line starts with; a plugin may print what it likes while it is imported.
_MARK = "perfcollect answers: "


def run_child(request: Mapping[str, str], timeout_s: float) -> dict[str, object]:
    """Run *request* in a child and return its answer; a child that ends or hangs answers with ``error``."""
    command = [sys.executable, "-m", __name__, json.dumps(dict(request))]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        "PYTHONIOENCODING": "utf-8",
    }
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
        errors="backslashreplace",
        env=environment,
        start_new_session=True,
    )
    try:
        out, err = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        _kill(process)
        return {"error": f"did not answer within {timeout_s:g} s and was ended"}
    for line in reversed(out.split("\n")):
        if line.startswith(_MARK):
            answer: dict[str, object] = json.loads(line.removeprefix(_MARK))
            return answer
    code = process.returncode
    how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with status {code}"
    last = err.strip().splitlines()[-1:] or ["nothing on stderr"]
    return {"error": f"{how} before it had loaded: {last[0]}"}


def _kill(process: subprocess.Popen[str]) -> None:
    with contextlib.suppress(ProcessLookupError):
        if hasattr(os, "killpg"):
            os.killpg(process.pid, signal.SIGKILL)
        else:
            process.kill()
    # A grandchild that left the session may hold the pipes open.
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.communicate(timeout=2)


def main(arguments: Sequence[str]) -> None:
    """Answer one request: ``{"probe": family}``, or a provider's fields."""
    request = json.loads(arguments[0])
    try:
        answer = _probe(request["probe"]) if "probe" in request else _load(Provider(**request))
    except PerfcollectError as error:
        answer = {"error": str(error), "fix": error.hint or ""}
    except Exception as error:
        answer = {"error": f"{type(error).__name__}: {error}"}
    sys.stdout.flush()
    print(f"\n{_MARK}{json.dumps(answer)}", flush=True)


def _load(provider: Provider) -> dict[str, object]:
    from perfcollect_core.host import check_family, check_hooks, read_spec
    from perfcollect_core.loading import load_provider

    loaded = load_provider(provider)
    match provider.group:
        case "operators":
            read_spec(loaded)
        case "families":
            check_family(loaded)
        case "wrappers":
            check_hooks(loaded)
        case _:
            pass
    heavy = [name for name in ("torch", "torch_npu") if name in sys.modules]
    return {"heavy": heavy}


def _probe(name: str) -> dict[str, object]:
    from perfcollect_core.host import check_family
    from perfcollect_core.loading import load_provider

    loaded = load_provider(plugin_index().require("families", name))
    check_family(loaded)
    family = loaded.plugin
    assert isinstance(family, DeviceFamily)
    return attrs.asdict(family.probe())


if __name__ == "__main__":
    main(sys.argv[1:])
