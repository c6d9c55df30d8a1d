"""Writes profiler files in the vendor's layout: single rows for cases, and any number of plausible ones."""

from __future__ import annotations

import csv
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

AIC = ["mac", "scalar", "mte1", "mte2", "fixpipe"]
AIV = ["vec", "scalar", "mte2", "mte3"]
COUNTERS = [
    "aicore_time(us)",
    "aic_total_cycles",
    *(f"aic_{unit}_{what}" for unit in AIC for what in ("time(us)", "ratio")),
    "aic_icache_miss_rate",
    "aiv_time(us)",
    "aiv_total_cycles",
    *(f"aiv_{unit}_{what}" for unit in AIV for what in ("time(us)", "ratio")),
    "aiv_icache_miss_rate",
    "cube_utilization(%)",
]
HEADER = [
    *("Device_id", "Model ID", "Task ID", "Stream ID", "Name", "Type", "OP State", "Accelerator Core"),
    *("Start Time(us)", "Duration(us)", "Wait Time(us)", "Block Dim", "Mix Block Dim", "HF32 Eligible"),
    *("Input Shapes", "Input Data Types", "Input Formats"),
    *("Output Shapes", "Output Data Types", "Output Formats", "Context ID"),
    *COUNTERS,
]
OP_SUMMARY = {
    "Name": "Op Name",
    "Type": "OP Type",
    "Accelerator Core": "Task Type",
    "Start Time(us)": "Task Start Time(us)",
    "Duration(us)": "Task Duration(us)",
    "Wait Time(us)": "Task Wait Time(us)",
}
#: Nanoseconds of 2026-08-12, what a profile of that day would begin with.
EPOCH_US = 1_786_500_000_000_100


def kernel(
    operator: str,
    duration: str,
    inputs: str,
    dtypes: str,
    outputs: str,
    out_dtypes: str,
    *,
    number: int = 0,
    core: str = "AI_VECTOR_CORE",
    formats: str | None = None,
    **cells: str,
) -> dict[str, str]:
    """Return the cells of one kernel; shapes get the inner quotes that the vendor's writer leaves."""
    formats = formats if formats is not None else ";".join("ND" for _ in dtypes.split(";"))
    row = {
        "Device_id": "0",
        "Model ID": "4294967295",
        "Task ID": str(1201 + number),
        "Stream ID": "46",
        "Name": f"aclnn{operator}_{operator}_{operator}",
        "Type": operator,
        "OP State": "dynamic",
        "Accelerator Core": core,
        "Start Time(us)": f"{EPOCH_US + 100 * number}.000\t",
        "Duration(us)": duration,
        "Wait Time(us)": "0.48",
        "Block Dim": "24",
        "Mix Block Dim": "0",
        "HF32 Eligible": "NO",
        "Input Shapes": f'"{inputs}"',
        "Input Data Types": dtypes,
        "Input Formats": formats,
        "Output Shapes": f'"{outputs}"',
        "Output Data Types": out_dtypes,
        "Output Formats": ";".join("ND" for _ in out_dtypes.split(";")),
        "Context ID": "N/A",
        **dict.fromkeys(COUNTERS, "0"),
    }
    return {**row, **cells}


def collective(operator: str, duration: str, *, number: int = 0, stream: str = "N/A") -> dict[str, str]:
    """Return the cells of one record of a collective, nearly all of them N/A."""
    known = {
        "Device_id": "0",
        "Model ID": "4294967295",
        "Name": f"{operator}_310_0_1",
        "Type": operator,
        "Accelerator Core": "HCCL",
        "Start Time(us)": f"{EPOCH_US + 100 * number}.000\t",
        "Duration(us)": duration,
        "Wait Time(us)": "0.48",
        "Block Dim": "0",
        "Stream ID": stream,
    }
    return {**dict.fromkeys(HEADER, "N/A"), **known}


