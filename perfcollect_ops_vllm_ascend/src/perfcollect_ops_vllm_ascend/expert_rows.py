"""Read rows of DispatchFFNCombine: expert-parallel size, sizes of the layer, routing."""

from __future__ import annotations

import math

from perfcollect_core import Row, Signature, Skip, TensorSpec
from perfcollect_core.lengths import integer_column, number_column
from perfcollect_core.tensors import format_shape, nz_storage_shape

__all__ = ["EP_COLUMN", "PATTERNS", "find_ranks", "find_routing", "find_tensors", "refuse_variants"]

EP_COLUMN = "EP Size"

#: How tokens choose experts: every expert equally often in turn, uniformly at random, or by Zipf's law.
PATTERNS = ("balanced", "random", "skewed")

_NAMES = ("x", "weight1", "weight2", "expert_idx", "scale1", "scale2", "probs", "x_active_mask")


def find_ranks(row: Row) -> int | Skip:
    """Return the expert-parallel size of a row; it is not in the shapes and never guessed."""
    text = row.get(EP_COLUMN)
    if not text:
        return Skip(
            f"column {EP_COLUMN!r} is blank: the expert-parallel size is not guessed, write it into the row"
        )
    try:
        size = int(float(text))
    except ValueError:
        size = 0
    if size < 1:
        return Skip.invalid(f"column {EP_COLUMN!r} is {text!r}, expected a number of ranks")
    return size


def refuse_variants(signature: Signature) -> Skip | None:
    """Refuse rows of other kernels; ``None`` where this one can be replayed."""
    weight = signature.input(1)
    if weight.dtype in ("INT4", "INT32"):
        return Skip(
            f"slot 1 (weight1) is {weight.dtype}: the int4 kernel takes biases that the row does not record"
        )
    if weight.dtype not in ("INT8", "BF16", "FLOAT16"):
        return Skip.invalid(
            f"slot 1 (weight1) is {weight.dtype or 'undefined'}, expected INT8, BF16 or FLOAT16"
        )
    return None


def find_tensors(signature: Signature, ranks: int) -> dict[str, TensorSpec]:
    """Return the logical tensors of one rank.

    Raises:
        ValueError: The slots contradict each other.
    """
    x, weight1, weight2, index, scale1, scale2, probs, mask = (signature.input(i) for i in range(8))
    for slot in (0, 1, 2, 3, 6):
        shape = signature.input(slot).shape
        if not shape or 0 in shape:
            raise ValueError(
                f"slot {slot} ({_NAMES[slot]}) is {format_shape(shape) or 'blank'}, expected a tensor"
            )
    hidden = (x.shape or (0,))[-1]
    tokens = math.prod(x.shape or (0,)) // hidden
    chosen = index.shape or (0, 0)
    if chosen != probs.shape or len(chosen) != 2 or chosen[0] != tokens:
        raise ValueError(
            f"slot 3 (expert_idx) is {format_shape(chosen)} and slot 6 (probs) {format_shape(probs.shape)}, expected both "
            f"{tokens} tokens by top-k"
        )
    experts = (weight1.shape or (0,))[0]
    if chosen[1] > experts * ranks:
        raise ValueError(
            f"slot 3 (expert_idx) picks {chosen[1]} experts a token, there are {experts} x {ranks}"
        )
    inner = _inner(weight1, weight2, scale1, experts, hidden)
    out, counts = signature.output(), signature.output(1)
    if out.shape != x.shape:
        raise ValueError(
            f"output slot 0 is {format_shape(out.shape) or 'blank'}, expected {format_shape(x.shape)} as slot 0 (x)"
        )
    if counts.shape is not None and math.prod(counts.shape) != experts:
        raise ValueError(f"output slot 1 is {format_shape(counts.shape)}, expected {experts} local experts")
    tensors = {
        "x": TensorSpec((tokens, hidden), x.dtype, "ND"),
        "weight1": TensorSpec((experts, hidden, 2 * inner), weight1.dtype, weight1.format),
        "weight2": TensorSpec((experts, inner, hidden), weight2.dtype, weight2.format),
        "expert_idx": TensorSpec(chosen, "INT32", "ND"),
        "probs": TensorSpec(chosen, "FLOAT", "ND"),
    }
    if weight1.dtype == "INT8":
        for slot, scale, width in ((4, scale1, 2 * inner), (5, scale2, hidden)):
            if scale.numel != experts * width or scale.dtype not in ("INT64", "FLOAT"):
                raise ValueError(
                    f"slot {slot} ({_NAMES[slot]}) is {format_shape(scale.shape) or 'blank'} {scale.dtype}, expected "
                    f"{experts},{width} INT64"
                )
            tensors[_NAMES[slot]] = TensorSpec((experts, width), "INT64", "ND")
    if not mask.is_absent:
        if mask.shape != (tokens,):
            raise ValueError(f"slot 7 (x_active_mask) is {format_shape(mask.shape)}, expected {tokens}")
        tensors["x_active_mask"] = TensorSpec((tokens,), "BOOL", "ND")
    return tensors


