"""Tasks of a profile are given to the case that launched them, or to none."""

from __future__ import annotations

import attrs
import made_sessions as made
import pytest

from perfcollect_core.environment import TaskRecord
from perfcollect_core.profiles.attribution import Bracket, Expected, attribute, describe_seen
from perfcollect_core.profiles.op_summary import parse_epoch_ns, read_session
from perfcollect_core.tensors import parse_signature

T0 = 1_764_000_000_000_000_000
ADD = made.Kind("Add", "8,1024;8,1024", "DT_BF16;DT_BF16", "8,1024", "DT_BF16")


def task(kind, at_us, *, duration=10.0, stream="2", recorded=True, device=0, kernel="", **cells):
    return TaskRecord(
        kernel=kernel or kind.kernel,
        start_ns=T0 + int(at_us * 1000),
        duration_us=duration,
        cells={**kind.cells(recorded), "Accelerator Core": "AI_VECTOR_CORE", **cells},
        device=device,
        stream=stream,
    )


def visit(kind, *brackets, number=0, **fields):
    return Expected(
        number=number,
        brackets=tuple(Bracket(T0 + int(a * 1000), T0 + int(b * 1000), n) for a, b, n in brackets),
        kernels=fields.pop("kernels", (kind.kernel,)),
        signature=parse_signature(kind.cells(True)),
        canonical=made.canonical,
        key=made.canonical(kind.cells(True)),
        **fields,
    )


@pytest.mark.parametrize(("version", "lost_head"), list(zip(made.HEADERS, (0, 1, 5), strict=True)))
def test_no_task_of_ten_thousand_goes_to_a_wrong_case(tmp_path, version, lost_head):
    session = made.make_session(
        lost_head + len(version), 10_000, lost_head=lost_head, lost_share=0.004, extra_share=0.03
    )
    made.write_session(session, tmp_path, version, bom=version == "8.2")

    records = read_session(tmp_path)
    found = attribute(records.tasks, session.visits)

    assert len(records.tasks) == len(session.rows)
    assert set(found.unfit) == session.damaged
    assert {n: f.durations_us for n, f in found.found.items()} == {
        n: truth for n, truth in session.truth.items() if n not in session.damaged
    }
    assert {n: f.kernel for n, f in found.found.items()} == {
        n: kernel for n, kernel in session.kernel.items() if n not in session.damaged
    }
    assert len(found.found) > 0.8 * len(session.visits)


def test_a_lost_task_is_said_with_counts():
    answer = attribute([task(ADD, 10), task(ADD, 40)], [visit(ADD, (0, 100, 3))])

    unfit = answer.unfit[0]
    assert (unfit.why, unfit.reason) == ("lost", "2 tasks of Add fit, 3 were launched")
    assert describe_seen(unfit.seen) == "2 Add"


def test_a_task_too_many_is_said_with_counts():
    tasks = [task(ADD, at) for at in (10, 20, 30)]

    answer = attribute(tasks, [visit(ADD, (0, 100, 2))])

    assert (answer.unfit[0].why, answer.unfit[0].reason) == ("extra", "3 tasks of Add fit, 2 were launched")


def test_a_lost_task_and_one_too_many_do_not_make_up_for_each_other():
    tasks = [task(ADD, 10), task(ADD, 20)]

    answer = attribute(tasks, [visit(ADD, (0, 100, 1), (2000, 2100, 1))])

    assert answer.unfit[0].why == "extra"


def test_nothing_seen_names_the_kernel_and_its_aliases():
    other = attrs.evolve(ADD, kernel="Mul")

    answer = attribute([task(other, 10)], [visit(ADD, (0, 100, 1), kernels=("Add", "AddAiCore"))])

    assert answer.unfit[0].reason == "no Add (or AddAiCore) among the tasks of its 1 launch"
    assert answer.unfit[0].seen == {"Mul": 1}


def test_a_dtype_twin_in_the_bracket_is_other_tensors():
    twin = attrs.evolve(ADD, dtypes="FLOAT16;FLOAT16", out_dtype="FLOAT16")

    answer = attribute([task(twin, 10)], [visit(ADD, (0, 100, 1))])

    assert answer.unfit[0].why == "other_tensors"
    assert answer.unfit[0].reason == "Add ran with 8,1024;8,1024 FLOAT16;FLOAT16 ND;ND -> 8,1024 FLOAT16"


