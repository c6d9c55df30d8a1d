"""The options that describe a sweep, shared by ``comm plan``, ``run`` and ``sweep``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from perfcollect_core.cli.arguments import multi_option
from perfcollect_core.errors import DeviceUnavailableError

from .backend import CommBackend
from .orders import load_backend
from .plan import DEFAULT_BYTES, CommRequest
from .topology import DEFAULT_SHAPE, Grid

__all__ = ["backend_for", "request_from", "sweep_options"]

_F = TypeVar("_F", bound=Callable[..., Any])

#: Asked in this order where no backend is named.
_AUTOMATIC = ("hccl", "nccl", "gloo")


def sweep_options(function: _F) -> _F:
    """Add the options that say what to measure."""
    for option in reversed(
        (
            click.option(
                "--backend",
                help="hccl, nccl, gloo, fake (planning) or a plugin's.  [default: what this machine has]",
            ),
            multi_option(
                "--ops",
                default=("all_reduce", "all_gather", "reduce_scatter", "all_to_all"),
                show_default=True,
                help="Collectives; all_to_all_single and broadcast too.",
            ),
            multi_option(
                "--num-devices",
                type=int,
                default=(16,),
                show_default=True,
                metavar="N...",
                help="Group sizes.",
            ),
            multi_option(
                "--topology-tier",
                type=int,
                metavar="TIER...",
                help="Keep only groups of these tiers, 0 the outermost.  [default: every tier]",
            ),
            multi_option(
                "--grid-shape",
                type=int,
                default=DEFAULT_SHAPE,
                show_default=True,
                metavar="N...",
                help="Device grid, outermost dimension first.",
            ),
            click.option(
                "--dtype", default="bfloat16", show_default=True, help="bfloat16, float16, float32 or int8."
            ),
            multi_option(
                "--bytes-grid",
                type=int,
                metavar="BYTES...",
                help="Message sizes.  [default: 128 B to 512 MiB by factor 2]",
            ),
            click.option(
                "--nproc", type=click.IntRange(1), help="Ranks on this node.  [default: largest group size]"
            ),
            click.option("--nnodes", type=click.IntRange(1), default=1, show_default=True, help="Nodes."),
            click.option("--concurrent", is_flag=True, help="Run all groups of a family at once."),
            click.option("--device", help="Device name, for tier names and predicted times."),
        )
    ):
        function = option(function)
    return function


def request_from(options: dict[str, Any], memory_bytes: int) -> CommRequest:
    """Build the request from the values of ``sweep_options``."""
    nnodes = options["nnodes"]
    nproc = options["nproc"] or -(-max(options["num_devices"]) // nnodes)
    return CommRequest(
        world=nproc * nnodes,
        ops=tuple(options["ops"]),
        num_devices=tuple(options["num_devices"]),
        grid=Grid(tuple(options["grid_shape"])),
        tiers=tuple(options["topology_tier"]),
        dtype=options["dtype"],
        bytes_grid=tuple(options["bytes_grid"]) or DEFAULT_BYTES,
        concurrent=options["concurrent"],
        device=options["device"],
        memory_bytes=memory_bytes,
    )


def backend_for(name: str | None, ranks_here: int, *, planning: bool = False) -> CommBackend:
    """Return the backend asked for, or the first this machine can run; a named one never gives way to another.

    Raises:
        DeviceUnavailableError: The backend named cannot run here, or none can.
    """
    if name is None:
        for candidate in _AUTOMATIC:
            backend = load_backend(candidate)
            if backend.missing(ranks_here) is None:
                return backend
        name = _AUTOMATIC[-1]
    backend = load_backend(name)
    missing = backend.missing(ranks_here)
    if missing is not None and not planning:
        raise DeviceUnavailableError(
            f"backend {name} cannot run here: {missing.what} not found (looked at {missing.looked})",
            hint=missing.fix,
        )
    return backend