def _inner(weight1: TensorSpec, weight2: TensorSpec, scale1: TensorSpec, experts: int, hidden: int) -> int:
    """Return the intermediate size, from logical weights or from FRACTAL_NZ storage."""
    for slot, weight in ((1, weight1), (2, weight2)):
        rank = 5 if weight.is_nz_storage else 3
        if weight.shape is None or len(weight.shape) != rank or weight.shape[0] != experts:
            raise ValueError(
                f"slot {slot} ({_NAMES[slot]}) is {format_shape(weight.shape)}, expected {rank} dimensions of {experts} experts"
            )
    first, second = weight1.shape or (), weight2.shape or ()
    # Storage is padded to whole tiles; the scale holds the true width.
    width = first[1] * first[4] if weight1.is_nz_storage else first[-1]
    if weight1.is_nz_storage and scale1.numel:
        width = scale1.numel // experts
    if width % 2:
        raise ValueError(f"slot 1 (weight1) is {format_shape(first)}, expected gate and up side by side")
    wanted = {1: (experts, hidden, width), 2: (experts, width // 2, hidden)}
    for slot, weight in ((1, weight1), (2, weight2)):
        expected = nz_storage_shape(wanted[slot], weight.dtype) if weight.is_nz_storage else wanted[slot]
        if weight.shape != expected:
            found = format_shape(second if slot == 2 else first)
            raise ValueError(f"slot {slot} ({_NAMES[slot]}) is {found}, expected {format_shape(expected)}")
    return width // 2


def find_routing(row: Row, tokens: int, assumptions: list[str]) -> dict[str, object]:
    """Return routing pattern, output cap and active rows; what is not recorded is added to *assumptions*.

    Raises:
        ValueError: A column holds something else than expected.
    """
    pattern = row.get("Runtime routing_pattern").lower()
    if pattern and pattern not in PATTERNS:
        raise ValueError(
            f"column 'Runtime routing_pattern' is {pattern!r}, expected one of {', '.join(PATTERNS)}"
        )
    if not pattern:
        assumptions.append("routing_pattern=balanced (not recorded)")
    cap = integer_column(row, "Runtime max_output_size")
    if cap is None:
        assumptions.append("max_output_size=65536 (not recorded: serving's)")
    active = integer_column(row, "Runtime active_rows")
    if active is not None and not 0 < active <= tokens:
        raise ValueError(
            f"column 'Runtime active_rows' is {active}, expected 1..{tokens} as slot 0 (x) holds"
        )
    alpha = number_column(row, "Runtime routing_alpha")
    if alpha is None and pattern == "skewed":
        assumptions.append("routing_alpha=1 (Zipf exponent not recorded)")
    seed = integer_column(row, "Runtime seed")
    return {
        "pattern": pattern or "balanced",
        "max_output_size": 65536 if cap is None else cap,
        "active": active or tokens,
        "alpha": 1.0 if alpha is None else alpha,
        "routing_seed": seed,
    }
