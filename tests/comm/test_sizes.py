"""What a message size means for each collective, and how it is rounded."""

from __future__ import annotations

import pytest

from perfcollect_comm.collectives import (
    COLLECTIVES,
    bandwidths_gbps,
    collective,
    comm_dtype,
    message_size,
    message_sizes,
)
from perfcollect_core.errors import UsageError


@pytest.mark.parametrize(
    ("op", "n", "element", "asked", "moved", "rank_in", "rank_out", "nccl"),
    [
        ("all_reduce", 4, 2, 1000, 1000, 1000, 1000, 1000),
        ("all_gather", 4, 2, 1000, 1000, 1000, 4000, 4000),
        ("reduce_scatter", 4, 2, 1000, 1000, 4000, 1000, 4000),
        ("reduce_scatter", 3, 4, 1024, 1024, 3072, 1024, 3072),
        ("all_to_all", 4, 2, 1000, 1000, 1000, 1000, 1000),
        ("all_to_all", 4, 2, 1002, 1008, 1008, 1008, 1008),
        ("all_to_all", 4, 2, 6, 8, 8, 8, 8),
        ("all_reduce", 4, 2, 1, 2, 2, 2, 2),
        ("all_reduce", 4, 1, 1, 1, 1, 1, 1),
    ],
)
def test_bytes_really_moved_follow_the_convention_of_the_collective(
    op, n, element, asked, moved, rank_in, rank_out, nccl
):
    size = message_size(collective(op), n, element, asked)

    assert size.message_bytes == moved
    assert (size.rank_input_bytes, size.rank_output_bytes, size.nccl_bytes) == (rank_in, rank_out, nccl)


@pytest.mark.parametrize(
    ("op", "algbw", "busbw"),
    [
        ("all_reduce", 10, 15),
        ("all_gather", 40, 30),
        ("reduce_scatter", 40, 30),
        ("all_to_all", 10, 7.5),
        ("broadcast", 10, 10),
    ],
)
def test_bandwidths_of_a_megabyte_in_100_us_among_four_ranks(op, algbw, busbw):
    assert bandwidths_gbps(collective(op), 4, 1_000_000, 100) == pytest.approx((algbw, busbw))


def test_sizes_that_rounding_makes_equal_are_measured_once():
    sizes, dropped = message_sizes(collective("all_to_all"), 4, 2, [6, 8, 1000, 1002])

    assert [size.message_bytes for size in sizes] == [8, 1000, 1008]
    assert dropped == (6,)


@pytest.mark.parametrize("op", COLLECTIVES)
@pytest.mark.parametrize("asked", [1, 3, 7, 127, 1 << 20])
def test_no_configuration_has_zero_elements(op, asked):
    size = message_size(collective(op), 7, 2, asked)

    assert size.rank_input_bytes >= 2
    assert size.rank_output_bytes >= 2


def test_a_size_below_one_byte_is_refused():
    with pytest.raises(UsageError, match=r"^message size 0 B, expected at least 1 B$"):
        message_size(collective("all_reduce"), 2, 2, 0)


@pytest.mark.parametrize("name", ["hcom_allReduce_", "hcom_allReduce_.csv", "all_reduce", "all-reduce"])
def test_a_collective_is_known_by_its_names(name):
    assert collective(name).kernel_type == "hcom_allReduce_"


def test_an_unknown_collective_names_the_known_ones():
    with pytest.raises(UsageError) as caught:
        collective("all_redcue")

    assert str(caught.value) == "no collective 'all_redcue'"
    assert "all_reduce" in (caught.value.hint or "")


@pytest.mark.parametrize("name", ["torch.bfloat16", "bfloat16", "DT_BF16"])
def test_a_dtype_is_known_by_its_spellings(name):
    assert comm_dtype(name).nbytes == 2
