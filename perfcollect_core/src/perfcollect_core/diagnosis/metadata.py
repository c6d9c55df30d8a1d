"""Check the metadata of installed plugins: found twice, or older than the project it was installed from."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from urllib.parse import unquote, urlsplit
from urllib.request import url2pathname

from perfcollect_core.discovery import GROUPS, metadata_directories, normalise_distribution, read_providers

from .findings import Finding, Scope

__all__ = ["shadowed", "stale"]


def _plugin_directories() -> dict[str, list[Path]]:
    """Return the metadata directories of each plugin distribution, links resolved, in the order of ``sys.path``."""
    found: dict[str, list[Path]] = {}
    for directory in metadata_directories(every=True):
        path = Path(directory)
        if not (path / "entry_points.txt").is_file():
            continue
        providers = read_providers(directory)
        if providers or path.name.startswith("perfcollect_"):
            name = normalise_distribution(path.name.partition("-")[0].removesuffix(".egg"))
            real = path.resolve()
            if real not in found.setdefault(name, []):
                found[name].append(real)
    return found


def shadowed(scope: Scope) -> Iterator[Finding]:
    """Report a distribution whose metadata is there more than once: only the first counts, and it may be the old one."""
    for name, paths in _plugin_directories().items():
        if len(paths) > 1:
            others = ", ".join(map(str, paths[1:]))
            yield Finding(
                "metadata",
                "warning",
                name,
                f"{paths[0]} counts and hides {others}",
                f"pip uninstall {name} until it is gone, then install it once",
            )


def stale(scope: Scope) -> Iterator[Finding]:
    """Report an editable install whose entry points are not those of its ``pyproject.toml`` any more."""
    for name, paths in _plugin_directories().items():
        project = _editable_project(paths[0])
        if project is None:
            continue
        if not (project / "pyproject.toml").is_file():
            yield Finding(
                "metadata",
                "error",
                name,
                f"was installed from {project}, where there is no pyproject.toml any more",
                f"pip uninstall {name}, or install it again from where it is now",
            )
            continue
        written = _project_entry_points(project / "pyproject.toml")
        installed = {(p.group, p.name): p.value for p in read_providers(str(paths[0]))}
        if written is None or written == installed:
            continue
        differing = sorted(
            {key[1] for key in written.keys() ^ installed.keys()}
            | {key[1] for key in written.keys() & installed.keys() if written[key] != installed[key]}
        )
        yield Finding(
            "metadata",
            "error",
            name,
            f"entry points differ from {project / 'pyproject.toml'}: {', '.join(differing)}",
            f"make install, or pip install --no-deps -e {project}",
        )


def _editable_project(dist_info: Path) -> Path | None:
    try:
        origin = json.loads((dist_info / "direct_url.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    url = urlsplit(origin.get("url", ""))
    if url.scheme != "file" or not origin.get("dir_info", {}).get("editable"):
        return None
    return Path(url2pathname(unquote(url.path)) if sys.platform == "win32" else unquote(url.path))


def _project_entry_points(pyproject: Path) -> Mapping[tuple[str, str], str] | None:
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib  # type: ignore[import-not-found, unused-ignore]  # there on 3.10 only

    try:
        project = tomllib.loads(pyproject.read_text(encoding="utf-8")).get("project", {})
    except (OSError, ValueError):
        return None
    if "entry-points" in project.get("dynamic", ()):
        return None
    groups = project.get("entry-points", {})
    return {
        (group, name): re.sub(r"\s+", "", value)
        for group in GROUPS
        for name, value in groups.get(f"perfcollect.{group}", {}).items()
    }