def test_an_alias_that_ran_is_told():
    tasks = [task(ADD, at, kernel="AddAiCore") for at in (10, 20)]

    answer = attribute(tasks, [visit(ADD, (0, 100, 2), kernels=("Add", "AddAiCore"))])

    assert answer.found[0].kernel == "AddAiCore"
    assert answer.found[0].core == "AI_VECTOR_CORE"


def test_tasks_of_two_kernels_that_both_fit_are_ambiguous():
    tasks = [task(ADD, 10), task(ADD, 20, kernel="AddAiCore")]

    answer = attribute(tasks, [visit(ADD, (0, 100, 2), kernels=("Add", "AddAiCore"))])

    assert answer.unfit[0].reason == "tasks of several kernels fit: 1 Add, 1 AddAiCore"


def test_tasks_of_another_device_do_not_count():
    tasks = [task(ADD, 10, duration=5.0), task(ADD, 12, duration=7.0, device=1)]

    answer = attribute(tasks, [visit(ADD, (0, 100, 1), device=1)])

    assert answer.found[0].durations_us == (7.0,)


def test_tasks_of_every_stream_count():
    tasks = [task(ADD, 10, duration=5.0), task(ADD, 20, duration=7.0, stream="9")]

    answer = attribute(tasks, [visit(ADD, (0, 100, 2))])

    assert answer.found[0].durations_us == (5.0, 7.0)


def test_a_clock_a_little_off_costs_no_task_and_takes_no_warm_up():
    # Warm-up ends 1 ms before the bracket; the device's clock is 0.3 ms behind.
    tasks = [task(ADD, -1300, duration=99.0), task(ADD, -290, duration=5.0), task(ADD, 20, duration=6.0)]

    answer = attribute(tasks, [visit(ADD, (0, 400, 2))])

    assert answer.found[0].durations_us == (5.0, 6.0)
    assert answer.leftovers == {"Add": 1}


def test_kernels_without_shapes_are_recognised_by_time_and_type():
    answer = attribute([task(ADD, 10, recorded=False)], [visit(ADD, (0, 100, 1))])

    assert answer.found[0].resemblance == "unrecorded"


def test_shapes_recorded_beside_some_that_are_not_are_ambiguous():
    answer = attribute([task(ADD, 10), task(ADD, 20, recorded=False)], [visit(ADD, (0, 100, 1))])

    assert answer.unfit[0].why == "ambiguous"


def test_helpers_are_counted_apart_from_companions():
    cast = attrs.evolve(ADD, kernel="Cast")
    fill = attrs.evolve(ADD, kernel="Fill")

    answer = attribute(
        [task(ADD, 10), task(cast, 20), task(fill, 30)],
        [visit(ADD, (0, 100, 1), companions=frozenset({"Cast"}))],
    )

    assert answer.found[0].helpers == {"Fill": 1}


def test_a_duration_that_is_no_number_makes_the_case_unfit():
    answer = attribute([task(ADD, 10), task(ADD, 20, duration=None)], [visit(ADD, (0, 100, 2))])

    assert answer.unfit[0].reason == "1 of its 2 tasks have no usable duration"


def test_counters_keep_their_numeric_samples():
    tasks = [task(ADD, 10, **{"aicore_time(us)": "4.5"}), task(ADD, 20, **{"aicore_time(us)": "N/A"})]

    answer = attribute(tasks, [visit(ADD, (0, 100, 2))])

    assert answer.found[0].counters == {"aicore_time(us)": (4.5,)}


def test_formats_of_plain_tensors_do_not_tell_tensors_apart():
    cells = {"Input Formats": "NCL;NCHW", "Output Formats": "NCL"}

    answer = attribute([task(ADD, 10, **cells)], [visit(ADD, (0, 100, 1))])

    assert answer.found[0].resemblance == "slots"


def test_a_stored_weight_is_not_a_plain_one_of_its_shape():
    kind = made.Kind("MatMulV2", "16,64;64,32", "DT_BF16;DT_BF16", "16,32", "DT_BF16")

    answer = attribute([task(kind, 10, **{"Input Formats": "ND;FRACTAL_NZ"})], [visit(kind, (0, 100, 1))])

    assert answer.unfit[0].why == "other_tensors"


def test_epoch_times_keep_their_nanoseconds():
    assert parse_epoch_ns("1764000000123456.789\t") == 1_764_000_000_123_456_789


@pytest.mark.parametrize("text", ["", "N/A", "-5", "1e9"])
def test_what_is_no_time_is_zero(text):
    assert parse_epoch_ns(text) == 0


