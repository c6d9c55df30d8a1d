"""Input values: seeded, realistic, and with the structure kernels depend on."""

from __future__ import annotations

import math

import pytest

from perfcollect_core import (
    Device,
    TensorSpec,
    ValueMaker,
    block_table,
    cumulative,
    expert_choices,
    group_list,
    group_sizes,
    rope_cos_sin,
    sequence_lengths,
    slot_mapping,
    values,
)
from perfcollect_core.errors import CaseError

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch


def maker(seed: int = 1) -> ValueMaker:
    return ValueMaker(seed, Device("cpu", 0, "cpu"))


def spec(*shape: int, dtype: str = "INT32") -> TensorSpec:
    return TensorSpec(tuple(shape), dtype)


@pytest.mark.parametrize("dtype", sorted(values.TORCH_DTYPES))
def test_the_same_seed_draws_the_same_values_of_every_dtype(dtype):
    first, second = (maker(5).by_dtype(spec(33, 7, dtype=dtype)) for _ in range(2))

    assert torch.equal(first, second)
    assert first.dtype == getattr(torch, values.TORCH_DTYPES[dtype])
    assert not torch.equal(first, maker(6).by_dtype(spec(33, 7, dtype=dtype)))


def test_floats_are_standard_normal():
    drawn = maker().by_dtype(spec(256, 256, dtype="BF16")).float()

    assert drawn.mean().item() == pytest.approx(0.0, abs=0.02)
    assert drawn.std().item() == pytest.approx(1.0, abs=0.02)


def test_int8_covers_its_symmetric_range():
    drawn = maker().by_dtype(spec(256, 256, dtype="INT8"))

    assert (drawn.min().item(), drawn.max().item()) == (-127, 127)


def test_scale_and_mean_are_applied():
    drawn = maker().normal(spec(1000, 100, dtype="FLOAT"), scale=0.02, mean=1.0)

    assert drawn.mean().item() == pytest.approx(1.0, abs=0.001)
    assert drawn.std().item() == pytest.approx(0.02, abs=0.001)


def test_uniform_and_log_uniform_stay_in_range():
    even = maker().uniform(spec(10_000, dtype="FLOAT"), 0.5, 2.0)
    scales = maker().log_uniform(spec(10_000, dtype="FLOAT"), 1e-4, 1e-2)

    assert 0.5 <= even.min().item() <= even.max().item() < 2.0
    assert 1e-4 * 0.999 <= scales.min().item() <= scales.max().item() <= 1e-2
    assert scales.log10().mean().item() == pytest.approx(-3.0, abs=0.05)


def test_a_tensor_past_one_block_is_filled_in_full(monkeypatch):
    monkeypatch.setattr(values, "_BLOCK", 101)

    drawn = maker().normal(spec(20, 50, dtype="FLOAT")).flatten()

    assert torch.equal(drawn[:101], drawn[101:202])
    assert drawn[990:].std().item() > 0.1
    assert len(drawn[:101].unique()) == 101


def test_distinct_integers_do_not_repeat_and_stay_in_range():
    for count, limit in ((100, 100), (64, 10_000_000)):
        drawn = maker().distinct(spec(count), limit).tolist()
        assert len(set(drawn)) == count
        assert min(drawn) >= 0
        assert max(drawn) < limit


def test_more_distinct_integers_than_there_are_is_a_case_error():
    with pytest.raises(CaseError) as caught:
        maker().distinct(spec(9), 8)

    assert str(caught.value) == "9 distinct indices asked of a range of 8"


def test_a_dtype_torch_lacks_is_a_case_error():
    with pytest.raises(CaseError) as caught:
        values.torch_dtype("INT4")

    assert str(caught.value).startswith("dtype 'INT4' has no torch equivalent, expected one of BF16, BOOL")


def test_rotary_tables_hold_the_angles_of_their_positions():
    cos, sin = rope_cos_sin(maker(), spec(5, 1, 64, dtype="FLOAT"))

    for position, pair in ((0, 0), (3, 0), (4, 31)):
        angle = position / 10_000 ** (2 * pair / 64)
        assert cos[position, 0, pair].item() == pytest.approx(math.cos(angle), abs=1e-6)
        assert sin[position, 0, pair].item() == pytest.approx(math.sin(angle), abs=1e-6)
    assert torch.equal(cos[..., :32], cos[..., 32:])


def test_interleaved_rotary_tables_repeat_neighbours():
    cos, _ = rope_cos_sin(
        maker(),
        spec(2, 8, dtype="FLOAT"),
        positions=torch.tensor([7, 900]),
        theta=1e6,
        layout="interleaved",
    )

    assert torch.equal(cos[:, 0::2], cos[:, 1::2])
    assert cos[1, 2].item() == pytest.approx(math.cos(900 / 1e6 ** (2 / 8)), abs=1e-5)


