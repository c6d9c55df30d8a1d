"""Write the metadata of a distribution, as an installer would: what tests of plugin discovery stand on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import attrs

__all__ = ["FakeDistribution", "write_distribution"]


@attrs.frozen
class FakeDistribution:
    """A distribution on disk; ``path`` is the directory that goes onto ``sys.path``."""

    name: str
    version: str
    path: Path

    @property
    def dist_info(self) -> Path:
        return self.path / f"{self.name.replace('-', '_')}-{self.version}.dist-info"


def write_distribution(
    directory: Path,
    name: str,
    version: str,
    groups: Mapping[str, Mapping[str, str]],
    *,
    files: Mapping[str, str] | None = None,
    requires: Sequence[str] = (),
) -> FakeDistribution:
    """Write ``<name>-<version>.dist-info`` and *files* (text by relative path) into *directory*.

    *groups* maps an entry-point group without its prefix (``operators``) to names and their ``module:attribute``.
    """
    made = FakeDistribution(name, version, directory)
    made.dist_info.mkdir(parents=True)
    headers = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}"]
    headers += [f"Requires-Dist: {requirement}" for requirement in requires]
    (made.dist_info / "METADATA").write_text("\n".join(headers) + "\n\n", encoding="utf-8")
    (made.dist_info / "INSTALLER").write_text("perfcollect-testing\n", encoding="utf-8")
    lines = []
    for group, entries in groups.items():
        lines += [f"[perfcollect.{group}]", *(f"{entry} = {value}" for entry, value in entries.items()), ""]
    (made.dist_info / "entry_points.txt").write_text("\n".join(lines), encoding="utf-8")
    for path, text in (files or {}).items():
        (directory / path).parent.mkdir(parents=True, exist_ok=True)
        (directory / path).write_text(text, encoding="utf-8")
    return made
