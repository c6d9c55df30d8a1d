"""Write a profiling session whose truth is known: an op_summary of interleaved kernels, and what each case ran."""

from __future__ import annotations

import random
from pathlib import Path

import attrs

from perfcollect_core.profiles.attribution import Bracket, Expected
from perfcollect_core.tensors import parse_signature

EPOCH_NS = 1_764_000_000_123_456_789

BASE = (
    "Device_id",
    "Model ID",
    "Task ID",
    "Stream ID",
    "Op Name",
    "OP Type",
    "OP State",
    "Task Type",
    "Task Start Time(us)",
    "Task Duration(us)",
    "Task Wait Time(us)",
    "Block Dim",
    "Mix Block Dim",
    "HF32 Eligible",
    "Input Shapes",
    "Input Data Types",
    "Input Formats",
    "Output Shapes",
    "Output Data Types",
    "Output Formats",
)
#: CANN 8.0, 8.2 (other order, a context) and 8.5 (renamed counts, another counter).
HEADERS = {
    "8.0": (*BASE, "aicore_time(us)", "aic_total_cycles"),
    "8.2": (BASE[0], *BASE[2:], "Context ID", "aicore_time(us)", "aic_total_cycles", "aiv_time(us)"),
    "8.5": (
        *(name.replace("Block Dim", "Block Num") for name in BASE),
        "aicore_time(us)",
        "cube_utilization(%)",
    ),
}


@attrs.define
class Kind:
    """A call: the kernel counted, its tensors, and what else one call launches."""

    kernel: str
    shapes: str
    dtypes: str
    out: str
    out_dtype: str
    kernels: tuple[str, ...] = ()
    companions: tuple[str, ...] = ()
    recorded: bool = True

    def cells(self, recorded: bool | None = None) -> dict[str, str]:
        recorded = self.recorded if recorded is None else recorded
        count = self.shapes.count(";") + 1
        if not recorded:
            return dict.fromkeys(
                (
                    "Input Shapes",
                    "Input Data Types",
                    "Input Formats",
                    "Output Shapes",
                    "Output Data Types",
                    "Output Formats",
                ),
                "N/A",
            )
        return {
            "Input Shapes": f'"{self.shapes}"',
            "Input Data Types": self.dtypes,
            "Input Formats": ";".join(["ND"] * count),
            "Output Shapes": f'"{self.out}"',
            "Output Data Types": self.out_dtype,
            "Output Formats": "ND",
        }


KINDS = (
    Kind(
        "MatMulV2", "136,7168;7168,3584", "DT_BF16;DT_BF16", "136,3584", "DT_BF16", ("MatMulV2", "MatMulV3")
    ),
    Kind(
        "MatMulV2", "136,7168;7168,3584", "FLOAT16;FLOAT16", "136,3584", "FLOAT16", ("MatMulV2", "MatMulV3")
    ),
    Kind("Add", "8,1024;8,1024", "DT_BF16;DT_BF16", "8,1024", "DT_BF16"),
    Kind("Add", "8,1024;8,1024", "FLOAT;FLOAT", "8,1024", "FLOAT"),
    Kind("Cast", "8,1024", "DT_BF16", "8,1024", "FLOAT"),
    Kind("SoftmaxV2", "16,4096", "FLOAT", "16,4096", "FLOAT", companions=("Cast",)),
    Kind("RINGMLAPrefillBF16Kernel", "64,16,192", "DT_BF16", "64,16,128", "DT_BF16", recorded=False),
    Kind("Sort", "4,32000", "DT_BF16", "4,32000", "DT_BF16", companions=("Transpose", "Cast")),
    Kind("TensorMove", "256,4096", "DT_BF16", "256,4096", "DT_BF16"),
)
HELPERS = (
    Kind("Cast", "8,1024", "DT_BF16", "8,1024", "FLOAT"),
    Kind("TensorMove", "8,7168", "FLOAT", "8,7168", "FLOAT"),
    Kind("StatelessRandomNormalV2", "1", "INT64", "8,1024", "FLOAT"),
    Kind("MatMulV2", "1,7168;7168,3584", "DT_BF16;DT_BF16", "1,3584", "DT_BF16"),
)


@attrs.define
class Session:
    """Lines of a session, what its visits expect, and the durations each really had."""

    visits: list[Expected] = attrs.field(factory=list)
    truth: dict[int, tuple[float, ...]] = attrs.field(factory=dict)
    kernel: dict[int, str] = attrs.field(factory=dict)
    rows: list[dict[str, str]] = attrs.field(factory=list)
    damaged: set[int] = attrs.field(factory=set)
    #: The visit a row belongs to, -1 for a helper.
    owner: list[int] = attrs.field(factory=list)


def canonical(cells):
    return parse_signature(cells).canonical()


