"""``perfcollect db``: look at databases, check them, and make new ones."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import attrs
import click

from perfcollect_core.errors import DataError, UsageError

from .arguments import complete_operator, multi_option
from .output import emit, format_option, format_table, note

if TYPE_CHECKING:
    pass

__all__ = ["db"]

_DIRECTORY = click.Path(path_type=Path)


@click.group()
def db() -> None:
    """Make, list and check databases.

    Example: perfcollect db derive data/ascend_910b data/CPU_X86_64/torch2.13.0
    """


@db.command()
@click.argument("directory", type=_DIRECTORY)
@format_option
def info(directory: Path, output_format: str) -> None:
    """Say what the database in DIRECTORY holds: device, tables, rows, how many are measured.

    Example: perfcollect db info data/ascend_910b
    """
    from perfcollect_core.tables.contents import database_contents

    contents = database_contents(directory)

    def text() -> str:
        held = contents.identity
        lines = [f"{directory}: {f'{held} (known from {held.evidence})' if held else 'nothing measured yet'}"]
        if held and held.versions:
            lines.append("  " + ", ".join(f"{name} {version}" for name, version in held.versions.items()))
        rows = [
            (t.name, "-", "-", "-", "-", t.problem)
            if t.problem
            else (t.name, t.rows, t.measured, t.average, t.profiling, "")
            for t in contents.tables
        ]
        header = ("Table", "Rows", "Measured", "Average", "Profiling", "")
        lines.append(format_table(header, rows, right=(1, 2, 3, 4)) if rows else "no table")
        return "\n".join([*lines, *(f"note: {line}" for line in contents.notes)])

    emit(contents.as_dict(), text, output_format)


@db.command("list")
@click.argument("root", type=_DIRECTORY, required=False)
@format_option
def list_command(root: Path | None, output_format: str) -> None:
    """List the databases below ROOT (default: the data root) in version order, variants marked.

    Example: perfcollect db list data
    """
    from perfcollect_core.tables.layout import DatabaseOptions, data_root, list_databases
    from perfcollect_core.tables.read import table_paths

    root = root if root is not None else data_root(DatabaseOptions())[0]
    entries = [
        {
            "path": str(entry.path),
            "device": entry.device,
            "name": entry.path.name,
            "variant": entry.stack.variant.lstrip("_") if entry.stack else "",
            "tables": len(table_paths(entry.path, collectives=True)),
        }
        for entry in list_databases(root)
    ]

    def text() -> str:
        if not entries:
            return f"no database below {root}"
        rows = [
            (e["device"], e["name"], e["tables"], f"variant {e['variant']}" if e["variant"] else "")
            for e in entries
        ]
        return format_table(("Device", "Database", "Tables", ""), rows, right=(2,))

    emit(entries, text, output_format)


@db.command()
@click.argument("directory", type=_DIRECTORY)
@click.option(
    "--density",
    is_flag=False,
    flag_value="",
    metavar="[STANDARD.yaml]",
    help="Also judge how densely the rows cover their axes, by the shipped standard or by this one.",
)
@click.option(
    "--queries",
    type=_DIRECTORY,
    metavar="FILE.jsonl",
    help="Also say whether the rows answer each query of this manifest.",
)
@format_option
def check(directory: Path, density: str | None, queries: Path | None, output_format: str) -> int:
    """Check the tables in DIRECTORY: form, duplicates, conflicts, impossible times; exit 1 where one is found.

    Example: perfcollect db check data/ascend_910b
    """
    from perfcollect_core.profiles.audits import audits
    from perfcollect_core.tables.checks import CHECKS, check_database

    from .db_check import check_density, check_queries_of

    findings = list(check_database(directory, checks=(*CHECKS, *audits(directory))))
    more: dict[str, object] = {}
    tables: list[str] = []
    if density is not None:
        found, part, lines = check_density(directory, Path(density) if density else None)
        findings, more["density"], tables = [*findings, *found], part, [*tables, *lines]
    if queries is not None:
        found, part, lines = check_queries_of(directory, queries)
        findings, more["queries"], tables = [*findings, *found], part, [*tables, *lines]

    def text() -> str:
        lines = [str(finding) for finding in findings]
        count = _counted(len(findings), "finding") if findings else "nothing found"
        ending = f"{directory}: {count}"
        return "\n".join([*tables, *lines, ending])

    listed = [attrs.asdict(finding) for finding in findings]
    emit({"findings": listed, **more} if more else listed, text, output_format)
    return 1 if findings else 0


@db.command()
@click.argument("source", type=_DIRECTORY)
@click.argument("target", type=_DIRECTORY)
@click.option("--device", metavar="NAME", help="Device of the new database (default: this machine's CPU).")
@click.option("--emulated", is_flag=True, help="Mark it as one that holds the numbers of an emulated device.")
@format_option
def derive(source: Path, target: Path, device: str | None, emulated: bool, output_format: str) -> None:
    """Copy the rows of SOURCE to the new directory TARGET without what was measured, for another device.

    Example: perfcollect db derive data/ascend_910b data/CPU_X86_64/torch2.13.0
    """
    from perfcollect_core.tables.derive import derive_database

    name = device or _cpu_device()
    result = derive_database(source, target, family=_family_of(name), device=name, emulated=emulated)
    if result.left_out:
        note(
            f"not copied, measured by one backend only: {', '.join(result.left_out)}; see perfcollect comm run"
        )
    rows = sum(result.tables.values())
    emit(
        {"path": str(target), "device": name, **attrs.asdict(result)},
        f"{target}: {_counted(rows, 'row')} in {_counted(len(result.tables), 'table')} for {name}"
        + (f", and {', '.join(result.files)}" if result.files else ""),
        output_format,
    )


@db.command()
@click.argument("directory", type=_DIRECTORY)
@multi_option(
    "--ops",
    required=True,
    shell_complete=complete_operator,
    help="Operators whose example rows become tables.",
)
@format_option
def init(directory: Path, ops: Sequence[str], output_format: str) -> None:
    """Make a database in DIRECTORY: one table for each of the operators, with its example rows.

    Example: perfcollect db init data/try --ops MatMulV2 Add
    """
    from perfcollect_core.tables.init import init_database

    examples = {}
    for name in dict.fromkeys(ops):
        operator, rows = _example_rows(name)
        examples[operator] = rows
    made = init_database(directory, examples)
    emit(
        {"path": str(directory), "tables": made},
        f"{directory}: " + ", ".join(f"{name} ({_counted(count, 'row')})" for name, count in made.items()),
        output_format,
    )


@db.command()
@click.argument("run", type=_DIRECTORY)
@format_option
def apply(run: Path, output_format: str) -> None:
    """Write the journal of the run directory RUN back into its database.

    Example: perfcollect db apply ./run-20260801T120000
    """
    from perfcollect_core.runner.apply import apply_run

    result = apply_run(run)
    emit(attrs.asdict(result), str(result), output_format)


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


def _example_rows(name: str) -> tuple[str, Sequence[dict[str, str]]]:
    from perfcollect_core.host import compose
    from perfcollect_core.loading import load_family, load_operator

    spec = compose(load_operator(name), load_family("cpu")).spec()
    if not spec.examples:
        raise DataError(
            f"operator {spec.name!r} has no example rows",
            hint="make its table by hand or with perfcollect parse",
        )
    return spec.name, [dict(row) for row in spec.examples]


def _cpu_device() -> str:
    from perfcollect_core.environment import DeviceFamily
    from perfcollect_core.loading import load_family

    family = load_family("cpu").plugin
    found = family.probe() if isinstance(family, DeviceFamily) else None
    if found is None or not found.devices:
        missing = found.missing[0].what if found and found.missing else "a device"
        raise UsageError(
            f"this machine's CPU is no device of perfcollect: {missing} is missing",
            hint="name the device: --device CPU_X86_64",
        )
    return found.devices[0].name


def _family_of(device: str) -> str:
    """Return the device family a device directory name belongs to: the one its name begins with."""
    from perfcollect_core.discovery import plugin_index
    from perfcollect_core.tables.identity import generation
    from perfcollect_core.tables.layout import is_device_name

    if not is_device_name(device):
        raise UsageError(f"--device {device!r} is no device name", hint="names look like CPU_X86_64")
    if generation(device) or device.upper().startswith("ATLAS_"):
        return "ascend"
    families = plugin_index().names("families")
    for family in families:
        if device.lower().split("_")[0] == family:
            return family
    raise UsageError(
        f"--device {device!r} belongs to no installed device family ({', '.join(families)})",
        hint="a device name begins with its family: CPU_X86_64, CUDA_NVIDIA_H200, ATLAS_800_A2_280T_64G",
    )
