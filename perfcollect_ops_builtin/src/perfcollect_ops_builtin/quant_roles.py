"""Tell the optional inputs of QuantBatchMatmulV3 apart: profiles record them by position or with holes closed up."""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from perfcollect_core import Signature, TensorSpec

from .row_checks import describe

__all__ = ["ROLE_COLUMN", "QuantRoles", "find_roles"]

ROLE_COLUMN = "Runtime quant_role_slot3"
_POSITIONS = {3: "offset", 4: "bias", 5: "pertoken_scale"}
_PACKED = ("INT64", "UINT64")


@attrs.frozen
class QuantRoles:
    """The optional inputs by role, the scale among them, and what was assumed to find them."""

    tensors: Mapping[str, TensorSpec]
    assumptions: tuple[str, ...] = ()


def find_roles(
    signature: Signature, m: int, n: int, *, stated: str = "", dynamic: bool = False
) -> QuantRoles | str:
    """Return scale, offset, bias and pertoken_scale of a row, or why they make no call.

    *stated* is the role column's text. Where no scale is recorded one is assumed, with a per-token scale if *dynamic*.
    """
    recorded = {slot: t for slot, t in enumerate(signature.inputs) if slot >= 3 and not t.is_absent}
    roles: dict[str, TensorSpec] = {}
    notes: list[str] = []
    scale = signature.input(2)
    if not scale.is_absent:
        roles["scale"] = scale
    compact = len(signature.inputs) == 4 and 3 in recorded
    closed_up = len(signature.inputs) == 5 and {3, 4} <= set(recorded) and signature.output().dtype != "INT8"
    for slot, tensor in recorded.items():
        if slot not in _POSITIONS:
            return f"input slot {slot} is {describe(tensor)}, expected at most 6 slots"
        if not (compact or closed_up):
            role: str | None = _POSITIONS[slot]
        elif stated and slot == 3:
            role = "pertoken_scale" if stated.startswith("pertoken") else stated
        else:
            role = _guess(tensor, signature, m, n, notes)
        if role is None or role not in _POSITIONS.values() or role in roles:
            return (
                f"input slot {slot} is {describe(tensor)} {tensor.dtype}, expected bias ({n}), "
                f"pertoken_scale ({m}) or, for INT8 output, offset (1 or {n})"
            )
        roles[role] = tensor
    if "scale" not in roles:
        _assume_scales(roles, notes, signature.output().dtype, m, n, dynamic)
    reason = _misfit(roles, signature.output().dtype, m, n)
    return reason or QuantRoles(roles, tuple(notes))


def _guess(tensor: TensorSpec, signature: Signature, m: int, n: int, notes: list[str]) -> str | None:
    scale, output = signature.input(2), signature.output().dtype
    if tensor.dtype == "INT32":
        return "bias"
    if output == "INT8":
        return "offset" if tensor.numel in (1, n) else None
    may_be_bias = tensor.numel == n
    may_be_pertoken = tensor.numel == m and tensor.dtype == "FLOAT" and scale.dtype not in _PACKED
    if may_be_bias and may_be_pertoken:
        certain = output == "FLOAT16" and scale.dtype == "FLOAT"
        if not certain:
            notes.append(f"slot 3=pertoken_scale (FLOAT of {m}, M equals N: may be a bias)")
        return "pertoken_scale"
    if may_be_pertoken and tensor.numel == 1 and not (output == "FLOAT16" and scale.dtype == "FLOAT"):
        notes.append("slot 3=pertoken_scale (FLOAT of one element)")
    return "bias" if may_be_bias else "pertoken_scale" if may_be_pertoken else None


def _assume_scales(
    roles: dict[str, TensorSpec], notes: list[str], output: str, m: int, n: int, dynamic: bool
) -> None:
    if output in ("INT8", "FLOAT16") and not dynamic:
        word = "INT64"
    else:
        word = "BF16" if output == "BF16" else "FLOAT"
    roles["scale"] = TensorSpec((n,), word, "ND")
    notes.append(f"scale={n} {word} (not recorded)")
    if dynamic and "pertoken_scale" not in roles:
        roles["pertoken_scale"] = TensorSpec((m,), "FLOAT", "ND")
        notes.append(f"pertoken_scale={m} FLOAT (not recorded, dynamic quantisation)")


def _misfit(roles: Mapping[str, TensorSpec], output: str, m: int, n: int) -> str | None:
    sizes = {"scale": (1, n), "offset": (1, n), "bias": (n,), "pertoken_scale": (m,)}
    words = {
        "scale": ("FLOAT", "BF16", *_PACKED),
        "offset": ("FLOAT",),
        "bias": ("INT32", "FLOAT", "BF16", "FLOAT16"),
        "pertoken_scale": ("FLOAT",),
    }
    for role, tensor in roles.items():
        if tensor.shape is None or tensor.numel not in sizes[role]:
            wanted = " or ".join(map(str, dict.fromkeys(sizes[role])))
            return f"input {role!r} is {describe(tensor)}, expected {wanted} elements for M={m} and N={n}"
        if tensor.dtype not in words[role]:
            return f"input {role!r} is {tensor.dtype or 'undefined'}, expected {' or '.join(words[role])}"
    if "offset" in roles and output != "INT8":
        return f"input 'offset' is {describe(roles['offset'])}, it goes with INT8 output only, not {output}"
    if "pertoken_scale" in roles and roles["scale"].dtype in _PACKED:
        return f"input 'scale' is {roles['scale'].dtype}, expected FLOAT or BF16 beside a pertoken_scale"
    return None
