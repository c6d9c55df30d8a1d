"""Find NPUs and everything they need, without importing torch here: what the parent knows before it starts a worker."""

from __future__ import annotations

import importlib.metadata
import json
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

import attrs

from perfcollect_core.environment import DeviceInfo, Missing, Probe
from perfcollect_core.tables.versions import detect_cann

from .ascend_visible import VARIABLE, VisibleDevices, classify_visible_devices
from .launching import run_child, worker_env

__all__ = ["AscendMachine", "probe_ascend"]

_ROOT_VARIABLES = (
    "ASCEND_HOME_PATH",
    "ASCEND_TOOLKIT_HOME",
    "ASCEND_TOOLKIT_HOME_PATH",
    "ASCEND_INSTALL_PATH",
)
_ROOTS = ("/usr/local/Ascend/ascend-toolkit/latest", "/usr/local/Ascend/cann", "/usr/local/Ascend/latest")
_INSTALL = (
    "install the CANN toolkit and kernels for this NPU and run `source <CANN>/set_env.sh` in this shell"
)
_CHILD_SECONDS = 120.0

#: SoC names by generation, and the database directory of a device whose exact model cannot be told by name.
_GENERATIONS = (
    (re.compile(r"Ascend910_93", re.IGNORECASE), "A3", "ATLAS_800_A3_752T_128G_DIE"),
    (re.compile(r"Ascend910B", re.IGNORECASE), "A2", "ATLAS_800_A2_376T_64G"),
)


@attrs.frozen
class AscendMachine:
    """Where the probe looks: tests give it another environment, root and child.

    ``ask`` runs the child process and returns its answer; ``installed`` gives the version of a distribution.
    """

    environ: Mapping[str, str] = attrs.field(factory=lambda: dict(os.environ))
    root: Path = Path("/")
    installed: Callable[[str], str | None] = attrs.field(default=lambda name: _installed(name))
    ask: Callable[[], Mapping[str, object]] = attrs.field(default=lambda: _ask_child())

    def physical_devices(self) -> tuple[int, ...]:
        """Return the ids of the device nodes in this machine or container."""
        names = (re.fullmatch(r"davinci(\d+)", path.name) for path in (self.root / "dev").glob("davinci*"))
        return tuple(sorted(int(match[1]) for match in names if match))

    def toolkit(self) -> Path | None:
        """Return the CANN directory in use."""
        for path in self._toolkit_candidates():
            if path.is_dir():
                return path
        return None

    def _toolkit_candidates(self) -> list[Path]:
        named = [Path(self.environ[name]) for name in _ROOT_VARIABLES if self.environ.get(name)]
        return named + [self.root / path.lstrip("/") for path in _ROOTS]

    def msprof(self) -> str | None:
        """Return the profiler's path: on ``PATH``, else inside the toolkit."""
        found = shutil.which("msprof", path=self.environ.get("PATH", ""))
        toolkit = self.toolkit()
        if found or toolkit is None:
            return found
        inside = (toolkit / part / "msprof" for part in ("bin", "tools/profiler/bin"))
        return next((str(path) for path in inside if os.access(path, os.X_OK)), None)


def probe_ascend(machine: AscendMachine | None = None) -> Probe:
    """Return the NPUs that can be used, or everything that is missing with where it was looked for and the fix."""
    machine = machine or AscendMachine()
    missing = [*_missing_packages(machine), *_missing_toolkit(machine)]
    visible = classify_visible_devices(machine.environ.get(VARIABLE), machine.physical_devices())
    if missing:
        # Without its packages nothing else about the devices can be asked.
        missing += _missing_devices(machine, visible)
        return Probe(missing=tuple(missing), versions=_versions(machine))
    answer = machine.ask()
    devices = tuple(_device(entry, answer) for entry in _entries(answer))
    versions = {**_versions(machine), **_texts(answer.get("versions"))}
    if answer.get("error"):
        missing.append(
            Missing(
                what="a torch_npu that starts",
                looked=f"torch_npu said: {answer['error']}",
                fix="source CANN's set_env.sh and check that torch, torch_npu and CANN fit each other",
            )
        )
    elif not devices:
        missing += _missing_devices(machine, visible, seen=0)
    else:
        visible = classify_visible_devices(
            machine.environ.get(VARIABLE), machine.physical_devices(), runtime_sees=len(devices)
        )
        if visible.finding in ("dropped", "repeated"):
            missing.append(_visible_missing(visible))
    if missing:
        return Probe(missing=tuple(missing), versions=versions)
    return Probe(devices=devices, versions=versions)


