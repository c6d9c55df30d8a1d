"""The rules of parsing once more, slow and plain, sharing no code with the package.

Used by the tests on made input; by hand on any file: ``python slow_rules.py kernel_details.csv OUT_DIRECTORY``.
"""

from __future__ import annotations

import csv
import math
import re
import statistics
import sys
from collections import defaultdict
from pathlib import Path

csv.field_size_limit(1 << 30)

SIGNATURE = [
    *("Input Shapes", "Input Data Types", "Input Formats"),
    *("Output Shapes", "Output Data Types", "Output Formats"),
]
FOLDED = {
    "split_qkv_rmsnorm_rope_kernel_0": "split_qkv_rmsnorm_rope_kernel",
    "muls_add_kernel_1": "muls_add_kernel",
}
WORDS = {"BFLOAT16": "BF16", "FLOAT32": "FLOAT", "FP32": "FLOAT", "FP16": "FLOAT16", "FLOAT64": "DOUBLE"}
NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")


def bare(cell: str) -> str:
    return cell.strip().strip('"').strip()


def number(cell: str) -> float | None:
    return float(bare(cell)) if NUMBER.fullmatch(bare(cell)) else None


def is_duration(cell: str) -> bool:
    value = number(cell)
    return value is not None and 0 < value <= 24 * 3600 * 1e6


def slots(cell: str) -> list[str]:
    return [bare(slot) for slot in bare(cell).split(";")] if bare(cell) else []


def shape(slot: str) -> str:
    """Return the dims of a slot, blank where it has no tensor; raises ValueError where it is no shape."""
    if slot.upper() in ("", "N/A", "NA", "()", "NULL", "NONE"):
        return ""
    slot = slot[1:-1] if slot.startswith("(") and slot.endswith(")") else slot
    dims = slot.replace(",", " ").split()
    if not dims or not all(dim.isascii() and dim.isdigit() for dim in dims):
        raise ValueError(slot)
    return ",".join(str(int(dim)) for dim in dims)


def word(text: str, kind: str) -> str:
    text = text.upper()
    if text in ("", "N/A", "NA", "NULL", "NONE", "DT_UNDEFINED", "UNDEFINED"):
        return ""
    if kind == "format":
        return text
    text = text.removeprefix("DT_")
    return WORDS.get(text, text)


def beside(shapes: list[str], cell: str, kind: str) -> tuple[str, ...]:
    words = slots(cell) + [""] * len(shapes)
    return tuple(word(words[i], kind) if dims else "" for i, dims in enumerate(shapes))


def is_unsaid(shapes: list[str], cell: str) -> bool:
    words = (slots(cell) if bare(cell).upper() not in ("N/A", "NA") else []) + [""] * len(shapes)
    return any(dims and words[i].upper() in ("", "N/A", "NA") for i, dims in enumerate(shapes))


def trimmed(shapes: list[str]) -> list[str]:
    while shapes and not shapes[-1]:
        shapes = shapes[:-1]
    return shapes


class Row:
    def __init__(self, record: dict[str, str], operator: str) -> None:
        self.operator = operator
        self.record = record
        self.inputs = [shape(slot) for slot in slots(record["Input Shapes"])]
        self.outputs = [shape(slot) for slot in slots(record["Output Shapes"])]
        ins, outs = trimmed(self.inputs), trimmed(self.outputs)
        self.shapes = (operator, tuple(ins), tuple(outs))
        self.words = (
            beside(ins, record["Input Data Types"], "dtype"),
            beside(ins, record["Input Formats"], "format"),
            beside(outs, record["Output Data Types"], "dtype"),
        )
        self.unsaid = (
            is_unsaid(ins, record["Input Data Types"])
            or is_unsaid(ins, record["Input Formats"])
            or is_unsaid(outs, record["Output Data Types"])
        )


