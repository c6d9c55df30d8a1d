"""Lengths of sequences: what rows record, and what is assumed where they do not."""

from __future__ import annotations

import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfcollect_core.cases import Row, RowRef
from perfcollect_core.lengths import (
    Lengths,
    Pages,
    even_lengths,
    integer_column,
    jittered_lengths,
    lengths_key,
    page_lengths,
    paged_row_lengths,
    query_lengths,
    read_integers,
    split_lengths,
    tensor_key,
)
from perfcollect_core.tensors import TensorSpec

COLUMN = "Runtime actual_seq_lengths_kv_values"


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("1,2,3", (1, 2, 3)),
        ("1;2;3", (1, 2, 3)),
        ('"[128, 256]"', (128, 256)),
        ("4096", (4096,)),
        ("128.0,256.0", (128, 256)),
        ("", ()),
        ("[]", ()),
    ],
)
def test_lists_of_integers_are_read_in_every_spelling(text, values):
    assert read_integers(text) == values


def test_a_list_with_a_word_in_it_is_refused_with_the_word():
    with pytest.raises(ValueError) as caught:
        read_integers("128,many")

    assert str(caught.value) == "list '128,many' has entry 'many', expected a non-negative integer"


def test_a_metadata_column_that_holds_no_number_is_refused():
    row = Row(RowRef("T.csv", ()), {"Runtime num_heads": "eight"})

    with pytest.raises(ValueError) as caught:
        integer_column(row, "Runtime num_heads", "Num Heads")

    assert str(caught.value) == "column 'Runtime num_heads' is 'eight', expected a number"


@pytest.mark.parametrize(
    ("values", "total", "lengths"),
    [
        ((2, 5, 9), 9, (2, 3, 4)),
        ((2, 3, 4), 9, (2, 3, 4)),
        ((9,), 9, (9,)),
        ((1, 2, 3, 4), 4, (1, 1, 1, 1)),
        ((2, 3, 5), 9, None),
        ((), 9, None),
    ],
)
def test_running_sums_and_single_lengths_are_told_apart_by_the_total(values, total, lengths):
    assert split_lengths(values, total) == lengths


@given(st.integers(1, 64).flatmap(lambda n: st.tuples(st.just(n), st.integers(n, 5000))))
def test_an_even_split_keeps_the_total_and_differs_by_one_at_most(drawn):
    count, total = drawn

    lengths = even_lengths(total, count)

    assert sum(lengths) == total
    assert max(lengths) - min(lengths) <= 1


@given(st.integers(2, 64), st.floats(1, 4096), st.integers(0, 2**32))
def test_jittered_lengths_stay_in_bounds_and_keep_their_mean(count, mean, seed):
    lengths = jittered_lengths(mean, count, 1, 4096, seed)

    assert len(lengths) == count
    assert min(lengths) >= 1
    assert max(lengths) <= 4096
    assert abs(sum(lengths) - mean * count) <= count


def test_jittered_lengths_are_spread_and_seeded():
    first, again, other = (jittered_lengths(4096, 64, 1, 8192, seed) for seed in (3, 3, 4))

    assert first == again
    assert first != other
    assert 0.15 < statistics.stdev(first) / 4096 < 0.4


def test_decode_is_assumed_where_there_are_as_many_sequences_as_tokens():
    found = query_lengths((), 64, 64, "Q")

    assert found == Lengths((1,) * 64, "query_lengths=1 x 64 (as many sequences as query tokens: decode)")


def test_unknown_query_lengths_are_split_evenly_and_say_so():
    found = query_lengths((), 102, 34, "Q")

    assert found == Lengths((3,) * 34, "query_lengths=102 over 34 (not recorded: split evenly)")


@pytest.mark.parametrize(
    ("recorded", "total", "count", "message"),
    [
        (
            (2, 4),
            5,
            2,
            "column 'Q' ends at 4 and sums to 6, expected 5 query tokens in sequences of one or more",
        ),
        (
            (2, 2, 5),
            5,
            3,
            "column 'Q' ends at 5 and sums to 9, expected 5 query tokens in sequences of one or more",
        ),
        ((2, 5), 5, 3, "column 'Q' has 2 sequences, expected 3 as in the slots"),
        ((), 3, 5, "3 query tokens for 5 sequences, expected at least one each"),
        ((), 2**40, 2**40, "1099511627776 sequences, expected at most 65536"),
    ],
)
def test_query_lengths_that_do_not_go_together_are_refused(recorded, total, count, message):
    with pytest.raises(ValueError) as caught:
        query_lengths(recorded, total, count, "Q")

    assert str(caught.value) == message


def _cached(recorded=(), average=None, blocks=(), *, queries=(1, 1)):
    pages = Pages(64, 128, 16)
    return page_lengths(recorded, average, blocks, queries=queries, pages=pages, seed=1, column=COLUMN)


def test_recorded_lengths_beat_the_average_and_the_valid_blocks():
    assert _cached((500, 700), 4000.0, (1, 1)) == Lengths((500, 700))


def test_one_recorded_length_holds_for_every_sequence():
    assert _cached((500,)).values == (500, 500)


def test_the_average_beats_the_valid_blocks():
    found = _cached((), 1000.0, (1, 1))

    assert sum(found.values) == 2000
    assert found.assumption.endswith("(log-normal, sigma 0.25, around the recorded average 1000)")


def test_valid_blocks_count_as_full():
    assert _cached((), None, (2, 3)) == Lengths(
        (256, 384), "kv_lengths=256..384 (valid blocks, each one full)"
    )


def test_without_any_metadata_a_sequence_gets_its_share_of_the_pool_and_never_one_block():
    found = _cached()

    assert found.values == (2048, 2048)
    assert found.assumption == (
        "kv_lengths=2048 x 2 (not recorded: min(block table columns, blocks / sequences) x block size)"
    )


@pytest.mark.parametrize(
    ("lengths", "queries", "message"),
    [
        ((500,), (1, 1, 1), None),
        ((500, 500, 500), (1, 1), f"column {COLUMN!r} has 3 sequences, expected 2"),
        ((5, 500), (8, 8), "sequence 0 has 5 cached tokens for 8 query tokens, expected as many or more"),
        (
            (500, 2049),
            (1, 1),
            "sequence 1 has 2049 cached tokens, expected at most the 16 blocks of 128 that its block table row holds",
        ),
        ((2048,) * 5, (1,) * 5, "80 cache blocks are needed, expected at most the 64 of the pool"),
    ],
)
def test_lengths_must_fit_queries_table_and_pool(lengths, queries, message):
    if message is None:
        assert _cached(lengths, queries=queries).values == (500, 500, 500)
        return

    with pytest.raises(ValueError) as caught:
        _cached(lengths, queries=queries)

    assert str(caught.value) == message


def test_a_packed_row_with_pages_reads_its_metadata_columns():
    cells = {"Runtime actual_seq_lengths_values": "2,5", COLUMN: "300,900"}

    queries, keys = paged_row_lengths(
        Row(RowRef("T.csv", ()), cells), tokens=5, count=2, pages=Pages(64, 128, 16), seed=0
    )

    assert (queries.values, keys.values) == ((2, 3), (300, 900))


def test_keys_ignore_spare_axes_and_depend_on_every_length():
    cache = TensorSpec((2048, 128, 1, 64), "BF16")

    assert tensor_key("key", cache, (0,)) == "key=BF16[*,128,1,64]"
    assert lengths_key((1, 1), (5, 6)) == lengths_key([1, 1], [5, 6])
    assert lengths_key((1, 1), (5, 6)) != lengths_key((1, 1), (6, 5))