def write(
    path: Path,
    rows: Iterable[Mapping[str, str]],
    *,
    header: Sequence[str] = HEADER,
    renamed: Mapping[str, str] | None = None,
    bom: bool = False,
    line_end: str = "\n",
    delimiter: str = ",",
) -> Path:
    """Write *rows* to *path*; *renamed* maps our column names to the ones in the file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8-sig" if bom else "utf-8", newline="") as stream:
        writer = csv.writer(stream, lineterminator=line_end, delimiter=delimiter)
        writer.writerow([(renamed or {}).get(name, name) for name in header])
        writer.writerows([[row.get(name, "") for name in header] for row in rows])
    return path


def synthetic(count: int, seed: int = 20260812) -> Iterator[dict[str, str]]:
    """Yield *count* rows of a serving run with all the untidiness profilers leave, the same for the same seed."""
    rng = random.Random(seed)
    catalogue = list(_catalogue(rng))
    clock = 0.0
    for number in range(count):
        operator, core, inputs, dtypes, formats, outputs, out_dtypes, typical = rng.choice(catalogue)
        duration = typical * rng.lognormvariate(0, 0.1)
        clock += duration + rng.random()
        if rng.random() < 0.04:
            yield collective("hcom_allReduce_", f"{duration * 9:.3f}", number=number)
            continue
        row = kernel(
            operator,
            f"{duration:.3f}",
            inputs,
            dtypes,
            outputs,
            out_dtypes,
            number=number,
            core=core,
            formats=formats,
        )
        row["OP State"] = rng.choice(("dynamic", "dynamic", "static"))
        for counter in COUNTERS:
            row[counter] = rng.choice(("N/A", "0", f"{duration * rng.random():.3f}", "12"))
        yield _untidy(row, rng) if rng.random() < 0.08 else row


def _catalogue(rng: random.Random) -> Iterator[tuple[str, str, str, str, str, str, str, float]]:
    for tokens in (1, 8, 16, 64, 256, 777, 4096):
        for hidden in (1024, 5120, 7168):
            wide = f"{tokens},{hidden}"
            yield "Add", "AI_VECTOR_CORE", f"{wide};{wide}", "DT_BF16;DT_BF16", "ND;ND", wide, "DT_BF16", 3.0
            yield "Cast", "AI_VECTOR_CORE", wide, "DT_BF16", "ND", wide, "FLOAT", 2.0
            yield "Cast", "AI_VECTOR_CORE", wide, "FLOAT", "ND", wide, "DT_BF16", 2.8
            yield "Cast", "AI_CPU", f"{tokens}", "INT64", "ND", f"{tokens}", "INT32", 90.0
            weight = f"{hidden // 2},{hidden}"
            yield (
                "MatMulV2",
                "AI_CORE",
                f"{wide};{weight}",
                "DT_BF16;DT_BF16",
                "ND;ND",
                f"{tokens},{hidden // 2}",
                "DT_BF16",
                40.0,
            )
            tiled = f"{hidden // 16},{hidden // 32},16,16"
            yield (
                "MatMulV2",
                "AI_CORE",
                f"{wide};{tiled}",
                "DT_BF16;DT_BF16",
                "ND;FRACTAL_NZ",
                f"{tokens},{hidden // 2}",
                "DT_BF16",
                36.0,
            )
        slots = f"{tokens},8,128;4096,128,128;4096,128,128;;2048,2048;{tokens};{tokens};;;;;;;;{tokens},32"
        dtypes = (
            ["DT_BF16"] * 3 + ["DT_UNDEFINED", "INT8", "INT64", "INT64"] + ["DT_UNDEFINED"] * 7 + ["INT32"]
        )
        formats = ["NULL" if dtype == "DT_UNDEFINED" else "ND" for dtype in dtypes]
        empty = 16 if rng.random() < 0.5 else 0
        yield (
            "FusedInferAttentionScore",
            "MIX_AIC",
            slots + ";" * empty,
            ";".join(dtypes + ["DT_UNDEFINED"] * empty),
            ";".join(formats + ["NULL"] * empty),
            f"{tokens},8,128;",
            "DT_BF16;FLOAT",
            120.0,
        )


def _untidy(row: dict[str, str], rng: random.Random) -> dict[str, str]:
    """Return *row* with one of the flaws seen in the field."""
    match rng.randrange(13):
        case 0:
            row |= {"Type": f" {row['Type']} ", "Accelerator Core": f"{row['Accelerator Core']} "}
        case 1:
            row["Duration(us)"] = rng.choice(
                ("N/A", "", "0", "-0.37", "nan", "inf", "1_0", "18446744073709551.615")
            )
        case 2:
            row["Duration(us)"] = f" {row['Duration(us)']}\t"
        case 3:
            row["Input Shapes"] = rng.choice(('"N/A"', "N/A", '""', ""))
        case 4:
            row["Output Shapes"] = "N/A"
        case 5:
            row["Type"] = ""
        case 6:
            row |= {"Input Data Types": "", "Input Formats": ""}
        case 7:
            row["Input Shapes"] = row["Input Shapes"].strip('"')
        case 8:
            row["Input Shapes"] = row["Input Shapes"].replace(",", ", ")
        case 9:
            row["aic_total_cycles"] = rng.choice(("18446744073709551615", "-5", "many", "1e3"))
        case 10:
            row["Input Data Types"] = row["Input Data Types"].replace("FLOAT", "DT_FLOAT")
        case 11:
            row |= {"Type": "muls_add_kernel_1"}
        case 12:
            row["Output Shapes"] = "not a shape"
    return row
