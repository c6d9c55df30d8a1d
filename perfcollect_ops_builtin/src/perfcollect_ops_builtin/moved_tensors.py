"""Key the operators that only move one tensor: its parameters are recorded without their values."""

from __future__ import annotations

import attrs

from perfcollect_core import OperatorSpec, Row, parse_signature

__all__ = ["source_and_output_key"]


def source_and_output_key(spec: OperatorSpec, row: Row) -> tuple[str, ...] | None:
    """Key *row* by its first input, whose format does not matter, its outputs and its key columns."""
    try:
        signature = parse_signature(row.cells)
    except ValueError:
        return None
    moved = attrs.evolve(signature, inputs=(attrs.evolve(signature.input(0), format="ND"),))
    return (spec.name, *moved.canonical(), *(row.get(column) for column in spec.key_columns))
