"""Where a database lies: derived paths, the databases below a root, and what to say when none is there."""

from __future__ import annotations

import difflib
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path

import attrs

from perfcollect_core.errors import DataError, UsageError

from .listing import DatabaseEntry, directories, list_databases
from .versions import (
    StackVersions,
    detect_cann,
    detect_torch,
    detect_vllm,
    normalise_version,
    parse_directory_name,
    same_version,
)

__all__ = [
    "ASCEND_DEVICES",
    "DEFAULT_ASCEND_DEVICE",
    "DatabaseEntry",
    "DatabaseOptions",
    "LocatedDatabase",
    "data_root",
    "find_database",
    "is_device_name",
    "list_databases",
    "locate_database",
]

DEFAULT_ASCEND_DEVICE = "ATLAS_800_A3_752T_128G_DIE"
ASCEND_DEVICES = (
    "ATLAS_800_A2_376T_64G",
    "ATLAS_800_A2_313T_64G",
    "ATLAS_800_A2_280T_64G",
    "ATLAS_800_A2_280T_64G_PCIE",
    "ATLAS_800_A2_280T_32G_PCIE",
    DEFAULT_ASCEND_DEVICE,
    "ATLAS_800_A3_560T_128G_DIE",
)
_ROOT_VARIABLE = "PERFCOLLECT_DATA_ROOT"
_REPOSITORY_ROOT = Path("tensor_cast/performance_model/profiling_database/data")
_DEVICE_NAME = re.compile(r"[A-Za-z0-9]+(?:[._+-]+[A-Za-z0-9]+)*", re.ASCII)
_LATEST = "latest"


@attrs.frozen
class DatabaseOptions:
    """What the command line says about the database; ``None`` where it says nothing."""

    database_path: Path | None = None
    data_root: Path | None = None
    device: str | None = None
    vllm_version: str | None = None
    torch_version: str | None = None
    cann_version: str | None = None


@attrs.frozen
class LocatedDatabase:
    """A database's directory, how each part of its path came about (``name=value (given)``), and what to tell."""

    path: Path
    parts: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def locate_database(
    options: DatabaseOptions,
    *,
    family: str,
    device_name: str,
    create: bool = False,
    notify: Callable[[str], None] | None = None,
) -> Path:
    """Return the database's directory (decision 2); with *create* it is made where it is not there.

    *family* and *device_name* are this machine's; ``parse`` and ``grid`` pass family ``ascend``. *notify* gets what
    was normalised or chosen, one line each; it goes to stderr by default.

    Raises:
        UsageError: A version or device is no such thing, or a part is neither given nor detected.
        DataError: The directory is not there, or cannot be made.
    """
    located = find_database(options, family=family, device_name=device_name)
    for note in located.notes:
        (notify or _print)(note)
    if located.path.is_dir():
        return located.path
    if not create:
        raise _missing(located, options)
    try:
        located.path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(
            f"database {located.path} cannot be created: {error.strerror or error}",
            hint="name a directory you may write with --database-path",
        ) from error
    return located.path


def find_database(options: DatabaseOptions, *, family: str, device_name: str) -> LocatedDatabase:
    """Derive where the database is, whether or not it is there; raises ``UsageError`` like ``locate_database``."""
    if options.database_path is not None:
        path = options.database_path.expanduser()
        return LocatedDatabase(path, ("given with --database-path",))
    root, origin = data_root(options)
    for_ascend = family == "ascend" or (options.device or "").upper().startswith("ATLAS")
    if for_ascend or options.vllm_version is not None or options.cann_version is not None:
        return _ascend_database(options, root, origin)
    device = _device(options, device_name)
    torch, torch_part, notes = _part("torch", options.torch_version, detect_torch)
    directory = root / device[0]
    path = directory / f"torch{torch}"
    if not path.is_dir():
        path = next(
            (
                entry
                for entry in directories(directory)
                if entry.name.startswith("torch") and same_version(entry.name.removeprefix("torch"), torch)
            ),
            path,
        )
    return LocatedDatabase(path, (f"root={root} ({origin})", device[1], torch_part), notes)


def data_root(options: DatabaseOptions) -> tuple[Path, str]:
    """Return the root that derived paths hang under and where it came from."""
    if options.data_root is not None:
        return options.data_root.expanduser(), "given"
    if from_environment := os.environ.get(_ROOT_VARIABLE):
        return Path(from_environment).expanduser(), f"${_ROOT_VARIABLE}"
    return (_REPOSITORY_ROOT if _REPOSITORY_ROOT.is_dir() else Path("data")), "default"


def _ascend_database(options: DatabaseOptions, root: Path, origin: str) -> LocatedDatabase:
    device, device_part = _device(options, DEFAULT_ASCEND_DEVICE)
    base = root / device / "vllm_ascend"
    parts = (f"root={root} ({origin})", device_part)
    if options.vllm_version is not None and options.vllm_version.strip() == _LATEST:
        return _latest(options, base, parts)
    stack, version_parts, notes = _stack(options)
    path = base / stack.directory
    if not path.is_dir():
        for entry in directories(base):
            found = parse_directory_name(entry.name)
            if found is not None and found.fits(stack):
                notes = (*notes, f"using the existing directory {entry.name} for {stack.directory}")
                path = entry
                break
    return LocatedDatabase(path, (*parts, *version_parts), notes)


