"""Retry order and giving up (decision 10)."""

from __future__ import annotations

from types import SimpleNamespace

from perfcollect_core.runner.case_queue import CaseQueue, Job


def jobs_of(operator: str, count: int, first: int = 0) -> list[Job]:
    planned = SimpleNamespace(table=SimpleNamespace(operator=operator))
    return [Job(first + number, planned) for number in range(count)]


def take(
    queue: CaseQueue, *, served: int = 1, born: int | None = None, device: int = 0, others=()
) -> Job | None:
    return queue.take(device=device, served=served, born=queue.age if born is None else born, others=others)


def test_three_failures_in_a_row_send_an_operator_behind_the_others():
    bad, good = jobs_of("MatMulV2", 6), jobs_of("Add", 2, first=10)
    queue = CaseQueue([*bad, *good])

    for _ in range(3):
        queue.failed(take(queue), "device_lost")

    assert [take(queue).number for _ in range(5)] == [10, 11, 3, 4, 5]


def test_deferred_cases_wait_for_a_fresh_worker():
    queue = CaseQueue(jobs_of("MatMulV2", 5))
    for _ in range(3):
        queue.failed(take(queue), "device_lost")

    assert take(queue, born=0) is None
    assert queue.wants_fresh(device=0, others=())
    assert take(queue, born=queue.age).number == 3


def test_ten_failures_of_one_class_in_a_row_stop_an_operator():
    queue = CaseQueue(jobs_of("MatMulV2", 30))

    for _ in range(10):
        queue.failed(take(queue), "out_of_memory")

    assert queue.stopped == {"MatMulV2": "out_of_memory"}
    assert len(queue) == 0
    assert len(queue.quarantined) == 20


def test_a_success_between_failures_starts_the_count_anew():
    queue = CaseQueue(jobs_of("MatMulV2", 40))

    for _ in range(3):
        for _ in range(9):
            queue.failed(take(queue), "timeout")
        queue.succeeded(take(queue))

    assert queue.stopped == {}


def test_failures_of_two_classes_are_two_rows():
    queue = CaseQueue(jobs_of("MatMulV2", 40))

    for _ in range(9):
        queue.failed(take(queue), "timeout")
        queue.failed(take(queue), "worker_crashed")

    assert queue.stopped == {}


def test_one_bad_region_of_shapes_does_not_stop_an_operator():
    bad = set(range(12))
    queue = CaseQueue(jobs_of("MatMulV2", 100))
    measured = set()

    while (job := take(queue)) is not None:
        if job.number in bad:
            queue.failed(job, "out_of_memory")
        else:
            queue.succeeded(job)
            measured.add(job.number)

    assert measured == set(range(12, 100))


def test_a_retry_goes_to_a_process_that_served_nobody():
    first, second = jobs_of("MatMulV2", 2)
    queue = CaseQueue([second])
    queue.again(first, where="soon")

    assert take(queue, served=3) is second
    assert take(queue, served=0) is first


def test_a_retry_avoids_the_device_where_it_failed_while_there_is_another():
    (job,) = jobs_of("MatMulV2", 1)
    job.failed_devices.add(0)
    queue = CaseQueue([])
    queue.again(job, where="soon")

    assert take(queue, served=0, device=0, others=[1]) is None
    assert take(queue, served=0, device=1, others=[0]) is job


def test_cases_never_begun_come_back_in_front_and_in_order():
    jobs = jobs_of("MatMulV2", 3)
    queue = CaseQueue(jobs)
    handed = [take(queue), take(queue)]

    queue.give_back(handed)

    assert [take(queue).number for _ in range(3)] == [0, 1, 2]


def test_a_case_without_a_record_comes_back_after_one_other():
    first, second, third = jobs_of("MatMulV2", 3)
    queue = CaseQueue([second, third])

    queue.again(first, where="next")

    assert [take(queue) for _ in range(3)] == [second, first, third]
