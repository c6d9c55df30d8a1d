"""Every kernel type's call reaches the emulated CANN with the arguments its fact sheet describes."""

from __future__ import annotations

import csv
import json
import os
from pathlib import Path
from typing import Any

import pytest
from plugin import Emulator, read_summaries
from rendering import render_launch, render_row, sections

pytestmark = [pytest.mark.ascend_emulator, pytest.mark.xdist_group("launches")]

HERE = Path(__file__).parent
GOLDEN = HERE / "expected_launches.txt"
_UPDATE = os.environ.get("PERFCOLLECT_UPDATE_GOLDEN") == "1"


def _expected() -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for line in GOLDEN.read_text(encoding="utf-8").splitlines() if GOLDEN.exists() else []:
        if line.startswith("# "):
            lines = found.setdefault(line[2:], [])
        elif line:
            lines.append(line)
    return found


EXPECTED = _expected()


class Session:
    """What one run of all launches under the stand-in msprof left behind."""

    def __init__(self, emulator: Emulator) -> None:
        emulator.set(durations={"aclnnMm[136,5120;5120,768]": 12.5, "aclnnMm": 7.25})
        self.done = emulator.run(
            HERE / "launches.py",
            msprof=["--output=profile", "--msproftx=on", "--aic-metrics=PipeUtilization"],
            LD_PRELOAD="libmspti.so",
        )
        self.launches = sections(emulator.launches())
        self.records = emulator.kernels()
        self.profile = emulator.directory / "profile"
        self.rows = read_summaries(self.profile)

    def lines(self, name: str) -> list[str]:
        """Return the launches of one call and the rows they became."""
        records = self.launches[name]
        tasks = {str(record["seq"]) for record in records}
        rows = [render_row(row) for row in self.rows if row["Task ID"] in tasks]
        return [*(f"launch {render_launch(record)}" for record in records), *(f"row {row}" for row in rows)]


@pytest.fixture(scope="module")
def session(ascend_env: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Session:
    emulator = Emulator(Path(ascend_env["ASCEND_HOME_PATH"]), ascend_env, tmp_path_factory.mktemp("launches"))
    made = Session(emulator)
    if _UPDATE:
        text = "\n".join("\n".join([f"# {name}", *made.lines(name), ""]) for name in made.launches)
        GOLDEN.write_text(text, encoding="utf-8")
    return made


def test_every_call_succeeds(session: Session) -> None:
    failed = [line for line in session.done.stdout.splitlines() if line.startswith("FAILED")]

    assert session.done.returncode == 0, session.done.stderr
    assert failed == []
    assert sorted(session.launches) == sorted(EXPECTED)


@pytest.mark.parametrize("name", list(EXPECTED))
def test_a_call_launches_what_its_fact_sheet_says(session: Session, name: str) -> None:
    assert session.lines(name) == EXPECTED[name]


def test_op_summary_has_the_46_columns_of_an_a3_with_cann_8(session: Session) -> None:
    (path,) = session.profile.glob("PROF_*/mindstudio_profiler_output/op_summary_*.csv")
    with path.open(newline="", encoding="utf-8") as file:
        header = next(csv.reader(file))

    assert len(header) == 46
    assert header[:10] == [
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
    ]
    assert header[-1] == "cube_utilization(%)"


def test_durations_are_those_the_test_fixed_for_shapes_and_for_names(session: Session) -> None:
    by_shapes = {
        row["Input Shapes"]: row["Task Duration(us)"] for row in session.rows if row["OP Type"] == "MatMulV2"
    }

    assert by_shapes['"136,5120;5120,768"'] == "12.500"
    # The view of a transposed weight has the same shape as a plain one.
    assert by_shapes['"136,5120;768,5120"'] == "12.500"
    assert [row["Task Duration(us)"] for row in session.rows if row["OP Type"] == "MatMulV3"] == ["7.250"]


def test_start_times_are_the_logged_host_epoch_with_a_trailing_tab(session: Session) -> None:
    starts = {str(record["seq"]): record["start_ns"] for record in session.records}
    row = next(row for row in session.rows if row["OP Type"] == "RmsNorm")

    assert row["Task Start Time(us)"].endswith("\t")
    assert row["Task Start Time(us)"].strip() == "{}.{:03d}".format(*divmod(starts[row["Task ID"]], 1000))


def test_marks_reach_the_profile_when_libmspti_is_preloaded(session: Session) -> None:
    (path,) = session.profile.glob("PROF_*/mindstudio_profiler_output/msprof_tx_*.csv")
    with path.open(newline="", encoding="utf-8") as file:
        messages = [row["message"] for row in csv.DictReader(file)]

    assert "begin Add" in messages
    assert "end Add" in messages


def test_msprof_records_the_options_it_was_given(session: Session) -> None:
    (path,) = session.profile.glob("PROF_*/host/sample.json")
    recorded: dict[str, Any] = json.loads(path.read_text())

    assert recorded["options"] == {"output": "profile", "msproftx": "on", "aic-metrics": "PipeUtilization"}
