"""``perfcollect ops``: the operators that are installed, from metadata alone unless more is asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from perfcollect_core.discovery import Provider, operator_name, plugin_index

from .arguments import complete_operator
from .output import emit, format_option, format_table, warn

if TYPE_CHECKING:
    from perfcollect_core.specs import OperatorSpec

__all__ = ["ops"]


@click.group(
    invoke_without_command=True,
    short_help="List the operators that are installed.",
    epilog="Example: perfcollect ops --format json",
)
@click.option(
    "--long", "long_listing", is_flag=True, help="Import the plugins and add families, needs and columns."
)
@format_option
@click.pass_context
def ops(context: click.Context, long_listing: bool, output_format: str) -> None:
    """List the operators that are installed: operator, distribution, version and entry point.

    The list comes from metadata and imports no plugin. --long and `ops show NAME` import the modules concerned.
    """
    if context.invoked_subcommand is not None:
        return
    index = plugin_index()
    providers = index.all("operators")
    if long_listing:
        _list_long(providers, output_format)
    else:
        rows = [(p.name, p.distribution, p.version, p.value) for p in providers]
        header = ("operator", "distribution", "version", "entry point")
        emit([_facts(p) for p in providers], lambda: format_table(header, rows), output_format)
    for name in index.names("operators"):
        several = index.providers("operators", name)
        if len(several) > 1:
            warn(
                f"operator {name!r} is provided by {' and '.join(p.label for p in several)}; "
                f"name one as --ops {several[0].distribution}:{name}"
            )
    for provider in index.refused:
        warn(
            f"entry point {provider.name!r} of {provider.label} is ignored: its name is not safe as a file name"
        )


@ops.command("show", epilog="Example: perfcollect ops show MatMulV2")
@click.argument("name", shell_complete=complete_operator)
@format_option
def show(name: str, output_format: str) -> None:
    """Show all that operator NAME says about itself (imports its plugin, never torch)."""
    distribution, operator = operator_name(name)
    provider = plugin_index().require("operators", operator, distribution)
    facts = {**_facts(provider), **_spec_facts(_load_spec(provider))}
    emit(facts, lambda: "\n".join(_lines(facts)), output_format)


def _facts(provider: Provider) -> dict[str, object]:
    return {
        "operator": provider.name,
        "distribution": provider.distribution,
        "version": provider.version,
        "entry_point": provider.value,
    }


def _load_spec(provider: Provider) -> OperatorSpec:
    from perfcollect_core.host import read_spec
    from perfcollect_core.loading import load_provider

    return read_spec(load_provider(provider))


def _list_long(providers: tuple[Provider, ...], output_format: str) -> None:
    from perfcollect_core.errors import PluginError

    found: list[dict[str, object]] = []
    for provider in providers:
        try:
            found.append({**_facts(provider), **_spec_facts(_load_spec(provider))})
        except PluginError as error:
            # One broken plugin must not hide the others.
            found.append({**_facts(provider), "error": str(error)})
            warn(str(error))
    columns = ("operator", "distribution", "version", "families", "needs", "aliases", "columns")
    rows = [[_short(facts.get(column, "")) for column in columns] for facts in found]
    emit(found, lambda: format_table(columns, rows), output_format)


def _spec_facts(spec: OperatorSpec) -> dict[str, object]:
    return {
        "summary": spec.summary,
        "families": list(spec.families),
        "api": dict(spec.api),
        "inputs": [_slot_text(slot.name, slot.optional, slot.metadata) for slot in spec.inputs],
        "outputs": [_slot_text(slot.name, slot.optional, slot.metadata) for slot in spec.outputs],
        "aliases": list(spec.aliases),
        "kernels": list(spec.kernels or (spec.name,)),
        "columns": [
            *spec.key_columns,
            *(c.name for c in spec.profile_columns if c.name not in spec.key_columns),
        ],
        "axes": [axis.name for axis in spec.axes],
        "needs": [f"{need.kind} {need.name} ({', '.join(need.families)})" for need in spec.needs],
        "ranks": spec.ranks,
        "value_policy": spec.value_policy,
        "assumptions": list(spec.assumptions),
        "example_rows": len(spec.examples),
    }


def _slot_text(name: str, optional: bool, metadata: bool) -> str:
    return name + (" (optional)" if optional else "") + (" (metadata)" if metadata else "")


def _short(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _lines(facts: dict[str, object]) -> list[str]:
    width = max(map(len, facts))
    lines = []
    for name, value in facts.items():
        values = [f"{k}: {v}" for k, v in value.items()] if isinstance(value, dict) else value
        shown = values if isinstance(values, list) else [values]
        for position, item in enumerate(shown or ["-"]):
            label = name.replace("_", " ") if position == 0 else ""
            text = "as the row says" if name == "ranks" and item is None else str(item)
            lines.append(f"{label.ljust(width)}  {text or '-'}".rstrip())
    return lines
