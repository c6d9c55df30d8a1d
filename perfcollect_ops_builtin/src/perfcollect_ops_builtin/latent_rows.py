"""Read rows of KvRmsNormRopeCache: shapes, how the caches are addressed, what is written."""

from __future__ import annotations

import math

from perfcollect_core import Case, Row, Skip
from perfcollect_core.lengths import number_column
from perfcollect_core.tensors import format_shape

__all__ = ["check_capacity", "check_shapes", "find_behaviour", "find_cache_mode"]

_MODES = ("Norm", "PA", "PA_BNSD", "PA_NZ")
#: Modes whose index counts blocks instead of tokens.
_BLOCK_MODES = ("PA_BLK_BNSD", "PA_BLK_NZ")


def check_shapes(case: Case) -> None:
    """Check the slots against each other; raises ``ValueError``."""
    shapes = {name: tensor.shape or () for name, tensor in case.tensors.items()}
    kv = shapes["kv"]
    if len(kv) != 4 or kv[1] != 1 or kv[-1] != 576:
        raise ValueError(f"slot 0 (kv) is {format_shape(kv)}, expected B,1,S,576")
    if shapes["gamma"] != (512,):
        raise ValueError(f"slot 1 (gamma) is {format_shape(shapes['gamma'])}, expected 512")
    for index, name in ((2, "cos"), (3, "sin")):
        if shapes[name] != (*kv[:3], 64):
            raise ValueError(
                f"slot {index} ({name}) is {format_shape(shapes[name])}, expected {format_shape(kv[:3])},64"
            )
    for index, name, width in ((5, "k_cache", 64), (6, "ckv_cache", 512)):
        if len(shapes[name]) != 4 or shapes[name][-1] != width:
            raise ValueError(
                f"slot {index} ({name}) is {format_shape(shapes[name])}, expected 4 dimensions, {width} last"
            )
    if shapes["k_cache"][:3] != shapes["ckv_cache"][:3]:
        raise ValueError(
            f"slot 6 (ckv_cache) is {format_shape(shapes['ckv_cache'])}, expected the blocks of slot 5 (k_cache), "
            f"{format_shape(shapes['k_cache'])}"
        )
    for name, scale, index in (("k_cache", "k_rope_scale", 7), ("ckv_cache", "c_kv_scale", 8)):
        if case.tensors[name].dtype == "INT8" and scale not in shapes:
            raise ValueError(f"slot {index} ({scale}) is blank, expected a scale for the INT8 {name}")


def find_cache_mode(row: Row, case: Case) -> str | Skip:
    """Return how the caches are addressed: recorded, else by index and format; raises ``ValueError``."""
    recorded = row.get("Runtime cache_mode")
    if recorded in _BLOCK_MODES:
        return Skip(f"column 'Runtime cache_mode' is {recorded!r}: that mode is not replayed")
    if recorded:
        if recorded not in _MODES:
            raise ValueError(
                f"column 'Runtime cache_mode' is {recorded!r}, expected one of {', '.join(_MODES)}"
            )
        return recorded
    if len(case.tensors["index"].shape or ()) == 2:
        return "Norm"
    return "PA_NZ" if case.tensors["k_cache"].format == "FRACTAL_NZ" else "PA"


def check_capacity(case: Case, mode: str) -> None:
    """Check that index and caches hold the tokens; raises ``ValueError``."""
    kv, index, cache = (case.tensors[name].shape or () for name in ("kv", "index", "k_cache"))
    tokens = kv[0] * kv[2]
    if mode == "Norm":
        if index != (kv[0], kv[2]) or cache[:2] != (kv[0], 1) or cache[2] < kv[2]:
            raise ValueError(
                f"slot 4 (index) is {format_shape(index)} for caches of {format_shape(cache)}, expected "
                f"{kv[0]},{kv[2]} positions in caches B,1,L"
            )
        return
    if math.prod(index) != tokens:
        raise ValueError(
            f"slot 4 (index) is {format_shape(index)}, expected one slot for each of {tokens} tokens"
        )
    step = 32 if case.tensors["k_cache"].dtype == "INT8" else 16
    if cache[2] != 1 or cache[1] % step:
        raise ValueError(
            f"slot 5 (k_cache) is {format_shape(cache)}, expected blocks of a multiple of {step} tokens"
        )
    if cache[0] * cache[1] < tokens:
        raise ValueError(
            f"slot 5 (k_cache) is {format_shape(cache)}: {cache[0] * cache[1]} slots, expected at least one for each "
            f"of {tokens} tokens"
        )


def find_behaviour(row: Row, case: Case, assumptions: list[str]) -> dict[str, object]:
    """Return index pattern, output flag and epsilon; what is not recorded is added to *assumptions*."""
    kv, cache = (case.tensors[name].shape or () for name in ("kv", "k_cache"))
    tokens = kv[0] * kv[2]
    pattern = (row.get("Runtime index_pattern") or row.get("Runtime phase")).lower()
    if not pattern:
        pattern = "decode" if tokens <= min(256, cache[0]) else "prefill"
        assumptions.append(f"index_pattern={pattern} ({tokens} tokens, {cache[0]} blocks)")
    if pattern not in ("decode", "prefill"):
        raise ValueError(f"column 'Runtime index_pattern' is {pattern!r}, expected decode or prefill")
    output = row.get("Runtime is_output_kv").lower()
    if output not in ("", "true", "false", "1", "0"):
        raise ValueError(f"column 'Runtime is_output_kv' is {output!r}, expected true or false")
    if not output:
        assumptions.append(f"is_output_kv={pattern == 'prefill'} (not recorded: by phase)")
    epsilon = number_column(row, "Runtime epsilon")
    if epsilon is None:
        assumptions.append("epsilon=1e-06 (not recorded, timing-neutral)")
    return {
        "index_pattern": pattern,
        "is_output_kv": output in ("true", "1") if output else pattern == "prefill",
        "epsilon": 1e-6 if epsilon is None else epsilon,
    }
