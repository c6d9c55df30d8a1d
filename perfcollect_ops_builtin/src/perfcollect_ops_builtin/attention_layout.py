"""Find the layout of a fused attention row from its shapes and metadata columns."""

from __future__ import annotations

from perfcollect_core import Row, Signature, TensorSpec

__all__ = ["LAYOUTS", "SLOT_NAMES", "NotRecorded", "find_layout", "name_slot"]

#: torch_npu's input layouts -> rank of the query; after ``_`` the layout of the output.
LAYOUTS = {"BNSD": 4, "BNSD_NBSD": 4, "BSH": 3, "BSND": 4, "BSND_NBSD": 4, "TND": 3, "TND_NTD": 3}

SLOT_NAMES = {
    0: "query",
    1: "key",
    2: "value",
    4: "atten_mask",
    14: "block_table",
    24: "query_rope",
    25: "key_rope",
}


class NotRecorded(ValueError):
    """The row is fine, but it does not say enough to be replayed."""


def name_slot(index: int, tensor: TensorSpec) -> str:
    """Name a slot and what it holds, for messages."""
    shape = ",".join(map(str, tensor.shape)) if tensor.shape is not None else "nothing"
    return f"slot {index} ({SLOT_NAMES[index]}) holds {shape}"


def find_layout(signature: Signature, row: Row, heads: int | None, assumptions: list[str]) -> str:
    """Return the input layout: recorded, else the one that output, keys and *heads* fit.

    Raises:
        ValueError: No layout fits, or not the recorded one.
        NotRecorded: Packed and padded queries look alike here.
    """
    query, out = signature.input(0), signature.output()
    rank = len(query.shape or ())
    recorded = row.get("Runtime input_layout").upper()
    if recorded:
        if recorded not in LAYOUTS:
            raise ValueError(
                f"column 'Runtime input_layout' is {recorded!r}, expected one of {', '.join(LAYOUTS)}"
            )
        if LAYOUTS[recorded] != rank:
            raise ValueError(
                f"{name_slot(0, query)}, expected {LAYOUTS[recorded]} dimensions for layout {recorded}"
            )
        return recorded
    if rank == 3:
        return _packed_or_bsh(signature, row, heads)
    if rank != 4:
        raise ValueError(f"{name_slot(0, query)}, expected 3 or 4 dimensions")
    fitting = [name for name in ("BNSD", "BSND", "BNSD_NBSD", "BSND_NBSD") if _fits(name, signature, heads)]
    if not fitting:
        raise ValueError(f"{name_slot(0, query)}: the output {out.shape} and the keys fit no layout of it")
    if len(fitting) > 1:
        chosen = _likeliest(fitting, signature)
        assumptions.append(f"layout={chosen} ({' and '.join(fitting)} fit the shapes)")
        return chosen
    return fitting[0]


def _packed_or_bsh(signature: Signature, row: Row, heads: int | None) -> str:
    query, key, out = signature.input(0).shape, signature.input(1).shape, signature.output().shape
    if query is None or key is None or out is None:
        raise ValueError("slots 0 and 1 and output 0 are needed")
    if len(out) == 3 and out[:2] == (query[1], query[0]) and query[0] != query[1]:
        return "TND_NTD"
    counted = not (signature.input(5).is_absent and signature.input(6).is_absent)
    same_heads = heads is None or heads == query[1]
    if counted and same_heads and (heads or query[1] <= 256):
        return "TND"
    if row.get("Seq Len") and (same_heads or row.get("Head Size") == str(query[2])):
        return "TND"
    if heads is None:
        raise NotRecorded(
            f"{name_slot(0, signature.input(0))}: neither lengths (slots 5, 6) nor 'Runtime num_heads' tell TND from BSH"
        )
    return "TND" if heads == query[1] and query[-1] == key[-1] else "BSH"


def _fits(layout: str, signature: Signature, heads: int | None) -> bool:
    query, key, out = (
        signature.input(0).shape or (),
        signature.input(1).shape or (),
        signature.output().shape or (),
    )
    axis = 1 if layout.startswith("BNSD") else 2
    count, tokens = query[axis], query[3 - axis]
    if heads is not None and heads != count:
        return False
    expected = (count, query[0], tokens) if layout.endswith("NBSD") else query[:3]
    if out[:-1] != expected:
        return False
    if not signature.input(14).is_absent or len(key) != 4:
        return True
    return key[0] == query[0] and count % key[axis] == 0 and tokens <= key[3 - axis]


def _likeliest(layouts: list[str], signature: Signature) -> str:
    query = signature.input(0).shape or ()
    # One axis of size 1 is a decode step's; otherwise there are fewer heads than tokens.
    if 1 in query[1:3]:
        axis = 1 if query[2] == 1 else 2
    else:
        axis = 1 if query[1] <= query[2] else 2
    wanted = [name for name in layouts if name.startswith("BNSD" if axis == 1 else "BSND")] or layouts
    rope = not signature.input(24).is_absent
    return wanted[-1] if rope else wanted[0]
