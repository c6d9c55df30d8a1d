"""Which dtypes, scales and biases of a GroupedMatmul row go together (parent side).

Float by float, float by INT8 with antiquant scales, INT8 by INT8 with scales, INT8 by INT8 to INT32 without.
"""

from __future__ import annotations

from perfcollect_core import Signature, TensorSpec

from .precision import FLOATS
from .row_checks import describe

__all__ = ["factor_misfit", "form_dtypes", "form_misfit"]

_OUTPUTS = (*FLOATS, "INT8", "INT32")


def form_dtypes(signature: Signature) -> dict[str, tuple[str, ...]]:
    """Return the dtypes each slot may have beside the dtype of x."""
    words: dict[str, tuple[str, ...]] = {"x": (*FLOATS, "INT8"), "y": _OUTPUTS, "group_list": ("INT64",)}
    words["weight"] = ("INT8",) if signature.input(0).dtype == "INT8" else (*FLOATS, "INT8")
    words["bias"] = ("INT32", *FLOATS)
    words["scale"] = ("BF16", "FLOAT", "INT64", "UINT64")
    words["antiquant_scale"] = words["antiquant_offset"] = FLOATS
    words["per_token_scale"] = ("FLOAT",)
    return words


def form_misfit(signature: Signature) -> str | None:
    """Say which dtypes and optional inputs of the row do not go together."""
    x, weight, y, offset = (signature.input(0), signature.input(1), signature.output(), signature.input(4))
    bias, scale, antiquant, per_token = (signature.input(slot) for slot in (2, 3, 5, 8))
    if not offset.is_absent:
        return f"input slot 4 'offset' is {describe(offset)}, the kernel takes none"
    if x.dtype != "INT8":
        if not (scale.is_absent and per_token.is_absent):
            return (
                f"input slot 3 'scale' or 8 'per_token_scale' is recorded beside x {x.dtype}, expected INT8"
            )
        if antiquant.is_absent == (weight.dtype == "INT8"):
            return f"input slot 5 'antiquant_scale' is {describe(antiquant)} beside an {weight.dtype} weight"
        if y.dtype != x.dtype or (weight.dtype not in (x.dtype, "INT8")):
            return (
                f"output slot 0 is {y.dtype}, expected one dtype with x {x.dtype} and weight {weight.dtype}"
            )
        return None
    if not antiquant.is_absent:
        return f"input slot 5 'antiquant_scale' is {describe(antiquant)} beside x INT8, expected a float x"
    if scale.is_absent != (y.dtype == "INT32"):
        return f"input slot 3 'scale' is {describe(scale)} for {y.dtype} output, expected one unless INT32"
    if y.dtype == "INT8" and scale.dtype not in ("INT64", "UINT64"):
        return f"input slot 3 'scale' is {scale.dtype} for INT8 output, expected INT64"
    if not per_token.is_absent and scale.dtype not in ("BF16", "FLOAT"):
        return f"input slot 3 'scale' is {scale.dtype or 'blank'} beside a per_token_scale, expected BF16 or FLOAT"
    if y.dtype == "INT32" and bias.dtype not in ("", "INT32"):
        return f"input slot 2 'bias' is {bias.dtype} for INT32 output, expected INT32"
    return None


def factor_misfit(
    name: str, index: int, tensor: TensorSpec, m: int, k: int, n: int, groups: int
) -> str | None:
    """Say how the shape of one bias or scale differs from what M, K, N and E ask for."""
    shape = tensor.shape or ()
    if name == "per_token_scale":
        fits, wanted = tensor.numel == m, f"{m} (M)"
    elif name.startswith("antiquant"):
        fits = shape == (groups, n) or (len(shape) == 3 and shape[::2] == (groups, n) and k % shape[1] == 0)
        wanted = f"{groups},{n} (E,N) or {groups},G,{n} with G dividing K={k}"
    else:
        fits, wanted = shape == (groups, n), f"{groups},{n} (E,N)"
    return None if fits else f"input slot {index} {name!r} is {describe(tensor)}, expected {wanted}"