def make_session(
    seed: int, rows: int, *, lost_head: int = 0, lost_share: float = 0.0, extra_share: float = 0.0
) -> Session:
    """Make a session of about *rows* tasks: warm-up, inputs and helpers around and inside the brackets."""
    rng = random.Random(seed)
    skew = rng.randint(-200_000, 200_000)
    session = Session()
    now = EPOCH_NS
    number = 0

    def task(kind: Kind, start: int, owner: int, kernel: str = "", recorded: bool | None = None) -> float:
        duration = round(rng.uniform(2.0, 60.0), 3)
        device_start = start + skew
        session.rows.append(
            {
                "Device_id": "0",
                "Model ID": "4294967295",
                "Task ID": str(len(session.rows)),
                "Stream ID": str(rng.choice((2, 2, 2, 5))),
                "Op Name": f"aclnn_{kind.kernel}",
                "OP Type": kernel or kind.kernel,
                "OP State": "static",
                "Task Type": "AI_CORE" if "MatMul" in kind.kernel else "AI_VECTOR_CORE",
                "Task Start Time(us)": f"{device_start // 1000}.{device_start % 1000:03d}\t",
                "Task Duration(us)": f"{duration}",
                "Task Wait Time(us)": "0",
                "aicore_time(us)": f"{duration - 1:.3f}",
                "aic_total_cycles": rng.choice(("N/A", "1200")),
                **kind.cells(recorded),
            }
        )
        session.owner.append(owner)
        return duration

    while len(session.rows) < rows:
        kind = rng.choice(KINDS)
        for _ in range(rng.randint(0, 4)):
            task(rng.choice(HELPERS), now, -1)
            now += 70_000
        for _ in range(rng.randint(1, 3)):
            task(kind, now, -1)
            now += 70_000
        now += 1_000_000
        single = rng.random() < 0.2
        launches = rng.randint(3, 12)
        kernel = rng.choice(kind.kernels) if kind.kernels else kind.kernel
        durations, brackets = [], []
        start = now
        for _ in range(launches):
            if single:
                # A reset runs before every launch, outside its bracket.
                task(kind, now, -1)
                now += 1_100_000
                start = now
            for companion in kind.companions:
                task(attrs.evolve(rng.choice(HELPERS), kernel=companion), now, -1)
                now += 65_000
            durations.append(task(kind, now, number, kernel))
            now += 65_000
            if rng.random() < 0.1:
                task(HELPERS[2], now, -1)
                now += 65_000
            if single:
                brackets.append(Bracket(start, now, 1))
                now += 1_000_000
        # A task of the same kernel and tensors that nobody launched for the case.
        if not single and rng.random() < extra_share:
            task(kind, now - 1000, -1, kernel)
            session.damaged.add(number)
        if not single:
            brackets.append(Bracket(start, now, launches))
        now += 1_000_000
        session.visits.append(
            Expected(
                number=number,
                brackets=tuple(brackets),
                kernels=kind.kernels or (kind.kernel,),
                signature=parse_signature(kind.cells(True)),
                canonical=canonical,
                key=canonical(kind.cells(True)),
                companions=frozenset(kind.companions),
                device=0,
            )
        )
        session.truth[number] = tuple(durations)
        session.kernel[number] = kernel
        number += 1
    _lose(session, rng, lost_head, lost_share)
    return session


def _lose(session: Session, rng: random.Random, head: int, share: float) -> None:
    # One lost for one too many would leave no trace at all.
    whole = [i for i, owner in enumerate(session.owner) if owner not in session.damaged]
    lost = {i for i in whole if i < head or rng.random() < share}
    session.damaged |= {session.owner[i] for i in lost} - {-1}
    session.rows = [row for i, row in enumerate(session.rows) if i not in lost]


def write_session(
    session: Session, directory: Path, version: str, *, bom: bool = False, seed: int = 0
) -> Path:
    """Write *session* as msprof does; rows in no particular order, in several slices."""
    header = HEADERS[version]
    rows = list(session.rows)
    random.Random(seed).shuffle(rows)
    folder = directory / "PROF_000001_20260101000000000_ABC" / "mindstudio_profiler_output"
    folder.mkdir(parents=True)
    half = len(rows) // 2
    for index, part in enumerate((rows[:half], rows[half:])):
        lines = [",".join(header)]
        for row in part:
            cells = (row.get(name.replace("Block Num", "Block Dim"), "N/A") for name in header)
            lines.append(",".join(_quoted(cell) for cell in cells))
        text = "\r\n".join(lines) + "\r\n"
        path = folder / f"op_summary_slice_{index}_20260101000000.csv"
        path.write_bytes((b"\xef\xbb\xbf" if bom else b"") + text.encode())
    return folder


def _quoted(cell: str) -> str:
    return '"' + cell.replace('"', '""') + '"' if any(mark in cell for mark in ',"') else cell
