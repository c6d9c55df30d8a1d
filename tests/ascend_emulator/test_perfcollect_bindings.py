"""perfcollect measures on emulated NPUs: the calls its bindings make, durations written back, devices in parallel."""

from __future__ import annotations

import csv
import json
from collections import Counter
from pathlib import Path

import bindings
import pytest
from build import EmulatorUnavailableError

from perfcollect_core.profiles.op_summary import read_session

pytestmark = pytest.mark.ascend_emulator

FEW = ("Add", "MatMulV2", "RmsNorm", "Sort", "SwiGlu")
#: Without vllm-ascend and triton-ascend, which have no wheels for this torch.
NOT_HERE = {"AddRmsNormBias", "DispatchFFNCombine", "split_qkv_rmsnorm_rope_kernel"}


@pytest.fixture(scope="module")
def env(ascend_env):
    try:
        return bindings.environment()
    except EmulatorUnavailableError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def every(env, tmp_path_factory):
    """Every operator that can be launched here, two rows of each, on one device."""
    database = tmp_path_factory.mktemp("every") / "database"
    operators = sorted(path.stem for path in bindings.SAMPLES.glob("*.csv") if path.stem not in NOT_HERE)
    bindings.derive(database, env, operators)
    bindings.replay(
        database, env, "--repeat-count", "2", "--warmup", "1", "--rows", "1-2", "--max-case-seconds", "0.05"
    )
    return bindings.compare(database)


def rows_of(database: Path, operator: str) -> list[dict[str, str]]:
    with (database / f"{operator}.csv").open(encoding="utf-8-sig", newline="") as file:
        return list(csv.DictReader(file))


def test_at_least_33_operators_are_launched_and_measured(every):
    assert len(every.operators()) >= 33


def test_every_duration_written_is_the_one_that_was_fixed(every):
    assert {
        row.operator: row.written_us for row in every.rows if row.written_us != f"{row.fixed_us:.6f}"
    } == {}


def test_the_tensors_a_row_records_are_those_that_were_passed(every):
    differing = {row.operator for row in every.rows if row.missing}

    # A single matrix has a batch of one for bmm; the row calls a mask of bools INT8; a slice and a permutation are
    # views of what the row records. Their profiled slots are compared below.
    assert differing <= {"BatchMatMulV2", "MaskedFill", "Slice", "Transpose"}


def test_slots_are_equal_one_by_one_and_absent_ones_absent(every):
    equal = Counter(row.operator for row in every.rows if not row.slots)
    differing = {row.operator: row.slots for row in every.rows if row.slots}

    assert sum(equal.values()) >= 0.75 * len(every.rows)
    assert {"Slice", "Transpose", "MatMulV2", "FusedInferAttentionScore"} <= set(equal), differing


def test_four_devices_share_the_cases(env, tmp_path):
    database = tmp_path / "database"
    bindings.derive(database, env, FEW)

    done = bindings.replay(database, env, "--repeat-count", "2", "--warmup", "1", devices=4)

    assert done.returncode == 0, done.stdout + done.stderr
    found = bindings.compare(database)
    assert {row.operator for row in found.rows if row.written_us != f"{row.fixed_us:.6f}"} == set()
    assert len(found.rows) == sum(len(rows_of(database, name)) for name in FEW)


def test_a_database_not_marked_emulated_refuses_emulated_numbers(env, tmp_path):
    database = tmp_path / "database"
    arguments = ("db", "derive", str(bindings.SAMPLES), str(database), "--device", bindings.DEVICE)
    bindings.run_command(*arguments, env=env)
    before = (database / "Add.csv").read_bytes()

    done = bindings.replay(database, env, "--ops", "Add")

    assert done.returncode == 1
    assert "this run would measure emulated ascend durations" in " ".join(done.stderr.split())
    assert (database / "Add.csv").read_bytes() == before


def test_an_operator_whose_package_is_missing_stops_the_run_in_words(env, tmp_path):
    database = tmp_path / "database"
    bindings.derive(database, env, ("Add", "DispatchFFNCombine"))

    done = bindings.replay(database, env)

    said = " ".join(done.stderr.split())
    assert done.returncode == 1
    assert "DispatchFFNCombine needs module vllm_ascend" in said
    assert "without them: --ops Add" in said
    assert not (database / "reports").exists()


@pytest.mark.parametrize(
    ("fault", "failure"),
    [
        pytest.param("aclnnRmsNorm:ws=161002", "invalid_case", id="refused arguments"),
        pytest.param("aclnnRmsNorm:launch=507015", "device_lost", id="a queued error"),
        pytest.param("aclnnRmsNorm:exit=3", "worker_crashed", id="the process ends"),
    ],
)
def test_a_fault_is_the_fault_of_its_case_alone(env, tmp_path, fault, failure):
    database = tmp_path / "database"
    bindings.derive(database, env, ("Add", "RmsNorm"))

    faulty = {**env, "CANN_EMU_FAULTS": fault}
    bindings.replay(database, faulty, "--repeat-count", "2", "--warmup", "1", "--rows", "1-2")

    found = bindings.compare(database)
    assert {reason.partition(":")[0] for _, _, reason in found.failed} == {failure}
    assert {operator for operator, _, _ in found.failed} == {"RmsNorm"}
    assert [row["Average Duration(us)"] != "" for row in rows_of(database, "Add")[:2]] == [True, True]


def test_ranges_of_the_profiler_are_the_brackets_where_their_library_is_preloaded(env, tmp_path):
    database = tmp_path / "database"
    bindings.derive(database, env, ("Add",))
    library = Path(env["ASCEND_HOME_PATH"]) / "lib64" / "libmspti.so"

    done = bindings.replay(
        database, {**env, "LD_PRELOAD": str(library)}, "--repeat-count", "3", "--rows", "1-3"
    )

    assert done.returncode == 0, done.stdout + done.stderr
    run_dir = max((database / "reports" / "runs").iterdir())
    lines = [json.loads(line) for line in (run_dir / "journal.jsonl").read_text().splitlines()]
    assert next(line for line in lines if line["kind"] == "worker")["facts"]["brackets"].startswith("mstx")
    (session,) = {line["session"] for line in lines if line["kind"] == "launched"}
    starts = {line["window_ns"][0] for line in lines if line["kind"] == "launched"}
    assert set(read_session(run_dir / "profiles" / session).ranges) == starts
    assert {row.fixed_us for row in bindings.compare(database).rows} != {-1.0}
