"""GloVe: the kernel against its twin and the derivative of eq. 8, the loss against a direct sum, resume to the bit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from seqloom.batches.tokens import TokenCorpus, write_tokens
from seqloom.errors import RunError, UserError
from seqloom.kernels.compiling import can_compile
from seqloom.kernels.glove import glove_steps, plain_glove_steps
from seqloom.text.counts import WordCounts, count_words
from seqloom.vectors import glove
from seqloom.vectors.cooccurrence import count_cooccurrences
from seqloom.vectors.glove import NAMES, PAIR, first_state, prepare_buckets, train_glove, weight_of
from seqloom.vectors.settings import GloveSettings, VectorTrainingSettings

STEPS = [
    pytest.param(glove_steps, marks=pytest.mark.skipif(not can_compile(), reason="no Numba"), id="compiled"),
    pytest.param(plain_glove_steps, id="plain"),
]
SIZE, WORDS = 11, 13


def numbers(seed: int) -> list[np.ndarray]:
    """Random values and sums of squares, in the order the steps take them."""
    random = np.random.default_rng(seed)
    state = first_state(WORDS, SIZE, seed)
    values = [random.normal(0, 0.5, state.tensors[name].shape).astype(np.float32) for name in NAMES]
    return values + [(1 + random.random(value.shape)).astype(np.float32) for value in values]


def pairs(count: int, seed: int) -> list[np.ndarray]:
    random = np.random.default_rng([seed, 1])
    rows, columns = random.integers(0, WORDS, (2, count)).astype(np.int32)
    counts = random.uniform(0.1, 200, count).astype(np.float32)
    return [rows, columns, np.log(counts), weight_of(counts, 100.0, 0.75)]


@pytest.mark.skipif(not can_compile(), reason="no Numba")
def test_the_kernel_does_as_its_twin_at_every_step() -> None:
    fast, plain = numbers(3), numbers(3)
    many = pairs(60, 3)
    for step in range(60):
        one = [part[step : step + 1] for part in many]
        assert glove_steps(*one, 0.05, *fast) == pytest.approx(plain_glove_steps(*one, 0.05, *plain), rel=1e-5)
        for ours, theirs in zip(fast, plain, strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("steps", STEPS)
def test_a_step_by_hand(steps: Any) -> None:
    f = np.float32
    values = [np.array(v, f) for v in ([[2.0]], [[3.0]], [0.5], [0.25], [[1.0]], [[4.0]], [1.0], [1.0])]
    loss = steps(
        np.array([0], np.int32), np.array([0], np.int32), np.array([4.75], f), np.array([0.5], f), 0.1, *values
    )
    # difference = 2 * 3 + 0.5 + 0.25 - 4.75 = 2; rate * weight * difference = 0.1
    assert loss == pytest.approx(0.5 * 2**2)
    expected = [[[2 - 0.3 / 1]], [[3 - 0.2 / 2]], [0.4], [0.15], [[1.09]], [[4.04]], [1.01], [1.01]]
    for value, wanted in zip(values, expected, strict=True):
        np.testing.assert_allclose(value, wanted, rtol=1e-6)


def direct(
    rows: np.ndarray, columns: np.ndarray, targets: np.ndarray, weights: np.ndarray, *values: np.ndarray
) -> float:
    """Eq. 8 as it is written."""
    input, output, input_bias, output_bias = (value.astype(np.float64) for value in values[:4])
    products = (input[rows] * output[columns]).sum(1)
    return float((weights * (products + input_bias[rows] + output_bias[columns] - targets) ** 2).sum())


@pytest.mark.parametrize("steps", STEPS)
def test_the_loss_is_that_of_eq_8_and_a_step_goes_down_its_slope(steps: Any) -> None:
    many = pairs(40, 5)
    values = numbers(5)
    assert steps(*many, 0.0, *values) == pytest.approx(direct(*many, *values), rel=1e-5)
    one = [part[:1] for part in many]
    before, after, rate, small = numbers(5), numbers(5), 1e-3, 1e-4
    for squares in (*before[4:], *after[4:]):
        squares.fill(1.0)
    steps(*one, rate, *after)
    for old, new, place in zip(before[:4], after[:4], (one[0], one[1], one[0], one[1]), strict=True):
        for index in np.ndindex(old[place[0]].shape):
            where = (place[0], *index)
            kept = old[where]
            old[where] = kept + small
            up = direct(*one, *before)
            old[where] = kept - small
            down = direct(*one, *before)
            old[where] = kept
            slope = (up - down) / (2 * small) / 2  # the factor 2 of the square's derivative is in the rate
            assert (kept - new[where]) / rate == pytest.approx(slope, rel=2e-2, abs=2e-3)


def test_weights_by_hand() -> None:
    found = weight_of(np.array([100.0, 1000.0, 50.0, 6.25], np.float32), 100.0, 0.75)
    assert found.tolist() == pytest.approx([1.0, 1.0, 0.5**0.75, 0.125])


def text(folder: Path) -> tuple[TokenCorpus, WordCounts]:
    random = np.random.default_rng(7)
    lines = [" ".join("abcdefghijklm"[number] for number in random.integers(0, WORDS, 9)) for _ in range(60)]
    counts = count_words(lines)
    return write_tokens(lines, counts, str.split, "random", folder=folder / "tokens"), counts


def settings(**more: Any) -> tuple[GloveSettings, VectorTrainingSettings]:
    training = {"epochs": 3, "deterministic": True, **more}
    return GloveSettings(kind="glove", size=SIZE, window=3, x_max=10.0), VectorTrainingSettings(**training)


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(glove, "BUCKET_PAIRS", 40)


def test_every_pair_is_in_one_bucket(tmp_path: Path) -> None:
    corpus, _ = text(tmp_path)
    buckets = prepare_buckets(corpus, WORDS, 3, 1, tmp_path / "pairs", lambda share, figures: None)
    counted = count_cooccurrences(corpus, WORDS, 3, tmp_path / "counted")
    expected = {
        (r, c, v) for block in counted.blocks() for r, c, v in zip(*(part.tolist() for part in block), strict=True)
    }
    found = np.concatenate([np.fromfile(bucket, PAIR) for bucket in buckets])
    assert len(buckets) == -(-len(counted) // 40) > 2
    assert len(found) == len(counted)
    assert {tuple(pair) for pair in found.tolist()} == expected
    assert any(np.diff(np.fromfile(bucket, PAIR)["row"]).max() > 1 for bucket in buckets)


def test_training_is_repeatable_and_the_loss_is_reported_truly(tmp_path: Path) -> None:
    corpus, counts = text(tmp_path)
    told: list[tuple[float, str]] = []
    first = train_glove(
        corpus, counts, *settings(), seed=1, folder=tmp_path / "a", tell=lambda *told_now: told.append(told_now)
    )
    again = train_glove(corpus, counts, *settings(), seed=1, folder=tmp_path / "b")
    other = train_glove(corpus, counts, *settings(), seed=2, folder=tmp_path / "c")
    assert np.array_equal(first.input, again.input)
    assert np.array_equal(first.output, again.output)
    assert first.losses == again.losses
    assert not np.array_equal(first.input, other.input)
    assert len(first.losses) == 3
    assert first.losses[2] < first.losses[0]
    np.testing.assert_array_equal(first.vectors, first.input + first.output)
    assert [share for share, _ in told] == sorted(share for share, _ in told)
    assert told[-1][0] == 1.0
    assert "pairs/s" in told[-1][1]
    assert list((tmp_path / "a").iterdir()) == []  # no checkpoint was due

    # So small a rate changes nothing: what is reported must be eq. 8 of the first state, divided by the pairs.
    still = train_glove(corpus, counts, *settings(epochs=1, learning_rate=1e-9), seed=1, folder=tmp_path / "d")
    (rows, columns, values), *_ = count_cooccurrences(corpus, WORDS, 3, tmp_path / "pairs").blocks()
    state = first_state(WORDS, SIZE, 1)
    tensors = [state.tensors[name] for name in NAMES]
    exact = direct(rows, columns, np.log(values), weight_of(values, 10.0, 0.75), *tensors) / len(rows)
    assert still.losses == [pytest.approx(exact, rel=1e-5)]
    assert still.num_pairs == len(rows)


@pytest.mark.parametrize("stop_after", [1, 4, 5, 9])
def test_resume_is_bit_identical(tmp_path: Path, stop_after: int) -> None:
    corpus, counts = text(tmp_path)
    whole = train_glove(corpus, counts, *settings(), seed=1, folder=tmp_path / "whole")
    seen = 0

    class Killed(Exception):
        pass

    def kill(share: float, figures: str) -> None:
        nonlocal seen
        seen += "loss" in figures
        if seen == stop_after:
            raise Killed

    often = settings(checkpoint_every=1e-9)
    with pytest.raises(Killed):
        train_glove(corpus, counts, *often, seed=1, folder=tmp_path / "cut", tell=kill)
    resumed = train_glove(corpus, counts, *often, seed=1, folder=tmp_path / "cut", resume=True)
    assert np.array_equal(whole.input, resumed.input)
    assert np.array_equal(whole.output, resumed.output)
    assert whole.losses == resumed.losses
    assert len(list((tmp_path / "cut").iterdir())) == 1  # the last checkpoint


def test_a_checkpoint_of_something_else_is_refused(tmp_path: Path) -> None:
    corpus, counts = text(tmp_path)
    train_glove(corpus, counts, *settings(checkpoint_every=1e-9), seed=1, folder=tmp_path)
    with pytest.raises(UserError, match="other text or settings"):
        train_glove(corpus, counts, *settings(), seed=2, folder=tmp_path, resume=True)
    more = train_glove(corpus, counts, *settings(epochs=4), seed=1, folder=tmp_path, resume=True)
    assert len(more.losses) == 4
    (found,) = tmp_path.glob("glove-*")
    (found / "state.safetensors").write_bytes(b"\1")
    with pytest.raises(UserError, match="damaged"):
        train_glove(corpus, counts, *settings(), seed=1, folder=tmp_path, resume=True)


def test_several_threads_learn_too(tmp_path: Path) -> None:
    corpus, counts = text(tmp_path)
    found = train_glove(corpus, counts, *settings(deterministic=False, threads=3), seed=1, folder=tmp_path)
    alone = train_glove(corpus, counts, *settings(), seed=1, folder=tmp_path / "alone")
    assert found.losses == pytest.approx(alone.losses, rel=0.05)


def test_an_explosion_and_a_text_without_neighbours_are_told(tmp_path: Path) -> None:
    corpus, counts = text(tmp_path)
    with pytest.raises(RunError, match="lower training"):
        train_glove(corpus, counts, *settings(learning_rate=1e30), seed=1, folder=tmp_path)
    lonely = write_tokens(["a", "b"], counts, str.split, "lonely", folder=tmp_path)
    with pytest.raises(UserError, match="no word has a neighbour"):
        train_glove(lonely, counts, *settings(), seed=1, folder=tmp_path)
