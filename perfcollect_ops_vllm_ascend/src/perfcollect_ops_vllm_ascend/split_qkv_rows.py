"""Read rows of split_qkv_rmsnorm_rope_kernel: widths, head size, table and positions."""

from __future__ import annotations

from typing import cast

from perfcollect_core import Row, Signature, TensorSpec
from perfcollect_core.lengths import (
    KEY_LENGTHS_COLUMN,
    QUERY_LENGTHS_COLUMN,
    integer_column,
    number_column,
    read_integers,
    split_lengths,
)
from perfcollect_core.tensors import format_shape

__all__ = ["POSITIONS", "check_shapes", "find_parameters", "find_tensors"]

#: Positions of Qwen3's rotary table.
POSITIONS = 40960


def check_shapes(signature: Signature) -> dict[str, int]:
    """Return the widths of queries and keys; raises ``ValueError`` where slots contradict each other."""
    hidden, table = signature.input(0).shape or (), signature.input(1).shape or ()
    query, key, value = (signature.output(index).shape for index in (0, 1, 2))
    if len(hidden) != 2:
        raise ValueError(f"slot 0 (input) is {format_shape(hidden) or 'blank'}, expected T,q+2kv")
    if not table or table[-1] % 2:
        raise ValueError(
            f"slot 1 (cos_sin_cache) is {format_shape(table) or 'blank'}, expected an even rotary width"
        )
    for index, shape in ((0, query), (1, key)):
        if not shape or len(shape) != 2 or shape[0] != hidden[0]:
            raise ValueError(
                f"output slot {index} is {format_shape(shape) or 'blank'}, expected {hidden[0]} tokens"
            )
    assert query is not None
    assert key is not None
    if hidden[1] != query[1] + 2 * key[1] or (value is not None and value != key):
        raise ValueError(
            f"slot 0 (input) is {format_shape(hidden)}, expected {query[1]} + 2 x {key[1]} channels as the outputs have"
        )
    return {"q_hidden_size": query[1], "kv_hidden_size": key[1]}


def find_parameters(
    row: Row, signature: Signature, widths: dict[str, int], assumptions: list[str]
) -> dict[str, object]:
    """Return head size, epsilon, phase and biases; what is not recorded is added to *assumptions*."""
    rope = (signature.input(1).shape or (0,))[-1]
    if integer_column(row, "Runtime rope_dim") not in (None, rope):
        raise ValueError(
            f"column 'Runtime rope_dim' is {row.get('Runtime rope_dim')}, expected {rope} as slot 1 holds"
        )
    head = integer_column(row, "Runtime head_dim")
    if head is None:
        fits = rope <= 128 and all(width % 128 == 0 for width in widths.values())
        head = 128 if fits else rope
        if not fits or head != rope:
            assumptions.append(
                f"head_dim={head} ({'divides queries and keys' if fits else 'width of the rotary table'})"
            )
    if head < rope or any(width % head for width in widths.values()):
        raise ValueError(
            f"head size {head} does not fit the {widths['q_hidden_size']} query and {widths['kv_hidden_size']} key "
            f"channels of the outputs and rotary width {rope} of slot 1"
        )
    epsilon = number_column(row, "Runtime epsilon")
    if epsilon is None:
        assumptions.append("epsilon=1e-06 (not recorded, timing-neutral)")
    tokens = (signature.input(0).shape or (0,))[0]
    phase = row.get("Runtime phase").lower()
    if phase not in ("", "decode", "prefill"):
        raise ValueError(f"column 'Runtime phase' is {phase!r}, expected decode or prefill")
    if not phase:
        phase = "decode" if tokens <= 256 else "prefill"
        assumptions.append(f"phase={phase} ({tokens} tokens)")
    bias = row.get("Runtime qk_bias").lower() in ("true", "1")
    return {
        "head_dim": head,
        "rope_dim": rope,
        "eps": 1e-6 if epsilon is None else epsilon,
        "phase": phase,
        "bias": bias,
    }


def find_tensors(
    row: Row, signature: Signature, params: dict[str, object], assumptions: list[str]
) -> dict[str, TensorSpec]:
    """Return the tensors to build, the unrecorded ones too; adds the lengths to *params*."""
    hidden, table, positions = (signature.input(index) for index in (0, 1, 2))
    tokens = (hidden.shape or (0,))[0]
    if table.shape is not None and len(table.shape) == 1:
        rows = integer_column(row, "Runtime max_positions")
        if rows is None:
            rows = POSITIONS
            assumptions.append(f"max_positions={rows} (Qwen3's, not recorded)")
        table = TensorSpec((rows, table.shape[0]), table.dtype, "ND")
    if positions.shape not in (None, (tokens,)):
        raise ValueError(f"slot 2 (positions) is {format_shape(positions.shape)}, expected {tokens}")
    lengths = read_integers(row.get(QUERY_LENGTHS_COLUMN))
    split = split_lengths(lengths, tokens) if lengths else None
    if lengths and split is None:
        raise ValueError(f"column {QUERY_LENGTHS_COLUMN!r} ends at {lengths[-1]}, expected {tokens} tokens")
    params["lengths"] = split or (tokens,)
    keys = read_integers(row.get(KEY_LENGTHS_COLUMN))
    if keys and (not split or len(keys) != len(split)):
        raise ValueError(
            f"column {KEY_LENGTHS_COLUMN!r} has {len(keys)} lengths, expected one for each query length"
        )
    params["kv_lengths"] = keys
    longest = max((*keys, tokens if params["phase"] == "prefill" else 0))
    if longest > (table.shape or (0,))[0]:
        raise ValueError(
            f"slot 1 (cos_sin_cache) is {format_shape(table.shape)}, expected {longest} positions or more"
        )
    head = TensorSpec((cast("int", params["head_dim"]),), hidden.dtype, "ND")
    tensors = {
        "input": hidden,
        "cos_sin_cache": table,
        "positions": positions if positions.shape else TensorSpec((tokens,), "INT64", "ND"),
        "q_weight": head,
        "k_weight": head,
    }
    return tensors | ({"q_bias": head, "k_bias": head} if params["bias"] else {})
