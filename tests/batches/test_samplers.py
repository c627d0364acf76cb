"""Every example once an epoch, within budget, in an order that only seed and epoch decide."""

from __future__ import annotations

from itertools import islice, pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from seqloom.batches import samplers
from seqloom.batches.samplers import BucketSampler, Position, order_by_length, padding_share, sorted_batches

quick = settings(deadline=None, max_examples=50)
lengths_of_pairs = st.integers(0, 53).flatmap(lambda n: arrays(np.int64, (n, 2), elements=st.integers(1, 29)))


def epoch_of(sampler: BucketSampler, epoch: int) -> list[np.ndarray]:
    """All batches of an epoch."""
    return [batch for number in range(sampler.num_pools) for batch in sampler.pool(epoch, number)]


def captions(count: int, seed: int = 5) -> np.ndarray:
    """Lengths of both sides as in image captions: 4 to 40 words, the sides alike but not equal; end symbol included."""
    random = np.random.default_rng(seed)
    source = np.clip(random.normal(13, 4, count), 4, 40)
    target = np.clip(source * random.normal(1.0, 0.15, count) + 1, 3, 44)
    return np.stack([source, target], 1).astype(np.int64) + 1


@quick
@given(lengths_of_pairs, st.integers(8, 97), st.integers(0, 2**63 - 1), st.one_of(st.none(), st.integers(2, 31)))
def test_every_kept_example_once_and_within_budget(
    lengths: np.ndarray, budget: int, seed: int, max_length: int | None
) -> None:
    sampler = BucketSampler(lengths, batch_tokens=budget, seed=seed, max_length=max_length)
    limit = budget if max_length is None else min(budget, max_length)
    kept = [i for i, pair in enumerate(lengths.tolist()) if max(pair) <= limit and min(pair) > 1]
    assert sampler.num_examples == len(kept)
    assert sampler.num_dropped == len(lengths) - len(kept)
    for epoch in (0, 3):
        batches = epoch_of(sampler, epoch)
        assert sorted(i for batch in batches for i in batch) == kept
        for batch in batches:
            assert len(batch) > 0
            assert len(batch) * lengths[batch].max() <= budget


@quick
@given(lengths_of_pairs, st.integers(0, 100), st.integers(0, 9))
def test_an_epoch_is_a_function_of_seed_and_epoch(lengths: np.ndarray, seed: int, epoch: int) -> None:
    one, two = (epoch_of(BucketSampler(lengths, batch_tokens=61, seed=seed), epoch) for _ in range(2))
    assert [batch.tolist() for batch in one] == [batch.tolist() for batch in two]


def test_epochs_and_seeds_differ() -> None:
    lengths = captions(211)

    def order(seed: int, epoch: int) -> list[int]:
        return [i for b in epoch_of(BucketSampler(lengths, batch_tokens=199, seed=seed), epoch) for i in b.tolist()]

    orders = [order(seed, epoch) for seed in (1, 2) for epoch in (0, 1)]
    assert all(a != b for i, a in enumerate(orders) for b in orders[i + 1 :])