def collect(path: Path) -> tuple[dict, dict[str, int]]:
    """Return the rows of each (shapes, words), and how many records ended where."""
    counts: dict[str, int] = defaultdict(int)
    known: dict[tuple, list[Row]] = {}
    open_rows: list[Row] = []
    with path.open(encoding="utf-8-sig", newline="") as stream:
        for record in csv.DictReader(stream):
            record = {name: (cell or "").strip() for name, cell in record.items()}
            operator = FOLDED.get(record["Type"], record["Type"])
            core = record["Accelerator Core"]
            if not is_duration(record["Duration(us)"]):
                counts["aside"] += 1
            elif (
                core in ("COMMUNICATION", "HCCL")
                or operator.lower().startswith("hcom")
                or operator.endswith("AicpuKernel")
            ):
                counts["collective"] += 1
            elif not operator:
                counts["aside"] += 1
            elif bare(record["Input Shapes"]).upper() in ("", "N/A", "NA") or bare(
                record["Output Shapes"]
            ).upper() in ("N/A", "NA"):
                counts["no_shape"] += 1
            else:
                try:
                    row = Row(record, operator)
                except ValueError:
                    counts["aside"] += 1
                    continue
                if not any(row.inputs):
                    counts["no_shape"] += 1
                elif row.unsaid:
                    open_rows.append(row)
                else:
                    known.setdefault((row.shapes, row.words), []).append(row)
    siblings = defaultdict(list)
    for shapes, words in known:
        siblings[shapes].append(words)
    joined: dict[tuple, list[Row]] = {key: list(rows) for key, rows in known.items()}
    for row in open_rows:
        fitting = [
            words
            for words in siblings[row.shapes]
            if all(
                not mine or mine == theirs
                for my_words, their_words in zip(row.words, words, strict=True)
                for mine, theirs in zip(my_words, their_words, strict=True)
            )
        ]
        if len(fitting) == 1:
            joined[(row.shapes, fitting[0])].append(row)
        else:
            counts["aside"] += 1
    counts["used"] = sum(len(rows) for rows in joined.values())
    return {key: (known[key], rows) for key, rows in joined.items()}, dict(counts)


#: What the plugin of the attention kernel declares, in its order; a number is an input slot.
ATTENTION = {
    "source_profile": "",
    "actual_seq_lengths_shape": 5,
    "actual_seq_lengths_values": None,
    "actual_seq_lengths_kv_shape": 6,
    "actual_seq_lengths_kv_values": None,
    "avg_seq_len": None,
    "block_table_shape": 14,
    "block_table_valid_blocks": None,
    "num_heads": None,
    "num_key_value_heads": None,
    "sparse_mode": None,
    "input_layout": None,
    "block_size": None,
    "attn_state": None,
    "kv_cache_mode": None,
    "metadata_completeness": "profile_shapes_only",
}


def attention_cells(inputs: list[str], folder: str) -> dict[str, str]:
    cells = {}
    for name, what in ATTENTION.items():
        if isinstance(what, int):
            cells[f"Runtime {name}"] = inputs[what] if what < len(inputs) else ""
        else:
            cells[f"Runtime {name}"] = folder if what == "" else what or ""
    return cells


def cells_of(own: list[Row], rows: list[Row], counters: list[str], folder: str | None) -> dict[str, str]:
    """Return the cells of a table row: *own* calls spelled everything out, *rows* are all that are averaged."""
    fullest = max(own, key=lambda row: len(row.inputs))
    record = fullest.record
    cells = {
        column: next((row.record[column] for row in own if row.record[column]), "")
        for column in ("OP State", "Accelerator Core")
    }
    cells["Input Shapes"] = '"' + ";".join(fullest.inputs) + '"'
    cells["Output Shapes"] = '"' + ";".join(fullest.outputs) + '"'
    for column in SIGNATURE:
        if "Shapes" not in column:
            cells[column] = (
                "" if bare(record[column]).upper() in ("N/A", "NA") else ";".join(slots(record[column]))
            )
    durations = [number(row.record["Duration(us)"]) for row in rows]
    cells["Profiling Average Duration(us)"] = f"{statistics.fmean(durations):.6f}"
    cells["Profiling Median Duration(us)"] = f"{statistics.median(durations):.6f}"
    cells["Profiling Std Duration(us)"] = f"{statistics.pstdev(durations):.6f}"
    for counter in counters:
        found = [number(row.record.get(counter, "")) for row in rows]
        good = [value for value in found if value is not None and 0 <= value < 2**63]
        cells[f"Profiling Average {counter}"] = f"{math.fsum(good) / len(good):.6f}" if good else ""
    if fullest.operator == "FusedInferAttentionScore" and folder is not None:
        cells |= attention_cells(fullest.inputs, folder)
    cells["Profiling Count"] = str(len(rows))
    return cells


def database(path: Path, *, plugin: bool = False) -> tuple[dict[str, list[dict[str, str]]], dict[str, int]]:
    """Return the rows of every table, and the counts of ``collect``; *plugin*: with the attention columns."""
    with path.open(encoding="utf-8-sig", newline="") as stream:
        header = next(csv.reader(stream))
    counters = header[header.index("Context ID") + 1 :]
    groups, counts = collect(path)
    tables = defaultdict(list)
    for (shapes, _), (own, rows) in groups.items():
        tables[re.sub(r'[<>:"/\\|?*]', "_", shapes[0])].append(
            cells_of(own, rows, counters, path.resolve().parent.name if plugin else None)
        )
    return dict(tables), counts


def main(source: str, target: str) -> None:
    tables, counts = database(Path(source), plugin=True)
    Path(target).mkdir(parents=True)
    for name, rows in tables.items():
        with (Path(target) / f"{name}.csv").open("w", encoding="utf-8", newline="") as stream:
            writer = csv.DictWriter(stream, list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)
    print(counts)


if __name__ == "__main__":
    main(*sys.argv[1:])