def _missing_packages(machine: AscendMachine) -> list[Missing]:
    torch, torch_npu = machine.installed("torch"), machine.installed("torch-npu")
    looked = f"in the packages of {sys.prefix}"
    missing = []
    if torch is None:
        missing.append(Missing("torch", looked, "install the torch release that torch_npu was built for"))
    if torch_npu is None:
        pair = f" for torch {torch.partition('+')[0]}" if torch else ""
        missing.append(Missing("torch_npu", looked, f"pip install the torch_npu release{pair}"))
    if torch and torch_npu and _release(torch) != _release(torch_npu):
        missing.append(
            Missing(
                f"torch {_release(torch_npu)} for torch_npu {torch_npu}",
                f"{looked}, found torch {torch}",
                f"install torch {_release(torch_npu)} or the torch_npu release for torch {_release(torch)}",
            )
        )
    return missing


def _missing_toolkit(machine: AscendMachine) -> list[Missing]:
    missing = []
    for name in ("ASCEND_HOME_PATH", "ASCEND_OPP_PATH"):
        # torch_npu refuses to be imported unless both name directories that exist.
        value = machine.environ.get(name, "")
        if not value:
            missing.append(Missing(f"CANN ({name})", f"{name} is not set", _INSTALL))
        elif not Path(value).is_dir():
            missing.append(Missing(f"CANN ({name})", f"{name}={value} is no directory", _INSTALL))
    if machine.msprof() is None:
        looked = "on PATH" + (f" and in {machine.toolkit()}" if machine.toolkit() else "")
        missing.append(
            Missing("msprof", looked, "install the CANN toolkit, which brings it, and put it on PATH")
        )
    return missing


def _missing_devices(
    machine: AscendMachine, visible: VisibleDevices, seen: int | None = None
) -> list[Missing]:
    if visible.finding not in ("ok", "no_device"):
        return [_visible_missing(visible)]
    if visible.finding == "no_device":
        looked = f"{machine.root / 'dev'}/davinci* does not exist"
        fix = "install the Ascend driver, or pass the NPUs into the container (--device /dev/davinci0 ...)"
        return [Missing("an NPU", looked, fix)]
    if seen == 0:
        ids = ", ".join(f"/dev/davinci{i}" for i in visible.ids)
        fix = "check `npu-smi info`: the driver or firmware does not answer, or another container holds the device"
        return [Missing("an NPU the runtime sees", f"{ids} exist and the runtime reports no device", fix)]
    return []


def _visible_missing(visible: VisibleDevices) -> Missing:
    return Missing("usable visible devices", visible.say, f"correct {VARIABLE} or unset it")


def _versions(machine: AscendMachine) -> dict[str, str]:
    found = {
        "torch": machine.installed("torch"),
        "torch_npu": machine.installed("torch-npu"),
        "cann": detect_cann(machine.environ.get),
        "driver": _driver(machine),
        "msprof": machine.msprof(),
    }
    return {name: version for name, version in found.items() if version}


def _driver(machine: AscendMachine) -> str | None:
    try:
        text = (machine.root / "usr/local/Ascend/driver/version.info").read_text(encoding="utf-8")
    except OSError:
        return None
    match = re.search(r"^\s*version\s*=\s*(\S+)", text, re.IGNORECASE | re.MULTILINE)
    return match[1] if match else None


def _entries(answer: Mapping[str, object]) -> list[Mapping[str, object]]:
    devices = answer.get("devices")
    return [entry for entry in devices if isinstance(entry, dict)] if isinstance(devices, list) else []


def _device(entry: Mapping[str, object], answer: Mapping[str, object]) -> DeviceInfo:
    soc = str(entry.get("soc", ""))
    generation, name = next(
        ((generation, name) for pattern, generation, name in _GENERATIONS if pattern.match(soc)),
        ("", f"ASCEND_{re.sub(r'[^A-Z0-9]+', '_', soc.upper())}"),
    )
    details = {"soc": soc, "generation": generation, "emulated": "yes" if answer.get("emulated") else "no"}
    return DeviceInfo(int(str(entry["index"])), name, int(str(entry["memory_bytes"])), details)


def _texts(value: object) -> dict[str, str]:
    return {str(k): str(v) for k, v in value.items()} if isinstance(value, dict) else {}


def _release(version: str) -> str:
    return ".".join(re.findall(r"\d+", version)[:3])


def _installed(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _ask_child() -> Mapping[str, object]:
    with tempfile.TemporaryDirectory(prefix="perfcollect-probe-") as directory:
        answer = Path(directory, "answer.json")
        argv = (sys.executable, "-m", "perfcollect_core.families.ascend_child", str(answer))
        ended = run_child(argv, worker_env(), seconds=_CHILD_SECONDS)
        try:
            found = json.loads(answer.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {"error": f"the probing process {ended}"}
        return found if isinstance(found, dict) else {"error": "the probing process gave no object"}