def test_single_rotary_tables_repeat_nothing():
    cos, _ = rope_cos_sin(maker(), spec(3, 32, dtype="FLOAT"), layout="single")

    assert cos[2, 31].item() == pytest.approx(math.cos(2 / 10_000 ** (62 / 64)), abs=1e-6)


@pytest.mark.parametrize(
    ("count", "total", "jitter", "maximum"),
    [(1, 7, 0.0, None), (64, 64, 0.5, 1), (7, 1000, 0.9, 160), (3, 10, 0.0, None)],
)
def test_sequence_lengths_add_up_and_stay_within_bounds(count, total, jitter, maximum):
    lengths = sequence_lengths(maker(), count, total, jitter=jitter, maximum=maximum)

    assert len(lengths) == count
    assert sum(lengths) == total
    assert min(lengths) >= 1
    assert max(lengths) <= (maximum or total)


def test_jitter_spreads_lengths_around_the_mean():
    lengths = sequence_lengths(maker(), 100, 100_000, jitter=0.2)

    assert 780 <= min(lengths) < 900
    assert 1100 < max(lengths) <= 1220


def test_lengths_that_cannot_add_up_are_a_case_error():
    with pytest.raises(CaseError) as caught:
        sequence_lengths(maker(), 4, 100, maximum=20)

    assert str(caught.value) == "100 tokens cannot be split over 4 sequences of at most 20, each at least 1"


def test_running_sums_of_lengths():
    assert cumulative((3, 1, 5)) == (3, 4, 9)
    assert cumulative((3, 1, 5), leading_zero=True) == (0, 3, 4, 9)


def test_a_block_table_uses_no_block_twice_and_fills_the_rest():
    table = block_table(maker(), spec(3, 4), blocks=20, lengths=(512, 1, 129), block_size=128, fill=-1)

    used = table[table >= 0].tolist()
    assert [(row >= 0).sum().item() for row in table] == [4, 1, 2]
    assert len(set(used)) == 7
    assert max(used) < 20
    assert used != sorted(used)


def test_a_sequence_longer_than_its_table_is_a_case_error():
    with pytest.raises(CaseError) as caught:
        block_table(maker(), spec(1, 4), blocks=20, lengths=(513,), block_size=128)

    assert str(caught.value) == "block table of shape (1, 4) cannot hold 1 sequences of up to 5 blocks"


def test_slots_of_a_prefill_are_consecutive_inside_a_block_and_distinct():
    slots = slot_mapping(maker(), spec(40), blocks=50, block_size=16, lengths=(30, 10)).tolist()

    assert len(set(slots)) == 40
    assert slots[:16] == list(range(slots[0], slots[0] + 16))
    assert slots[0] % 16 == slots[16] % 16 == slots[30] % 16 == 0
    assert max(slots) < 50 * 16


def test_slots_of_a_decode_lie_in_blocks_of_their_own():
    slots = slot_mapping(maker(), spec(40), blocks=50, block_size=16)

    assert len((slots // 16).unique()) == 40


@pytest.mark.parametrize("spread", ["even", "multinomial", "zipf"])
def test_groups_add_up_and_the_empty_ones_are_empty(spread):
    sizes = group_sizes(maker(), 4096, 64, spread=spread, empty=5)

    assert sum(sizes) == 4096
    assert sizes.count(0) >= 5
    if spread == "even":
        assert max(sizes) - min(s for s in sizes if s) <= 1
    if spread == "zipf":
        assert max(sizes) > 4 * sorted(sizes)[32]


def test_group_lists_are_running_sums_or_counts():
    sums = group_list(maker(), spec(8, dtype="INT64"), 100)
    counts = group_list(maker(), spec(8, dtype="INT64"), 100, kind="counts")

    assert sums.tolist() == list(cumulative(counts.tolist()))
    assert sums[-1].item() == 100


@pytest.mark.parametrize("spread", ["even", "multinomial", "zipf"])
def test_each_token_chooses_distinct_experts(spread):
    chosen = expert_choices(maker(), spec(500, 8), 32, spread=spread, empty=3)

    assert all(len(set(row)) == 8 for row in chosen.tolist())
    load = torch.bincount(chosen.flatten(), minlength=32)
    assert (load == 0).sum().item() == 3
    if spread == "even":
        assert (load[load > 0].max() - load[load > 0].min()).item() <= 1
    if spread == "zipf":
        assert load.max().item() > 3 * load.median().item()


def test_expert_choices_in_chunks_are_all_drawn(monkeypatch):
    from perfcollect_core import routing

    monkeypatch.setattr(routing, "_CHUNK", 64)

    chosen = expert_choices(maker(), spec(100, 4, dtype="INT64"), 16)

    assert chosen.shape == (100, 4)
    assert len(chosen.unique()) == 16


def test_more_experts_a_token_than_there_are_is_a_case_error():
    with pytest.raises(CaseError) as caught:
        expert_choices(maker(), spec(2, 8), 8, empty=1)

    assert str(caught.value) == "8 distinct experts a token of 7"
