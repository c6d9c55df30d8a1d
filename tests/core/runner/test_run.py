"""``perfcollect run`` from selection to exit code, on a family without a device."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from perfcollect_core.cli import main


def test_durations_and_provenance_are_written_and_reported(fault_database, run):
    database = fault_database("ok", "ok")

    finished = run(database, "--format", "json")

    assert finished.code == 0
    assert [row["Average Duration(us)"] for row in database.rows()] == ["1.000000", "1.000000"]
    assert database.rows()[0]["Accelerator Core"] == "SIMULATED"
    assert database.rows()[0]["Measured With"].startswith("noop, perfcollect ")
    assert finished.document["counts"]["measured"] == 2
    assert len(list((database.path / "reports").glob("profile_update_report_*.md"))) == 1
    assert json.loads((database.path / "perfcollect.json").read_text())["family"] == "noop"


def test_nothing_selected_is_a_sentence_with_counts_and_exit_0(fault_database, run):
    database = fault_database(
        {"Average Duration(us)": "18.2"}, {"Profiling Average Duration(us)": "7.5"}, family="noop"
    )
    digest = database.digest()

    finished = run(database, "--update-mode", "missing-only")

    assert finished.code == 0
    assert finished.out == (
        "nothing to do: 2 of 2 rows of Fault.csv have a valid duration; --update-mode all measures them again\n"
    )
    assert database.digest() == digest


def test_missing_only_goes_on_with_exactly_the_rest(fault_database, run):
    database = fault_database(*["ok"] * 5)
    first = run(database, "--limit", "2")

    second = run(database, "--update-mode", "missing-only")

    assert (first.code, second.code) == (4, 0)
    assert [len(run_dir_lines(run_dir)) for run_dir in database.run_dirs()] == [2, 3]
    assert database.measured() == [1, 2, 3, 4, 5]


def run_dir_lines(run_dir):
    lines = (run_dir / "journal.jsonl").read_text().splitlines()
    return [line for line in lines if json.loads(line)["kind"] == "measured"]


def test_a_limit_takes_the_cheapest_and_says_how_many_remain(fault_database, run):
    database = fault_database(*({"Sleep Ms": ms} for ms in ("4", "1", "3", "2")))

    finished = run(database, "--limit", "2")

    assert finished.code == 4
    assert database.measured() == [2, 4]
    assert finished.out.splitlines()[-1] == "2 measured, 0 failed, 0 skipped, 2 left (exit 4)"


def test_a_time_budget_ends_the_run_resumably(fault_database, run):
    database = fault_database(*[{"Sleep Ms": "100"}] * 40)

    finished = run(database, "--max-seconds", "1", family="sleeping")

    assert finished.code == 4
    measured = len(database.measured())
    assert 0 < measured < 40
    assert f"{measured} measured, 0 failed, 0 skipped, {40 - measured} left (exit 4)" in finished.out


def test_a_dry_run_prints_the_plan_and_touches_nothing(fault_database, run):
    database = fault_database("ok", "no-such-fault")
    before = sorted(database.path.rglob("*"))

    finished = run(database, "--dry-run")

    assert finished.code == 0
    assert (
        "Fault: 1 rows invalid_case: column 'Fault' has 'no-such-fault', expected one of ok, raise"
        in finished.out
    )
    assert "1 cases" in finished.out
    assert sorted(database.path.rglob("*")) == before


def test_an_invalid_row_fails_keeps_its_place_and_the_rest_is_measured(fault_database, run):
    database = fault_database("ok", "no-such-fault", "ok")

    finished = run(database)

    assert finished.code == 3
    assert database.measured() == [1, 3]
    assert len(database.rows()) == 3


def test_pruning_deletes_only_rows_that_were_tried_and_have_no_duration(fault_database, run):
    database = fault_database(
        "ok", "raise", "ok", {"Fault": "raise", "Profiling Average Duration(us)": "7.5"}, "ok", family="noop"
    )

    finished = run(database, "--prune-empty-duration-rows", "--rows", "1-4")

    assert finished.code == 3
    assert [row["Input Shapes"] for row in database.rows()] == ['"1,512"', '"3,512"', '"4,512"', '"5,512"']


def test_a_table_is_replayed_under_another_name(fault_database, run):
    database = fault_database("ok")
    database.table.rename(database.path / "Renamed.csv")

    finished = run(database, "--table", "Renamed.csv=Fault")

    assert finished.code == 0
    assert "1.000000" in (database.path / "Renamed.csv").read_text()


def test_an_operator_without_a_table_is_an_error_that_lists_the_tables(fault_database, run):
    database = fault_database("ok")
    database.table.rename(database.path / "Other.csv")

    finished = run(database, "--ops", "Fault")

    assert finished.code == 1
    assert f"error: operator 'Fault' has no table in {database.path}, expected Fault.csv" in finished.err
    assert "hint: there are Other.csv" in finished.err


def test_a_misspelt_operator_gets_a_suggestion(fault_database, run):
    finished = run(fault_database("ok"), "--ops", "Fualt")

    assert finished.code == 1
    assert "error: operator 'Fualt' is not provided by any installed distribution" in finished.err
    assert "did you mean Fault?" in finished.err


def test_another_families_numbers_are_refused_and_the_table_keeps_its_bytes(fault_database, run):
    database = fault_database({"Average Duration(us)": "18.2", "Accelerator Core": "AI_CORE"}, "ok")
    digest = database.digest()

    finished = run(database)

    assert finished.code == 1
    assert "holds ascend durations" in finished.err
    assert database.digest() == digest
    assert run(database, "--dry-run").code == 1


def test_a_missing_need_stops_before_the_first_measurement_with_everything_in_one_message(
    fake_distribution, fault_database, run, monkeypatch
):
    fake_distribution(
        "needy",
        operators={"NeedyCombine": "needy:opp", "NeedyAttention": "needy:opp"},
        files={
            "needy.py": "from perfcollect_core.testing.faults import FaultOperator\n"
            "from perfcollect_core import Need\n"
            "opp = FaultOperator(needs=(Need('env', 'ASCEND_CUSTOM_OPP_PATH', 'source the package', ('noop',)),))\n"
        },
    )
    monkeypatch.setenv("ASCEND_CUSTOM_OPP_PATH", "/nonexistent")
    database = fault_database("ok", "ok")
    for name, rows in (("NeedyCombine", 3), ("NeedyAttention", 2)):
        text = database.table.read_text().splitlines(keepends=True)
        (database.path / f"{name}.csv").write_text("".join((text + text[1:])[: rows + 1]))
    before = {path: path.read_bytes() for path in database.path.iterdir()}

    finished = run(database)

    assert finished.code == 1
    opp = "environment variable ASCEND_CUSTOM_OPP_PATH (ASCEND_CUSTOM_OPP_PATH=/nonexistent, which does not exist)"
    assert finished.err == (
        f"error: NeedyAttention needs {opp}, 2 rows left untouched; "
        f"NeedyCombine needs {opp}, 3 rows left untouched\n"
        "hint: source the package; without them: --ops Fault\n"
    )
    assert {path: path.read_bytes() for path in database.path.iterdir()} == before


def test_a_missing_device_is_one_line_and_nothing_is_written(fault_database, run, monkeypatch):
    monkeypatch.setenv("PERFCOLLECT_SIMULATED_DEVICES", "0")
    database = fault_database("ok")

    finished = run(database)

    assert finished.code == 1
    assert finished.err == (
        "error: no device of family noop here: a simulated device (PERFCOLLECT_SIMULATED_DEVICES=0)\n"
        "hint: set PERFCOLLECT_SIMULATED_DEVICES to 1 or more\n"
    )
    assert sorted(path.name for path in database.path.iterdir()) == ["Fault.csv"]


LFS = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a2146\nsize 16400\n"


def test_a_table_that_cannot_be_read_is_left_out_and_exits_3(fault_database, run, fake_distribution):
    fake_distribution("more", operators={"Pointer": "perfcollect_core.testing.faults:operator"})
    database = fault_database("ok")
    pointer = database.path / "Pointer.csv"
    pointer.write_text(LFS)

    finished = run(database)

    assert finished.code == 3
    assert database.measured() == [1]
    assert "is a Git LFS pointer (real size 16400 bytes)" in finished.err
    assert pointer.read_text() == LFS


def test_a_named_table_that_cannot_be_read_stops_the_run(fault_database, run):
    database = fault_database("ok")
    database.table.write_text(LFS)

    finished = run(database, "--ops", "Fault")

    assert finished.code == 1
    assert "is a Git LFS pointer (real size 16400 bytes), expected a table" in finished.err
    assert "hint: run git lfs pull" in finished.err


@pytest.mark.parametrize("option", [("--devices", "7"), ("--devices", "0,x"), ("--repeat-count", "0")])
def test_an_option_that_names_nothing_is_exit_2(fault_database, run, option):
    assert run(fault_database("ok"), *option).code == 2


def test_a_wrapper_adds_its_columns_by_name_and_moves_no_number(fault_database, run, fake_distribution):
    fake_distribution(
        "meter",
        wrappers={"power": "meter"},
        files={
            "meter.py": "import attrs\n"
            "from perfcollect_core import hookimpl\n"
            "@hookimpl(wrapper=True)\n"
            "def perfcollect_measure(device):\n"
            "    samples = yield\n"
            "    return attrs.evolve(samples, counters={'Power(W)': (310.2, 310.4), 'Clock(MHz)': 1500.0})\n"
        },
    )
    database = fault_database(
        {"Profiling Average Duration(us)": "18.9"}, {"Average Duration(us)": ""}, family="noop"
    )

    finished = run(database, "--with", "power", "--rows", "1")

    assert finished.code == 0
    first, second = database.rows()
    assert (first["Power(W)"], first["Clock(MHz)"]) == ("310.300000", "1500.000000")
    assert first["Profiling Average Duration(us)"] == "18.9"
    assert (second["Power(W)"], second["Average Duration(us)"]) == ("", "")


def test_rows_of_equal_key_without_a_duration_are_filled_too(fault_database, run):
    database = fault_database("ok", {"Input Shapes": '"1,512"', "Output Shapes": '"1,512"'}, "ok")

    run(database, "--rows", "1")

    assert database.measured() == [1, 2]


def test_the_predecessors_repeat_variable_is_said_to_have_no_effect(fault_database, run, monkeypatch):
    monkeypatch.setenv("MSMODELING_OP_REPLAY_REPEAT_COUNT", "100")

    finished = run(fault_database("ok"))

    assert finished.err.splitlines()[0] == (
        "MSMODELING_OP_REPLAY_REPEAT_COUNT is set and has no effect here; --repeat-count does what it did"
    )


def test_a_directory_that_is_not_there_is_named(fault_database, tmp_path, capsys):
    fault_database("ok")

    code = main(["run", "--database-path", str(tmp_path / "nowhere"), "--family", "noop"])

    assert code == 1
    assert str(tmp_path / "nowhere") in capsys.readouterr().err


def test_several_passes_visit_each_case_as_often_and_keep_every_sample(fault_database, run):
    database = fault_database("ok", "ok", "ok")

    finished = run(database, "--passes", "3", "--repeat-count", "6")

    assert finished.code == 0
    visits = [line["row"][1][1] for line in database.journal("pass")]
    assert visits == ["1,512", "2,512", "3,512"] * 2
    assert [line["statistics"]["n"] for line in database.journal("measured")] == [6, 6, 6]


def test_a_row_on_which_a_plugin_fails_is_set_aside_with_what_it_raised(
    fault_database, run, fake_distribution
):
    fake_distribution(
        "buggy",
        operators={"Buggy": "buggy"},
        files={
            "buggy.py": "from perfcollect_core.testing.faults import operator as _inner\n"
            "perfcollect_operator_spec = _inner.perfcollect_operator_spec\n"
            "perfcollect_make_inputs = _inner.perfcollect_make_inputs\n"
            "perfcollect_bind_kernel = _inner.perfcollect_bind_kernel\n"
            "def perfcollect_make_case(spec, row):\n"
            "    if row.get('Fault') == 'bug':\n"
            "        raise KeyError('no such slot')\n"
            "    return _inner.perfcollect_make_case(spec, row)\n"
        },
    )
    database = fault_database("ok", "bug", "ok")
    database.table.rename(database.path / "Buggy.csv")

    finished = run(database)

    assert finished.code == 3
    assert "operator 'Buggy' (buggy 1.0) raised KeyError: 'no such slot'" in finished.out
    assert "2 measured, 1 failed, 0 skipped (exit 3)" in finished.out


def test_a_torn_table_is_refused_and_keeps_its_bytes(fault_database, run):
    database = fault_database("ok", "ok")
    with database.table.open("a", encoding="utf-8", newline="") as file:
        file.write("dynamic,CPU\r\n")
    digest = database.digest()

    finished = run(database, "--ops", "Fault")

    assert finished.code == 1
    assert "line 4: 2 cells, header has 14" in finished.err
    assert database.digest() == digest


def test_a_family_that_is_not_here_is_never_replaced_by_another(fault_database, run, monkeypatch):
    if Path("/dev/davinci_manager").exists():
        pytest.skip("this machine has NPUs")
    monkeypatch.setenv("ASCEND_RT_VISIBLE_DEVICES", "1,0")
    database = fault_database({"Profiling Average Duration(us)": "7.7", "Accelerator Core": "AI_CORE"})
    digest = database.digest()

    finished = run(database, family="ascend")

    assert finished.code == 1
    assert finished.err.startswith("error: no device of family ascend here: ")
    assert len(finished.err.splitlines()) == 2
    assert database.digest() == digest
    assert not (database.path / "reports").exists()