def _stack(options: DatabaseOptions) -> tuple[StackVersions, tuple[str, ...], tuple[str, ...]]:
    given = (options.vllm_version or "").strip()
    whole = parse_directory_name(given)
    if whole is not None:
        for part, text in (("torch", options.torch_version), ("cann", options.cann_version)):
            inside = getattr(whole, part)
            if text is not None and not same_version(normalise_version(part, text), inside.partition("+")[0]):
                raise UsageError(
                    f"--{part}-version {text} contradicts --vllm-version {given}, which says {part}{inside}",
                    hint="leave one of the two out",
                )
        return whole, (f"version={given} (given)",), ()
    found: dict[str, str] = {}
    parts: list[str] = []
    notes: list[str] = []
    for part, text, detect in (
        ("vllm", options.vllm_version, detect_vllm),
        ("torch", options.torch_version, detect_torch),
        ("cann", options.cann_version, detect_cann),
    ):
        found[part], described, said = _part(part, text, detect)
        parts.append(described)
        notes.extend(said)
    return StackVersions(**found), tuple(parts), tuple(notes)


def _part(part: str, given: str | None, detect: Callable[[], str | None]) -> tuple[str, str, tuple[str, ...]]:
    if given is not None:
        version = normalise_version(part, given)
        notes = (f"--{part}-version {given!r} is read as {version}",) if version != given else ()
        return version, f"{part}={version} (given)", notes
    detected = detect()
    if not detected:
        raise UsageError(
            f"the {_PART_NAMES[part]} version is neither given nor detected on this machine",
            hint=f"give --{part}-version, or name the directory itself with --database-path",
        )
    try:
        version = normalise_version(part, detected)
    except UsageError:
        raise UsageError(
            f"the {_PART_NAMES[part]} version detected on this machine, {detected!r}, names no release",
            hint=f"give --{part}-version, or name the directory itself with --database-path",
        ) from None
    return version, f"{part}={version} (detected)", ()


_PART_NAMES = {"vllm": "vLLM-Ascend", "torch": "PyTorch", "cann": "CANN"}


def _latest(options: DatabaseOptions, base: Path, parts: tuple[str, ...]) -> LocatedDatabase:
    wanted = {
        part: normalise_version(part, text)
        for part, text in (("torch", options.torch_version), ("cann", options.cann_version))
        if text is not None
    }
    candidates = [
        (stack.order, entry)
        for entry in directories(base)
        if (stack := parse_directory_name(entry.name))
        and stack.is_release
        and all(same_version(getattr(stack, part).partition("+")[0], text) for part, text in wanted.items())
    ]
    if not candidates:
        raise DataError(
            f"--vllm-version latest finds no release below {base}",
            hint="development versions, release candidates and variants are never taken; give the version",
        )
    path = max(candidates, key=lambda candidate: candidate[0])[1]
    return LocatedDatabase(
        path, (*parts, f"version={path.name} (latest)"), (f"--vllm-version latest is {path.name}",)
    )


def _device(options: DatabaseOptions, default: str) -> tuple[str, str]:
    if options.device is None:
        return default, f"device={default} (default)"
    name = options.device
    if not is_device_name(name):
        raise UsageError(
            f"--device {name!r} is not known", hint=f"the Ascend devices are {', '.join(ASCEND_DEVICES)}"
        )
    return name, f"device={name} (given)"


def is_device_name(name: str) -> bool:
    """Tell whether *name* may be a device's directory: a plain word, and among the known ones for Ascend."""
    unknown_model = name.upper().startswith("ATLAS") and name not in ASCEND_DEVICES
    return not unknown_model and _DEVICE_NAME.fullmatch(name) is not None


def _missing(located: LocatedDatabase, options: DatabaseOptions) -> DataError:
    parts = ", ".join(located.parts)
    root = data_root(options)[0]
    message = f"no database at {located.path} ({parts})"
    # Below the root is not where somebody looks who named a directory.
    derived = options.database_path is None and root.is_dir()
    others = [str(entry.path) for entry in list_databases(root)] if derived else []
    if len(others) == 1:
        return DataError(message, hint=f"there is one below {root}: --database-path {others[0]}")
    nearest = ", ".join(_nearest(located.path)) or "none"
    return DataError(
        message,
        hint=f"the nearest existing directories are {nearest}; "
        "perfcollect db init, db derive and parse make new ones",
    )


def _nearest(path: Path) -> list[str]:
    parent = path.parent
    while not parent.is_dir() and parent != parent.parent:
        parent = parent.parent
    names = [entry.name for entry in directories(parent)]
    wanted = path.relative_to(parent).parts[0]
    close = difflib.get_close_matches(wanted, names, n=4, cutoff=0.0)
    return [str(parent / name) for name in close] or [str(parent)]


def _print(note: str) -> None:
    print(note, file=sys.stderr)
