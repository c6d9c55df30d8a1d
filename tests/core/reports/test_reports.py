"""What a run's three files and its lines on the screen say."""

from __future__ import annotations

import csv
import json
from datetime import datetime, timedelta, timezone
from pathlib import Path

import attrs
import pytest

from perfcollect_core.cases import Outcome
from perfcollect_core.errors import DataError
from perfcollect_core.reports import (
    RowResult,
    RunSummary,
    TableSummary,
    status_document,
    summary_lines,
    write_reports,
)
from perfcollect_core.reports.hotspots import find_hotspots
from perfcollect_core.reports.markdown import markdown_table, render_markdown
from perfcollect_core.reports.summary import find_mixtures

MEASURED = Outcome("measured")
ENDED = datetime(2026, 3, 4, 5, 6, 7, tzinfo=timezone.utc)


def result(row: str = "64,512;512,512", value: float | None = 20.2, **changes: object) -> RowResult:
    made = RowResult("MatMulV2", "MatMulV2.csv", row, MEASURED, value, cache="warm")
    return attrs.evolve(made, **changes)


def summary(*results: RowResult, **changes: object) -> RunSummary:
    made = RunSummary(
        run_id="20260304-050600",
        database=Path("db"),
        family="cpu",
        device="CPU_X86_64",
        repeat_rule="auto: until the 95 % interval of the median is within 1 %, at most 2 s a case",
        started=ENDED - timedelta(seconds=42),
        finished=ENDED,
        results=results,
    )
    return attrs.evolve(made, **changes)


def section(text: str, title: str) -> str:
    return text.split(f"## {title}\n\n", 1)[1].split("\n## ", 1)[0].strip()


def test_the_report_opens_with_statistic_cache_policy_and_repeat_rule():
    lines = render_markdown(summary(result()), "x.csv").splitlines()

    assert lines[:5] == [
        "# Profile Update Report",
        "",
        "- Statistic: median",
        "- Cache policy: warm",
        "- Repeat rule: auto: until the 95 % interval of the median is within 1 %, at most 2 s a case",
    ]


def test_a_cache_policy_that_was_not_achieved_is_counted_in_the_first_lines():
    results = (result(cache="cold"), result(cache="cold requested, not achieved"))

    report = render_markdown(summary(*results, cache="cold"), "x.csv")

    assert "- Cache policy: cold (1 rows: cold requested, not achieved)" in report


def test_the_report_ends_with_the_name_of_the_hotspot_file():
    assert render_markdown(summary(), "gaps.csv").endswith("All hotspots: `gaps.csv`\n")


@pytest.mark.parametrize(
    "title",
    [
        "Update Summary",
        "Missing Shapes",
        "Deleted Empty Rows",
        "Duplicate Signatures",
        "Duration Gap Hotspots",
        "Mixed Provenance",
        "Failures",
        "Skipped",
    ],
)
def test_an_empty_section_reads_none(title):
    assert section(render_markdown(summary(), "x.csv"), title) == "_None_"


def test_operators_are_ordered_by_added_then_updated_then_name():
    tables = (
        TableSummary("B.csv", "B", updated=5),
        TableSummary("A.csv", "A", updated=5),
        TableSummary("C.csv", "C", updated=9),
        TableSummary("D.csv", "D", added=1),
    )

    rows = section(render_markdown(summary(tables=tables), "x.csv"), "Update Summary").splitlines()[2:]

    assert [row.split("|")[1].strip() for row in rows] == ["D", "C", "A", "B"]


def test_at_most_three_missing_samples_are_shown_and_the_rest_counted():
    table = TableSummary("Add.csv", "Add", missing=("1,8", "2,8", "3,8", "4,8", "5,8"))

    body = section(render_markdown(summary(tables=(table,)), "x.csv"), "Missing Shapes")

    assert "[1,8]; [2,8]; [3,8] and 2 more" in body


def test_cells_with_bars_and_line_ends_stay_one_cell():
    assert markdown_table(("Reason",), [("a|b\nc",)]).splitlines()[-1] == "| a\\|b c |"


@pytest.mark.parametrize(("measured", "found"), [(80.0, 0), (120.0, 0), (79.9, 1), (120.1, 1)])
def test_a_hotspot_lies_outside_four_fifths_and_six_fifths(measured, found):
    assert len(find_hotspots([result(value=measured, profiling_us=100.0)])) == found


@pytest.mark.parametrize("profiled", [None, 0.0, float("nan"), -1.0])
def test_a_row_without_a_profiling_average_is_no_hotspot(profiled):
    assert find_hotspots([result(profiling_us=profiled)]) == ()


def test_hotspots_are_ordered_by_the_larger_ratio_either_way():
    results = [
        result("thrice", 300.0, profiling_us=100.0),
        result("a quarter", 25.0, profiling_us=100.0),
        result("thrice but longer", 600.0, profiling_us=200.0),
    ]

    assert [h.row for h in find_hotspots(results)] == ["a quarter", "thrice but longer", "thrice"]


