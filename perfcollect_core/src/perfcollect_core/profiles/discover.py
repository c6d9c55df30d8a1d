"""Find profiler files, the captures and ranks they belong to, and captures that hold nothing readable yet."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import attrs

from perfcollect_core.errors import DataError, UsageError

__all__ = ["Discovery", "ProfileFile", "discover", "parse_ranks"]

_KERNEL_DETAILS = re.compile(r".*kernel_details.*\.csv", re.IGNORECASE)
_OP_SUMMARY = re.compile(r"op_summary.*\.csv", re.IGNORECASE)
_RANK_FILE = re.compile(r"profiler_info_([0-9]+)\.json")
_CAPTURE = "_ascend_pt"
_RAW = re.compile(r"PROF_.*")


@attrs.frozen
class ProfileFile:
    """A file to read: the capture (folder) it belongs to, and its rank where the capture says."""

    path: Path
    capture: str = ""
    rank: int | None = None

    @property
    def source(self) -> str:
        """What ``Runtime source_profile`` says: the capture, else the folder, never torch_npu's constant one."""
        return self.capture or self.path.resolve().parent.name


@attrs.frozen
class Discovery:
    """The files to read in order, and in words what was found and not taken."""

    files: tuple[ProfileFile, ...]
    notes: tuple[str, ...] = ()


def discover(paths: Sequence[Path], ranks: frozenset[int] | None = None) -> Discovery:
    """Find the profiler files that *paths* name: a file is taken whatever its name, a directory is searched.

    Of a capture that has ``kernel_details``, the ``op_summary`` files it was made from are left out. Files whose name
    does not begin with ``kernel_details`` come last, so that a copy is noticed as the copy and not as the original.

    Raises:
        DataError: A path is missing, or nothing is found.
    """
    found: list[ProfileFile] = []
    notes: list[str] = []
    for path in paths:
        if path.is_dir():
            files, said = _search(path)
            if not files:
                raise DataError(
                    f"no profiler file below {_shown(path)}{'; ' + '; '.join(said) if said else ''}",
                    hint="kernel_details*.csv (torch_npu.profiler) or op_summary_*.csv (msprof) is looked for",
                )
            found += files
            notes += said
        elif path.exists():
            found.append(ProfileFile(path, *_capture_of(path)))
        else:
            raise DataError(
                f"{_shown(path)} does not exist", hint="check --profiling-path for a typing error"
            )
    files, repeated = _distinct(found)
    notes += repeated
    if ranks is not None:
        files, said = _of_ranks(files, ranks)
        notes += said
    notes += _several_captures(files)
    return Discovery(tuple(files), tuple(notes))


def parse_ranks(texts: Iterable[str]) -> frozenset[int] | None:
    """Parse ``--ranks``: numbers and ranges (``0-3,8``); ``None`` where nothing is said."""
    numbers: set[int] = set()
    for word in ",".join(texts).split(","):
        match = re.fullmatch(r"\s*([0-9]+)(?:-([0-9]+))?\s*", word, re.ASCII)
        if match is None:
            if word.strip():
                raise UsageError(f"--ranks {word!r} is no number or range", hint="for example --ranks 0-3,8")
            continue
        numbers.update(range(int(match[1]), int(match[2] or match[1]) + 1))
    return frozenset(numbers) or None


def _shown(path: Path) -> str:
    """Return *path* with characters nobody can see written as escapes."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in str(path))


def _search(root: Path) -> tuple[list[ProfileFile], list[str]]:
    details: list[Path] = []
    summaries: list[Path] = []
    captures: list[Path] = []
    for directory, names in _walk(root):
        if directory.name.endswith(_CAPTURE):
            captures.append(directory)
        for name in names:
            if _KERNEL_DETAILS.fullmatch(name):
                details.append(directory / name)
            elif _OP_SUMMARY.fullmatch(name):
                summaries.append(directory / name)
    details.sort(key=lambda path: not path.name.lower().startswith("kernel_details"))
    files = [ProfileFile(path, *_capture_of(path)) for path in details]
    notes = []
    analysed = {file.capture for file in files if file.capture}
    left: dict[str, int] = {}
    for file in (ProfileFile(path, *_capture_of(path)) for path in summaries):
        if file.capture in analysed:
            left[file.capture] = left.get(file.capture, 0) + 1
        else:
            files.append(file)
    for capture, count in left.items():
        notes.append(f"{count} op_summary of {capture} not read: its kernel_details holds the same kernels")
    for folder in captures:
        if not any(folder in file.path.parents for file in files):
            rank = _rank_of(folder)
            who = f"rank {rank}" if rank is not None else "a capture"
            notes.append(
                f"{who} was never analysed: {_shown(folder)} holds no kernel_details.csv "
                "(torch_npu.profiler.profiler.analyse makes it)"
            )
    return files, notes


def _walk(root: Path) -> Iterator[tuple[Path, list[str]]]:
    for directory, folders, names in os.walk(root):
        folders.sort()
        yield Path(directory), sorted(names)


def _capture_of(path: Path) -> tuple[str, int | None]:
    """Return the name of the capture *path* lies in and its rank."""
    parents = path.resolve().parents
    for parent in parents:
        if parent.name.endswith(_CAPTURE):
            return parent.name, _rank_of(parent)
    for parent in parents:
        if _RAW.fullmatch(parent.name):
            return parent.name, None
    return "", None


def _rank_of(capture: Path) -> int | None:
    for entry in sorted(capture.iterdir()):
        match = _RANK_FILE.fullmatch(entry.name)
        if match:
            return int(match[1])
    return None


def _distinct(files: Iterable[ProfileFile]) -> tuple[list[ProfileFile], list[str]]:
    """Drop files named twice, through links too."""
    kept: dict[tuple[int, int] | Path, ProfileFile] = {}
    notes = []
    for file in files:
        try:
            status = file.path.stat()
        except OSError:
            kept[file.path] = file
            continue
        identity: tuple[int, int] | Path = (
            (status.st_dev, status.st_ino) if status.st_ino else file.path.resolve()
        )
        if identity in kept:
            notes.append(f"{_shown(file.path)} is the same file as {_shown(kept[identity].path)}: read once")
        else:
            kept[identity] = file
    return list(kept.values()), notes


def _of_ranks(files: Iterable[ProfileFile], ranks: frozenset[int]) -> tuple[list[ProfileFile], list[str]]:
    files = list(files)
    kept = [file for file in files if file.rank in ranks]
    missing = sorted(ranks - {file.rank for file in files if file.rank is not None})
    known = sorted({file.rank for file in files if file.rank is not None})
    if missing or not kept:
        raise DataError(
            f"--ranks asks for {', '.join(map(str, sorted(ranks)))}, found "
            f"{', '.join(map(str, known)) or 'no capture that says its rank'}",
            hint="a rank is known from profiler_info_<rank>.json in its *_ascend_pt folder",
        )
    left = [file for file in files if file.rank not in ranks]
    notes = [f"{_shown(file.path)} left out by --ranks" for file in left]
    return kept, notes


def _several_captures(files: Iterable[ProfileFile]) -> list[str]:
    by_rank: dict[int, dict[str, None]] = {}
    for file in files:
        if file.rank is not None:
            by_rank.setdefault(file.rank, {})[file.capture] = None
    return [
        f"rank {rank} has {len(captures)} captures, all are used: {', '.join(captures)}"
        for rank, captures in sorted(by_rank.items())
        if len(captures) > 1
    ]
