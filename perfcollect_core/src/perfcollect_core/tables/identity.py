"""Which device family's numbers a database holds, and the refusal to mix them (decision 1)."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import attrs

from perfcollect_core.errors import DatabaseMismatchError, DataError, TableError

from .atomic import replace_file
from .columns import CORE, duration_us, has_valid_duration
from .read import Table, is_collective_table, read_table, table_paths

__all__ = [
    "IDENTITY_FILE",
    "Identity",
    "adopt_identity",
    "check_identity",
    "contradicting_rows",
    "family_of_core",
    "generation",
    "read_identity",
    "write_identity",
]

IDENTITY_FILE = "perfcollect.json"
_SCHEMA = 1

_FAMILY_OF_CORE = {
    **dict.fromkeys(("AI_CORE", "AI_VECTOR_CORE", "MIX_AIC", "MIX_AIV", "AI_CPU"), "ascend"),
    # Engines beside the cores: random numbers and collectives.
    **dict.fromkeys(("DSA", "COMMUNICATION", "HCCL"), "ascend"),
    "CPU": "cpu",
    "GPU": "cuda",
}
_FAMILY_OF_BACKEND = {"hccl": "ascend", "gloo": "cpu", "nccl": "cuda"}


@attrs.frozen
class Identity:
    """What a database holds.

    ``device`` is the device directory name, empty where only the rows tell the family. ``evidence`` says where it
    is known from: ``perfcollect.json``, ``path`` or ``rows``.
    """

    family: str
    device: str = ""
    versions: Mapping[str, str] = attrs.field(factory=dict)
    emulated: bool = False
    evidence: str = attrs.field(default=IDENTITY_FILE, eq=False)

    def __str__(self) -> str:
        emulated = "emulated " if self.emulated else ""
        device = f" of {self.device}" if self.device else ""
        return f"{emulated}{self.family} durations{device}"


def read_identity(database: Path) -> Identity | None:
    """Return what *database* holds; ``None`` where nothing is known and no row has a valid duration.

    Raises:
        DatabaseMismatchError: Rows with a valid duration name no known core, or cores of two families.
        DataError: ``perfcollect.json`` cannot be read.
    """
    return _from_file(database) or _from_path(database) or _from_rows(database)


def check_identity(database: Path, *, family: str, device: str, emulated: bool = False) -> None:
    """Refuse to measure into a database that holds something else.

    *device* is the device's directory name or what its driver calls it; on Ascend its generation counts.

    Raises:
        DatabaseMismatchError: The family, the Ascend generation or the emulated mark differ, or the rows contradict
            each other.
    """
    held = read_identity(database)
    if held is None:
        return
    measured = Identity(family, device, emulated=emulated)
    theirs, ours = generation(held.device), generation(device)
    fits = (
        held.family == family
        and held.emulated == emulated
        and (family != "ascend" or not theirs or not ours or theirs == ours)
    )
    if fits:
        return
    target = f" --device {device}" if device else ""
    raise DatabaseMismatchError(
        f"database {database} holds {held} (known from its {_evidence(held)}), this run would measure {measured}",
        hint=f"perfcollect db derive {database} NEW_DIRECTORY{target}{' --emulated' if emulated else ''} "
        "copies its rows without their durations; measure into that",
    )


def adopt_identity(
    database: Path,
    *,
    family: str,
    device: str,
    versions: Mapping[str, str] | None = None,
    emulated: bool = False,
) -> Identity:
    """Write ``perfcollect.json`` unless the database has one or its path says what it is; return what holds now.

    A file without versions, as ``db derive`` writes it, gets those of the first run. The caller holds the lock and
    has checked the identity.
    """
    named = _from_file(database)
    if named is not None and versions and not named.versions:
        return write_identity(database, attrs.evolve(named, versions=dict(versions)))
    known = named or _from_path(database)
    return known or write_identity(database, Identity(family, device, dict(versions or {}), emulated))


def write_identity(database: Path, identity: Identity) -> Identity:
    """Write ``perfcollect.json``, whatever was known before."""
    content = {
        "schema": _SCHEMA,
        "device": identity.device,
        "family": identity.family,
        "versions": dict(identity.versions),
        "emulated": identity.emulated,
    }
    replace_file(database / IDENTITY_FILE, (json.dumps(content, indent=2) + "\n").encode("utf-8"))
    return identity


def contradicting_rows(database: Path) -> str:
    """Say which measured rows belong to another family than ``perfcollect.json`` or the path says; empty if none do.

    Raises:
        DataError: As ``read_identity``.
    """
    named = _from_file(database) or _from_path(database)
    held = _from_rows(database)
    if named is None or held is None or named.family == held.family:
        return ""
    return f"the rows hold {held.family} durations, {_evidence(named)} says {named.family}"


def generation(device: str) -> str:
    """Return the Ascend generation a device name belongs to (``A2``, ``A3``), empty where it does not say."""
    name = device.upper()
    if "910_93" in name or "_A3" in name:
        return "A3"
    if "910B" in name or "_A2" in name:
        return "A2"
    return ""


def family_of_core(core: str) -> str | None:
    """Return the device family whose rows say *core* in ``Accelerator Core``; ``None`` for an unknown one."""
    return _FAMILY_OF_CORE.get(core)


def _from_file(database: Path) -> Identity | None:
    path = database / IDENTITY_FILE
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if content["schema"] > _SCHEMA:
            raise ValueError(f"schema {content['schema']}, this version knows {_SCHEMA}")
        versions = {str(name): str(version) for name, version in content.get("versions", {}).items()}
        emulated = content.get("emulated", False)
        if not isinstance(emulated, bool) or not isinstance(content["family"], str) or not content["family"]:
            raise ValueError("'family' must be a name and 'emulated' true or false")
        return Identity(content["family"], str(content.get("device") or ""), versions, emulated)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        reason = f"no {error}" if isinstance(error, KeyError) else str(error)
        raise DataError(
            f"{path} does not say what the database holds: {reason}",
            hint="restore the file; perfcollect db derive writes a database with a new one",
        ) from error


def _from_path(database: Path) -> Identity | None:
    resolved = database.resolve()
    if resolved.parent.name not in ("vllm_ascend", "hccl"):
        return None
    device = resolved.parent.parent.name
    return Identity("ascend", device, {"directory": resolved.name}, evidence="path") if device else None


def _from_rows(database: Path) -> Identity | None:
    found: Counter[tuple[str, str]] = Counter()
    if database.is_dir():
        for path in table_paths(database, collectives=True):
            try:
                # A table that cannot be read is reported by whoever needs it; the others still tell the family.
                table = read_table(path, required=())
            except TableError:
                continue
            found.update(_evidence_in(table))
    if not found:
        return None
    families = {_family(kind, value) for kind, value in found}
    if len(families) == 1 and None not in families:
        return Identity(families.pop() or "", evidence="rows")
    listed = ", ".join(
        f"{value or 'blank'} in {count} row{'' if count == 1 else 's'}"
        for (_, value), count in sorted(found.items(), key=lambda i: -i[1])
    )
    what = "of an unknown device" if families == {None} else "of several device families"
    raise DatabaseMismatchError(
        f"database {database} holds durations {what}: Accelerator Core is {listed}",
        hint=f"perfcollect db check {database}",
    )


def _evidence_in(table: Table) -> Counter[tuple[str, str]]:
    if is_collective_table(table.path):
        latency = [c for c in table.header if "duration" in c.lower() or "latency" in c.lower()]
        measured = [r for r in table.rows if any(duration_us(r.cells.get(c)) is not None for c in latency)]
        return Counter(("backend", row.get("Backend").lower() or "hccl") for row in measured)
    return Counter(("core", row.get(CORE)) for row in table.rows if has_valid_duration(row.cells))


def _family(kind: str, value: str) -> str | None:
    return _FAMILY_OF_BACKEND.get(value) if kind == "backend" else _FAMILY_OF_CORE.get(value)


def _evidence(identity: Identity) -> str:
    return {"path": "path", "rows": f"{CORE} column"}.get(identity.evidence, identity.evidence)
