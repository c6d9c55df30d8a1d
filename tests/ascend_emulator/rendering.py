"""Print logged launches and profiler rows as short lines that a person compares."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

__all__ = ["render_launch", "render_row", "sections"]

_DTYPES = {
    0: "f32",
    1: "f16",
    2: "i8",
    3: "i32",
    4: "u8",
    9: "i64",
    10: "u64",
    11: "f64",
    12: "bool",
    27: "bf16",
}
# How many of the logged floating-point registers are parameters of the function.
_FLOAT_PARAMETERS = {
    "aclnnRmsNorm": 1,
    "aclnnAddRmsNorm": 1,
    "aclnnFusedInferAttentionScoreV3": 1,
    "aclnnFusedInferAttentionScoreV4": 1,
    "aclnnKvRmsNormRopeCache": 1,
    "aclnnSparseFlashAttention": 1,
    "AtbRingMLA": 1,
}


def sections(records: Iterable[Mapping[str, Any]]) -> dict[str, list[Mapping[str, Any]]]:
    """Return the launches between ``begin NAME`` and ``end NAME``, by name."""
    found: dict[str, list[Mapping[str, Any]]] = {}
    current: list[Mapping[str, Any]] | None = None
    for record in records:
        if record["kind"] == "mstx":
            word, _, name = record["message"].partition(" ")
            current = found.setdefault(name, []) if word == "begin" else None
        elif current is not None and record["kind"] not in {"memcpy", "hcclinit"}:
            current.append(record)
    return found


def render_launch(record: Mapping[str, Any]) -> str:
    """Return one line: the API, then its arguments in order."""
    text = f"{record['name']}({', '.join(_argument(argument) for argument in record.get('args', []))})"
    if record.get("outputs"):
        text += f" -> {', '.join(_argument(argument) for argument in record['outputs'])}"
    floats = record.get("floats", [])[: _FLOAT_PARAMETERS.get(record["name"], 0)]
    return text + "".join(f" float {value:.6g}" for value in floats)


def render_row(row: Mapping[str, str]) -> str:
    """Return one line: type, core, inputs and outputs of an op_summary row."""
    sides = []
    for side in ("Input", "Output"):
        shapes, dtypes, formats = (
            row[f"{side} {what}"].strip('"') for what in ("Shapes", "Data Types", "Formats")
        )
        cells = zip(shapes.split(";"), dtypes.split(";"), formats.split(";"), strict=True)
        sides.append(
            " ".join(
                "-" if dtype == "DT_UNDEFINED" else f"{shape}:{dtype}:{form}" for shape, dtype, form in cells
            )
        )
    return f"{row['OP Type']} {row['Task Type']} {sides[0]} -> {sides[1]}"


def _argument(argument: Any) -> str:
    if not isinstance(argument, dict):
        return "null" if argument is None else repr(argument)
    if "view" in argument:
        return _tensor(argument)
    if "scalar" in argument:
        return f"scalar {argument['scalar']:g} {_DTYPES.get(argument['dtype'], argument['dtype'])}"
    name, values = next(iter(argument.items()))
    if name in {"tensors", "scalars"}:
        return f"[{', '.join(_argument(value) for value in values)}]"
    shown = ",".join(map(str, values[:4])) + (f",.. {len(values)} in all" if len(values) > 4 else "")
    return f"{name} {shown}"


def _tensor(tensor: Mapping[str, Any]) -> str:
    text = "x".join(map(str, tensor["view"])) or "empty"
    text += f" {_DTYPES.get(tensor['dtype'], tensor['dtype'])}"
    if tensor["format"] == 29:
        text += f" nz {'x'.join(map(str, tensor['storage']))}"
    if "strides" in tensor:
        text += f" strides {','.join(map(str, tensor['strides']))}"
    return text + (f" offset {tensor['offset']}" if "offset" in tensor else "")