def test_the_three_files_carry_the_names_of_one_timestamp(tmp_path):
    stamp = ENDED.astimezone().strftime("%Y%m%d_%H%M%S")

    paths = write_reports(summary(result(value=80.0, profiling_us=160.0)), tmp_path / "reports")

    assert sorted(p.name for p in (tmp_path / "reports").iterdir()) == [
        f"duration_gap_hotspots_full_{stamp}.csv",
        f"profile_update_report_{stamp}.md",
        f"run_status_{stamp}.json",
    ]
    with paths.hotspots.open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert rows == [
        {
            "Operator": "MatMulV2",
            "CSV Name": "MatMulV2.csv",
            "MicroBench(us)": "80.000000",
            "Profiling(us)": "160.000000",
            "Abs Diff(us)": "80.000000",
            "MB/Profile": "0.500000",
            "Shape": "64,512;512,512",
        }
    ]


def test_a_second_run_in_the_same_second_overwrites_nothing(tmp_path):
    first = write_reports(summary(run_id="first"), tmp_path)
    second = write_reports(summary(run_id="second"), tmp_path)

    assert json.loads(first.status.read_text())["run"] == "first"
    assert json.loads(second.status.read_text())["run"] == "second"
    assert second.report.stem == first.report.stem + "_2"
    assert len(list(tmp_path.iterdir())) == 6


def test_a_place_that_cannot_be_written_is_one_sentence(tmp_path):
    blocker = tmp_path / "reports"
    blocker.write_text("")

    with pytest.raises(DataError) as caught:
        write_reports(summary(), blocker)

    assert str(caught.value) == f"reports cannot be written to {blocker}: File exists"
    assert caught.value.hint == "give the run another place with --run-dir"


def test_the_status_names_every_row_once_with_class_and_reason():
    failed = Outcome("failed", "worker ended by signal 11", "worker_crashed")
    skipped = Outcome("skipped", "dtype INT4 cannot be built on cpu")
    run = summary(result(), result("1,2", None, outcome=failed), result("3,4", None, outcome=skipped))

    document = json.loads(json.dumps(status_document(run)))

    assert [entry["value_us"] for entry in document["success"]] == [20.2]
    assert document["failed"] == [
        {
            "op": "MatMulV2",
            "table": "MatMulV2.csv",
            "row": "1,2",
            "class": "worker_crashed",
            "reason": "worker ended by signal 11",
        }
    ]
    assert [entry["reason"] for entry in document["skipped"]] == ["dtype INT4 cannot be built on cpu"]
    assert document["counts"] == {"measured": 1, "failed": 1, "skipped": 1, "remaining": 0, "hotspots": 0}


def test_values_of_two_statistics_in_one_table_are_said_with_counts():
    table = TableSummary(
        "MatMulV2.csv",
        "MatMulV2",
        measured_with={
            "cpu 0.1.0 median n=30": 4,
            "cpu 0.1.0 median n=50": 3,
            "cpu 0.1.0 min n=30": 2,
            "": 1,
        },
    )

    lines = summary_lines(summary(tables=(table,)))

    assert (
        "MatMulV2.csv holds values of different statistics or tools: "
        "7 rows cpu 0.1.0 median, 2 rows cpu 0.1.0 min, 1 rows not recorded"
    ) in lines


def test_sample_counts_alone_make_no_mixture():
    table = TableSummary("Add.csv", "Add", measured_with={"cpu median n=30": 4, "cpu median n=31": 1})

    assert find_mixtures([table]) == ()


def test_cold_values_beside_warm_ones_make_no_mixture():
    both = "cpu median, n=30; cold: cpu median, n=18"

    assert (
        find_mixtures([TableSummary("Add.csv", "Add", measured_with={both: 2, "cpu median, n=31": 5})]) == ()
    )


def test_cold_values_of_two_statistics_are_a_mixture():
    counts = {"cpu median; cold: cpu median": 2, "cpu median; cold: cpu min": 1}

    (found,) = find_mixtures([TableSummary("Add.csv", "Add", measured_with=counts)])

    assert found.counts == {"cold: cpu median": 2, "cold: cpu min": 1}


def test_the_screen_ends_with_counts_and_exit_code():
    failed = Outcome("failed", "boom", "environment")

    lines = summary_lines(
        summary(result(), result("1,2", None, outcome=failed), exit_code=4, remaining=1158),
        report="db/reports/r.md",
    )

    assert lines[-2:] == ["report: db/reports/r.md", "1 measured, 1 failed, 0 skipped, 1158 left (exit 4)"]


def test_the_last_line_says_that_more_than_half_failed_and_that_results_were_wrong():
    wrong = Outcome("failed", "3 of 8 elements differ", "wrong_result")

    lines = summary_lines(
        summary(result("1", None, outcome=wrong), result("2", None, outcome=wrong), exit_code=5)
    )

    assert lines[-1] == (
        "more than half of the cases failed: 0 measured, 2 failed, 0 skipped; 2 gave a wrong result (exit 5)"
    )


def test_equal_reasons_are_one_line_with_a_count():
    skipped = Outcome("skipped", "over 20 GFLOP")
    rows = [result(str(i), None, outcome=skipped) for i in range(7)]

    assert "skipped 7 of MatMulV2: over 20 GFLOP" in summary_lines(summary(*rows))


def test_suspicious_samples_are_grouped_by_kind():
    rows = [result(str(i), flags=(f"clock below 95 % of nominal in {i} of 30 samples",)) for i in (3, 4)]

    body = section(render_markdown(summary(*rows), "x.csv"), "Suspicious Samples")

    assert len(body.splitlines()) == 3
    assert "3: clock below 95 % of nominal in 3 of 30 samples" in body
