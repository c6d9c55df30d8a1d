"""The standard sweep: what the predecessor's batch script collected, as one list of sessions."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import attrs

from perfcollect_core.errors import UsageError

from .plan import DEFAULT_BYTES

__all__ = ["QUICK_BYTES", "Session", "SweepEnvironment", "sessions", "sweep_environment"]

#: A connectivity check, not for a database.
QUICK_BYTES = (1 << 10, 1 << 16, 1 << 20, 1 << 24, 1 << 28)

_ROUNDS = (("all_reduce",), ("all_gather", "reduce_scatter"), ("all_to_all",))


@attrs.frozen
class SweepEnvironment:
    """The batch script's variables."""

    nnodes: int = 1
    node_rank: int | None = None
    master_addr: str | None = None
    master_port: int = 29700
    nproc: int = 16
    quick: bool = False


@attrs.frozen
class Session:
    """One launch: its collectives, group sizes, tiers and port offset."""

    ops: tuple[str, ...]
    num_devices: tuple[int, ...]
    nproc: int
    tiers: tuple[int, ...]
    port_offset: int

    def options(self, environment: SweepEnvironment) -> dict[str, Any]:
        """Return what ``comm run`` takes."""
        several = environment.nnodes > 1
        return {
            "ops": self.ops,
            "num_devices": self.num_devices,
            "topology_tier": self.tiers,
            "nproc": self.nproc,
            "nnodes": environment.nnodes,
            "node_rank": environment.node_rank,
            "master_addr": environment.master_addr,
            # On one node a free port is always better than a fixed one; several nodes have to agree.
            "master_port": environment.master_port + self.port_offset if several else None,
            "bytes_grid": QUICK_BYTES if environment.quick else DEFAULT_BYTES,
        }


def sweep_environment(environ: Mapping[str, str] = os.environ) -> SweepEnvironment:
    """Read ``NNODES NODE_RANK MASTER_ADDR MASTER_PORT NPROC QUICK``.

    Raises:
        UsageError: One is not a number, or several nodes lack a rank or an address.
    """

    def number(name: str, default: int) -> int:
        text = environ.get(name, "").strip()
        if not text:
            return default
        if not text.isdecimal():
            raise UsageError(f"{name}={text}, expected a number", hint=f"set {name} to digits or unset it")
        return int(text)

    nnodes = max(1, number("NNODES", 1))
    node_rank = number("NODE_RANK", 0) if environ.get("NODE_RANK") else None
    master_addr = environ.get("MASTER_ADDR") or None
    if nnodes > 1:
        missing = [n for n, v in (("NODE_RANK", node_rank), ("MASTER_ADDR", master_addr)) if v is None]
        if missing:
            raise UsageError(
                f"NNODES={nnodes} without {', '.join(missing)}",
                hint="export them on every node, NODE_RANK from 0",
            )
    port = number("MASTER_PORT", 29700)
    if nnodes > 1 and port + len(_ROUNDS) > 65535:
        raise UsageError(
            f"MASTER_PORT={port}: the sweep uses {port + 1} to {port + len(_ROUNDS)}, ports end at 65535",
            hint="choose a smaller port",
        )
    return SweepEnvironment(
        nnodes, node_rank, master_addr, port, number("NPROC", 16), number("QUICK", 0) == 1
    )


def sessions(environment: SweepEnvironment, *, innermost: int = 2) -> tuple[Session, ...]:
    """Return the sessions of the sweep.

    One node: groups of 16, 8, 4 and 2 (as far as NPROC goes) in one session a round, at every tier inside the node.
    Several nodes: powers of two from 32 to the world, 384 and 768 where they fit, at tier 0.

    Raises:
        UsageError: Several nodes whose world is below 32 ranks.
    """
    if environment.nnodes == 1:
        sizes = tuple(n for n in (16, 8, 4, 2) if n <= environment.nproc)
        if not sizes:
            raise UsageError(
                f"NPROC={environment.nproc}, expected at least 2", hint="set NPROC to 16, 8, 4 or 2"
            )
        return tuple(
            Session(ops, sizes, environment.nproc, (), index + 1) for index, ops in enumerate(_ROUNDS)
        )
    world = environment.nnodes * environment.nproc
    if world < 32:
        raise UsageError(
            f"a world of {world} ranks, the multi-node sweep starts at 32",
            hint="raise NNODES or NPROC, or use comm run",
        )
    powers = [1 << power for power in range(5, world.bit_length()) if 1 << power <= world]
    sizes = tuple(sorted({*powers, *(n for n in (384, 768) if n <= world)}))
    return tuple(Session(ops, sizes, environment.nproc, (0,), index + 1) for index, ops in enumerate(_ROUNDS))