@pytest.fixture
def _small_pools(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(samplers, "POOL_BATCHES", 3)
    monkeypatch.setattr(samplers, "BLOCK", 4)
    monkeypatch.setattr(samplers, "AT_ONCE", 10)


@quick
@given(lengths_of_pairs, st.integers(8, 97), st.integers(1, 5), st.integers(1, 9))
def test_in_many_pools_every_kept_example_still_comes_once(
    lengths: np.ndarray, budget: int, pool: int, block: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(samplers, "POOL_BATCHES", pool)
        patch.setattr(samplers, "BLOCK", block)
        patch.setattr(samplers, "AT_ONCE", 7)
        sampler = BucketSampler(lengths, batch_tokens=budget, seed=3)
        kept = [i for i, pair in enumerate(lengths.tolist()) if max(pair) <= budget and min(pair) > 1]
        assert sampler.num_examples == len(kept)
        batches = epoch_of(sampler, 5)
        assert sorted(i for batch in batches for i in batch) == kept
        assert all(len(batch) * lengths[batch].max() <= budget for batch in batches)


@pytest.mark.usefixtures("_small_pools")
def test_pools_take_blocks_from_everywhere() -> None:
    sampler = BucketSampler(captions(400), batch_tokens=199, seed=7)
    assert sampler.num_pools > 3
    first = np.concatenate(sampler.pool(0, 0))
    assert first.min() < 100
    assert first.max() > 300
    assert set(np.concatenate(sampler.pool(1, 0)).tolist()) != set(first.tolist())


@pytest.mark.parametrize("small", [False, True])
def test_resuming_from_any_position_yields_exactly_the_tail(small: bool, request: pytest.FixtureRequest) -> None:
    if small:
        request.getfixturevalue("_small_pools")
    sampler = BucketSampler(captions(67), batch_tokens=83, seed=7)
    assert (sampler.num_pools > 1) == small
    first, second = len(epoch_of(sampler, 0)), len(epoch_of(sampler, 1))
    whole = [(position, batch.tolist()) for position, batch in islice(sampler.batches_from(Position()), first + second)]
    assert [batch for _, batch in whole] == [b.tolist() for epoch in (0, 1) for b in epoch_of(sampler, epoch)]
    assert [position for position, _ in whole][first - 1] == Position(1)
    assert whole[-1][0] == Position(2)
    shares = [sampler.epochs_done(position) for position, _ in whole]
    assert shares == sorted(shares)
    assert shares[-1] == 2.0
    fresh = BucketSampler(captions(67), batch_tokens=83, seed=7)
    for done, (position, _) in enumerate(whole[:-1], 1):
        rest = islice(fresh.batches_from(position), len(whole) - done)
        assert [(p, b.tolist()) for p, b in rest] == whole[done:]


def test_batches_per_epoch() -> None:
    sampler = BucketSampler(captions(500), batch_tokens=199, seed=7)
    assert sampler.batches_per_epoch() == len(epoch_of(sampler, 0))


@pytest.mark.usefixtures("_small_pools")
def test_batches_per_epoch_of_many_pools_is_an_estimate() -> None:
    sampler = BucketSampler(captions(500), batch_tokens=199, seed=7)
    assert sampler.batches_per_epoch() == pytest.approx(len(epoch_of(sampler, 0)), rel=0.3)


def test_little_padding_on_captions() -> None:
    lengths = captions(29_000)
    batches = epoch_of(BucketSampler(lengths, batch_tokens=2_048, seed=3), 0)
    assert padding_share(batches, lengths).max() < 0.04
    unsorted = np.array_split(np.arange(len(lengths)), len(batches))
    assert padding_share(unsorted, lengths[:, 1]) > 0.3


def test_order_by_length_by_hand() -> None:
    lengths = np.array([[3, 2], [1, 3], [2, 2], [2, 1], [3, 3], [1, 2]])
    assert order_by_length(lengths).tolist() == [3, 2, 5, 1, 4, 0]  # up to 2: excess falls; up to 3: it rises


def test_padding_share_by_hand() -> None:
    lengths = np.array([2, 4, 3])
    assert padding_share([np.array([0, 1]), np.array([2])], lengths) == pytest.approx(1 - 9 / 11)
    assert padding_share([np.array([2])], lengths) == 0


def test_nothing_to_sample() -> None:
    sampler = BucketSampler(np.ones((5, 2), np.int64), batch_tokens=31, seed=0)
    assert sampler.num_dropped == 5
    assert epoch_of(sampler, 0) == []
    assert epoch_of(BucketSampler(np.empty((0, 2), np.int64), batch_tokens=31, seed=0), 0) == []


@quick
@given(arrays(np.int64, st.integers(0, 53), elements=st.integers(0, 97)), st.integers(1, 61))
def test_sorted_batches_cover_everything_once(lengths: np.ndarray, budget: int) -> None:
    batches = sorted_batches(lengths, budget)
    flat = [i for batch in batches for i in batch.tolist()]
    assert sorted(flat) == list(range(len(lengths)))
    assert lengths[flat].tolist() == sorted(lengths.tolist(), reverse=True)
    for batch in batches:
        assert len(batch) == 1 or len(batch) * lengths[batch].max() <= budget
    assert all(a < b for a, b in pairwise(flat) if lengths[a] == lengths[b])