def test_a_torn_last_line_of_a_killed_exporter_is_left_out(tmp_path):
    session = made.make_session(3, 200)
    folder = made.write_session(session, tmp_path, "8.0")
    path = sorted(folder.iterdir())[1]
    path.write_bytes(path.read_bytes()[:-9])

    records = read_session(tmp_path)

    assert (len(records.tasks), records.torn) == (len(session.rows) - 1, 1)


def test_a_task_exported_twice_counts_once(tmp_path):
    session = made.make_session(4, 300)
    made.write_session(session, tmp_path / "a", "8.0")
    made.write_session(session, tmp_path / "b", "8.0")

    records = read_session(tmp_path)

    assert len(records.tasks) == len(session.rows)


def test_a_file_that_is_no_profile_is_told_beside_those_that_are(tmp_path):
    session = made.make_session(5, 100)
    folder = made.write_session(session, tmp_path, "8.0")
    (folder / "op_summary_empty.csv").write_bytes(b"")

    records = read_session(tmp_path)

    assert len(records.tasks) == len(session.rows)
    assert records.faults == (
        f"op_summary_empty.csv: {folder / 'op_summary_empty.csv'} is empty, expected the header of a profiler file",
    )


@pytest.mark.parametrize(
    ("row", "task_shapes", "task_dtypes"),
    [
        pytest.param(
            made.Kind("MaskedFill", "16,64;16,1;1", "DT_BF16;BOOL;DT_BF16", "16,64", "DT_BF16"),
            "16,64;16,1;",
            "DT_BF16;BOOL;DT_BF16",
            id="a scalar written as blank",
        ),
        pytest.param(
            made.Kind("GroupedMatmul", "6,256;16,256,512", "DT_BF16;DT_BF16", "6,512", "DT_BF16"),
            "6,256;16,256,512;;;;;;16",
            "DT_BF16;DT_BF16;DT_UNDEFINED;DT_UNDEFINED;DT_UNDEFINED;DT_UNDEFINED;DT_UNDEFINED;INT64",
            id="a group list the row does not record",
        ),
        pytest.param(
            made.Kind("QuantBatchMatmulV3", "8,64;64,32;32", "INT8;INT8;UINT64", "8,32", "FLOAT16"),
            "8,64;64,32;32",
            "INT8;INT8;INT64",
            id="packed scales of the other sign",
        ),
    ],
)
def test_operands_written_otherwise_are_recognised(row, task_shapes, task_dtypes):
    cells = {"Input Shapes": task_shapes, "Input Data Types": task_dtypes, "Input Formats": "ND"}

    answer = attribute([task(row, 10, **cells)], [visit(row, (0, 100, 1))])

    assert answer.found[0].resemblance == "operands"


def test_folded_batches_are_recognised():
    row = made.Kind("BatchMatMulV2", "2,4,8,64;2,4,64,32", "FLOAT16;FLOAT16", "2,4,8,32", "FLOAT16")
    ran = made.Kind("BatchMatMulV2", "8,8,64;8,64,32", "FLOAT16;FLOAT16", "8,8,32", "FLOAT16")

    answer = attribute([task(ran, 10)], [visit(row, (0, 100, 1))])

    assert answer.found[0].resemblance == "operands"


def test_an_operand_less_is_another_call():
    row = made.Kind("MatMulV2", "8,64;64,32;32", "DT_BF16;DT_BF16;DT_BF16", "8,32", "DT_BF16")
    ran = made.Kind("MatMulV2", "8,64;64,32", "DT_BF16;DT_BF16", "8,32", "DT_BF16")

    answer = attribute([task(ran, 10)], [visit(row, (0, 100, 1))])

    assert answer.unfit[0].why == "other_tensors"


@pytest.mark.parametrize(
    ("header", "cells", "times"),
    [
        pytest.param(
            "message,Start_time(us),End_time(us),Device Start_time(us),Device End_time(us)",
            "1764000000000000.5\t,1764000000000100\t,1764000000000001\t,1764000000000099\t",
            (T0 + 1_000, T0 + 99_000),
            id="in the device's time",
        ),
        pytest.param(
            "message,Start_time(us),End_time(us)",
            "1764000000000000.5,1764000000000100",
            (T0 + 500, T0 + 100_000),
            id="in the host's",
        ),
    ],
)
def test_ranges_are_read_beside_the_tasks(tmp_path, header, cells, times):
    folder = made.write_session(made.make_session(6, 50), tmp_path, "8.0")
    (folder / "msprof_tx_1.csv").write_text(f"{header}\nsomebody's,{cells}\nperfcollect:{T0},{cells}\n")

    assert read_session(tmp_path).ranges == {T0: times}
