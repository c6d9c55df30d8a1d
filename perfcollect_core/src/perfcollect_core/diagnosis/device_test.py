"""Run one small case of every operator on a device and gather what it showed (``perfcollect doctor --device-test``).

For the first person on hardware nobody here has: one archive answers which kernels really run, how the profiler writes
them, and what of the stack is there.
"""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import metadata
from pathlib import Path

import attrs

from perfcollect_core.discovery import plugin_index
from perfcollect_core.environment import Probe
from perfcollect_core.errors import PluginError
from perfcollect_core.host import read_spec
from perfcollect_core.loading import load_provider
from perfcollect_core.runner.journal import JOURNAL_NAME, read_lines
from perfcollect_core.runner.needs import missing_needs
from perfcollect_core.tables.init import init_database
from perfcollect_core.tensors import parse_signature

__all__ = ["DeviceTest", "run_device_test"]

_MAIN = "import sys; from perfcollect_core.cli import main; sys.exit(main())"
#: Larger files of a profile are left out: the tables are what counts.
_MAX_FILE_BYTES = 20 << 20
_SMALL_BYTES = 1 << 20
_LIBRARIES = ("libopapi.so", "libcust_opapi.so")
_API = re.compile(rb"aclnn[A-Z][A-Za-z0-9]+(?=GetWorkspaceSize)")
_VARIABLES = re.compile(r"ASCEND|CANN|HCCL|ATB|NNAL|LD_LIBRARY_PATH|LD_PRELOAD|TASK_QUEUE|VLLM|CUDA|OMP_NUM")


@attrs.frozen
class DeviceTest:
    """What a device test showed: how each operator ended, and where everything is."""

    archive: Path
    ends: Mapping[str, str]

    @property
    def failed(self) -> int:
        return sum(not end.startswith(("measured", "needs")) for end in self.ends.values())


def run_device_test(
    family: str, probe: Probe, archive: Path, environ: Mapping[str, str], say: Callable[[str], None]
) -> DeviceTest:
    """Measure the smallest example row of every operator of *family* and write *archive* (``.tar.gz``).

    Args:
        family: Device family; it has a device.
        probe: What was found of it.
        archive: The file to write.
        environ: The environment workers will have.
        say: Hears what is being done.
    """
    examples, ends = _cases(family, environ)
    with tempfile.TemporaryDirectory(prefix="perfcollect-device-test-") as temporary:
        root = Path(temporary)
        init_database(root / "database", examples)
        say(f"measuring one case of each of {len(examples)} operators on {family} ...")
        run_dir = root / "run"
        command = [*("run", "--family", family, "--database-path", str(root / "database")), "--keep-profiles"]
        command += [
            "--run-dir",
            str(run_dir),
            "--repeat-count",
            "5",
            "--devices",
            str(probe.devices[0].index),
        ]
        done = subprocess.run(
            [sys.executable, "-c", _MAIN, *command],
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
        )
        (root / "output.txt").write_text(f"exit code {done.returncode}\n{done.stdout}\n{done.stderr}")
        ends.update(_ends(run_dir))
        ends.update({name: "not tried, output.txt says why" for name in examples if name not in ends})
        (root / "ends.json").write_text(json.dumps(ends, indent=2, sort_keys=True))
        (root / "machine.json").write_text(json.dumps(_machine(probe, environ), indent=2, sort_keys=True))
        for name, apis in _exported(environ):
            (root / f"{name}.aclnn.txt").write_text("\n".join(apis) + "\n")
        say("packing ...")
        _pack(root, archive)
    return DeviceTest(archive, dict(sorted(ends.items())))


def _cases(
    family: str, environ: Mapping[str, str]
) -> tuple[dict[str, Sequence[Mapping[str, str]]], dict[str, str]]:
    examples: dict[str, Sequence[Mapping[str, str]]] = {}
    ends: dict[str, str] = {}
    for provider in plugin_index().all("operators"):
        try:
            spec = read_spec(load_provider(provider))
        except PluginError as error:
            ends[provider.name] = f"plugin does not load: {error}"
            continue
        if family not in spec.families or spec.ranks != 1 or not spec.examples:
            continue
        missing = missing_needs(spec.needs, family, environ)
        if missing:
            ends[spec.name] = "needs " + "; ".join(f"{m.what} ({m.looked})" for m in missing)
        else:
            examples[spec.name] = [_small(spec.examples)]
    return examples, ends


def _small(rows: Sequence[Mapping[str, str]]) -> Mapping[str, str]:
    """Return a row of a few MiB where there is one: tiny copies are no kernels at all on some devices."""
    enough = [row for row in rows if _bytes(row) >= _SMALL_BYTES]
    return min(enough, key=_bytes) if enough else max(rows, key=_bytes)


def _bytes(row: Mapping[str, str]) -> int:
    signature = parse_signature(row)
    return sum(tensor.nbytes for tensor in (*signature.inputs, *signature.outputs))


def _ends(run_dir: Path) -> dict[str, str]:
    ends = {}
    journal = run_dir / JOURNAL_NAME
    for line in read_lines(journal) if journal.exists() else ():
        if line is not None and line["kind"] == "measured":
            median = line["statistics"]["median"]
            ends[line["operator"]] = f"measured: {line['observed']} on {line['core']}, median {median} us"
        elif line is not None and line["kind"] == "failed":
            ends[line["operator"]] = f"{line['failure']}: {line['reason']}"
    return ends


def _machine(probe: Probe, environ: Mapping[str, str]) -> dict[str, object]:
    packages = {d.metadata["Name"]: d.version for d in metadata.distributions()}
    return {
        "devices": [attrs.asdict(device) for device in probe.devices],
        "versions": dict(probe.versions),
        "packages": dict(sorted((name, version) for name, version in packages.items() if name)),
        "environment": {name: value for name, value in environ.items() if _VARIABLES.search(name)},
        "python": sys.version,
        "platform": platform.platform(),
    }


def _exported(environ: Mapping[str, str]) -> Iterator[tuple[str, list[str]]]:
    """Yield the aclnn functions of each operator library on the library path, which differ between CANN releases."""
    folders = [Path(part) for part in environ.get("LD_LIBRARY_PATH", "").split(os.pathsep) if part]
    for name in _LIBRARIES:
        found = next((folder / name for folder in folders if (folder / name).is_file()), None)
        if found is not None:
            yield name, sorted({match.decode() for match in _API.findall(found.read_bytes())})


def _pack(root: Path, archive: Path) -> None:
    def small(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
        return entry if entry.size <= _MAX_FILE_BYTES and (entry.isfile() or entry.isdir()) else None

    archive.parent.mkdir(parents=True, exist_ok=True)
    partial = archive.with_name(archive.name + ".partial")
    with tarfile.open(partial, "w:gz") as file:
        file.add(root, arcname="device_test", filter=small)
    partial.replace(archive)
