"""Training of word vectors: the formulas, the true loss, stopping and going on, and that it learns."""

from __future__ import annotations

import math
import os
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seqloom.errors import RunError, UserError
from seqloom.kernels.compiling import can_compile
from seqloom.vectors import reference, word2vec
from seqloom.vectors.reference import Random
from seqloom.vectors.settings import SubwordSettings, VectorTrainingSettings, Word2VecSettings
from seqloom.vectors.subwords import buckets_of
from seqloom.vectors.word2vec import CHECKPOINT, Progressed, Trained, cut, make_plan, train_word2vec

GROUPS = (("apple", "pear", "plum", "quince"), ("iron", "zinc", "lead", "gold"), ("oak", "elm", "ash", "yew"))
SUBWORDS = SubwordSettings(shortest=3, longest=4, buckets=211)
KINDS = ("skipgram", "cbow")
OBJECTIVE_NAMES = ("negative_sampling", "hierarchical_softmax", "softmax")


@dataclass(frozen=True)
class Counted:
    words: tuple[str, ...]
    counts: np.ndarray


class InMemory:
    """A text with the methods of a TokenCorpus; `meanwhile` is called with the number of each block handed out."""

    def __init__(self, sentences: list[list[int]], meanwhile: Callable[[int], None] | None = None) -> None:
        self.tokens = np.array([token for words in sentences for token in [*words, -1]], np.int32)
        self.tokens.flags.writeable = False  # as a mapped file has it
        self.num_tokens, self.num_words = len(self.tokens), int((self.tokens >= 0).sum())
        self.meanwhile, self.handed_out = meanwhile, 0

    def blocks(self, size: int, start: int = 0) -> Iterator[tuple[int, np.ndarray]]:
        while start < self.num_tokens:
            end = min(self.num_tokens, start + size)
            while self.tokens[end - 1] >= 0:
                end += 1
            self.handed_out += 1
            if self.meanwhile is not None:
                self.meanwhile(self.handed_out)
            yield start, self.tokens[start:end]
            start = end


def sentences_of_groups(count: int, seed: int = 5) -> tuple[Counted, list[list[int]]]:
    """Each sentence has words of one group only; numbers are by frequency, as in a WordCounts."""
    random = np.random.default_rng(seed)
    lines = [list(random.choice(GROUPS[random.integers(3)], 7)) for _ in range(count)]
    words, counts = np.unique(np.concatenate(lines), return_counts=True)
    order = np.argsort(-counts, kind="stable")
    index = {str(words[number]): place for place, number in enumerate(order)}
    counted = Counted(tuple(index), counts[order].astype(np.int64))
    return counted, [[index[str(word)] for word in line] for line in lines]


COUNTED, SENTENCES = sentences_of_groups(60)


@pytest.fixture
def heard_interrupts() -> Iterator[None]:
    """Ctrl-C raises KeyboardInterrupt, also where whoever started the tests has it ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(word2vec, "PART_TOKENS", 40)
    monkeypatch.setattr(word2vec, "SOFTMAX_PART_TOKENS", 40)
    monkeypatch.setattr(word2vec, "PARTS_IN_BLOCK", 3)


def model_of(kind: str = "skipgram", objective: str = "negative_sampling", subwords: bool = False) -> Word2VecSettings:
    return Word2VecSettings(
        kind=kind, size=12, window=3, objective=objective, negatives=4, subwords=SUBWORDS if subwords else None
    )


def train(
    model: Word2VecSettings,
    corpus: InMemory | None = None,
    *,
    folder: Path | None = None,
    resume: bool = False,
    tell: Callable[[Progressed], None] | None = None,
    seed: int = 3,
    **training: object,
) -> Trained:
    chosen = {"epochs": 2, "deterministic": True, "learning_rate": 0.2, "subsample": 0.05, **training}
    return train_word2vec(
        corpus or InMemory(SENTENCES),
        COUNTED,
        model,
        VectorTrainingSettings(**chosen),
        seed=seed,
        folder=folder,
        resume=resume,
        tell=tell,
    )


def same_bits(one: Trained, other: Trained) -> bool:
    pairs = [(one.input, other.input), (one.output, other.output)]
    if one.buckets is not None and other.buckets is not None:
        pairs.append((one.buckets, other.buckets))
    return all(np.array_equal(a, b) for a, b in pairs) and one.losses == other.losses


# The draws


def test_chance_to_stay_by_hand() -> None:
    """Shares 0.9 and 0.1 at t = 0.1: (√9 + 1) / 9 and, above 1, always."""
    limits = reference.keep_limits(np.array([90, 10]), 0.1)
    assert limits.tolist() == [int(4 / 9 * 2**32), 2**32]
    assert reference.keep_limits(np.array([90, 10]), 0.0).tolist() == [2**32, 2**32]


@given(st.lists(st.floats(1e-3, 1e6), min_size=1, max_size=40))
def test_the_noise_table_holds_the_distribution(weights: list[float]) -> None:
    shares, others = reference.alias_table(np.array(weights))
    chances = np.zeros(len(weights))
    for slot in range(len(weights)):
        own = int(shares[slot]) / 2**32
        chances[slot] += own / len(weights)
        chances[others[slot]] += (1 - own) / len(weights)
    np.testing.assert_allclose(chances, np.array(weights) / np.sum(weights), atol=1e-8)


def test_windows_are_uniform_from_one_to_the_widest() -> None:
    plan, _ = make_plan(COUNTED, model_of(), 0.0)
    _, spans, _ = reference.draw_sentence(plan, [0] * 9000, Random(8))
    shares = np.bincount(spans, minlength=5) / 9000
    assert shares[0] == shares[4] == 0.0
    np.testing.assert_allclose(shares[1:4], 1 / 3, atol=0.02)  # four standard deviations


def test_noise_follows_frequency_to_the_power() -> None:
    counted = Counted(("a", "b", "c"), np.array([16, 1, 1]))
    plan, _ = make_plan(counted, model_of().model_copy(update={"noise_power": 0.5}), 0.0)
    random = Random(1)
    drawn = np.bincount([reference.draw_noise(plan, random) for _ in range(6000)], minlength=3) / 6000
    np.testing.assert_allclose(drawn, [4 / 6, 1 / 6, 1 / 6], atol=0.025)


@given(st.lists(st.integers(0, 9), max_size=12), st.integers(1, 20))
def test_cutting_loses_nothing_and_prefers_the_ends_of_sentences(lengths: list[int], size: int) -> None:
    block = np.array([token for length in lengths for token in [*range(length), -1]], np.int32)
    parts = list(cut(block, size))
    assert np.array_equal(np.concatenate([*parts, np.zeros(0, np.int32)]), block)
    assert all(0 < len(part) <= size for part in parts)
    assert all(part[-1] == -1 or (part[:-1] >= 0).all() for part in parts)


# The formulas


def numeric_gradient(loss: Callable[[], float], values: np.ndarray) -> np.ndarray:
    gradient = np.zeros_like(values)
    for place in np.ndindex(values.shape):
        old = values[place]
        values[place] = old + 1e-5
        above = loss()
        values[place] = old - 1e-5
        gradient[place] = (above - loss()) / 2e-5
        values[place] = old
    return gradient


def test_an_update_follows_the_gradient_of_the_loss() -> None:
    random = np.random.default_rng(2)
    hidden, outputs = random.normal(size=(3, 5)), random.normal(size=(6, 5))
    targets, signs = np.array([4, 1, 1, 0]), np.array([1.0, -1.0, -1.0, -1.0])

    def loss() -> float:
        scores = (hidden @ outputs.T)[:, targets]
        return float(-np.log(1 / (1 + np.exp(-scores * signs))).sum())

    into_hidden, into_outputs, before = numeric_gradient(loss, hidden), numeric_gradient(loss, outputs), loss()
    changed = outputs.copy()
    errors, said = reference.update_outputs(hidden, changed, targets, signs, 0.1)
    assert said == pytest.approx(before)
    np.testing.assert_allclose(errors, -0.1 * into_hidden, atol=1e-6)
    np.testing.assert_allclose(changed - outputs, -0.1 * into_outputs, atol=1e-6)


def test_the_full_softmax_follows_its_gradient_too() -> None:
    random = np.random.default_rng(2)
    hidden, outputs = random.normal(size=5), random.normal(size=(6, 5))

    def loss() -> float:
        raised = np.exp(outputs @ hidden)
        return float(-np.log(raised[2] / raised.sum()))

    into_hidden, into_outputs, before = numeric_gradient(loss, hidden), numeric_gradient(loss, outputs), loss()
    changed = outputs.copy()
    errors, said = reference.update_all_outputs(hidden, changed, 2, 0.1)
    assert said == pytest.approx(before)
    np.testing.assert_allclose(errors, -0.1 * into_hidden, atol=1e-6)
    np.testing.assert_allclose(changed - outputs, -0.1 * into_outputs, atol=1e-6)


def test_the_paths_of_all_words_share_out_one() -> None:
    plan, _ = make_plan(COUNTED, model_of(objective="hierarchical_softmax"), 0.0)
    random = np.random.default_rng(0)
    hidden, outputs = random.normal(size=(1, 12)), random.normal(size=(len(COUNTED.words) - 1, 12))
    chances = []
    for word in range(len(COUNTED.words)):
        chosen = reference.choose_outputs(plan, word, [])
        chances.append(math.exp(-reference.update_outputs(hidden, outputs.copy(), *chosen, 0.0)[1]))
    assert sum(chances) == pytest.approx(1.0)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("objective", OBJECTIVE_NAMES)
@pytest.mark.parametrize("subwords", [False, True])
def test_the_loss_is_the_mean_over_all_predictions(kind: str, objective: str, subwords: bool) -> None:
    """Counted directly: every pair (or window) of the draws, its probability in double precision, nothing learned."""
    plan, used = make_plan(COUNTED, model_of(kind, objective, subwords), 0.05)
    random, words = np.random.default_rng(4), len(COUNTED.words)
    inputs = random.normal(0, 0.5, (words + len(used), 16)).astype(np.float32)
    outputs = random.normal(0, 0.5, (words, 16)).astype(np.float32)
    draws, losses = Random(99), []
    for line in SENTENCES[:9]:
        kept, spans, noise = reference.draw_sentence(plan, line, draws)
        for middle, word in enumerate(kept):
            around = [(kept[place], place) for place in range(len(kept)) if 0 < abs(place - middle) <= spans[middle]]
            rows = [
                plan.piece_rows[plan.piece_starts[w] : plan.piece_starts[w + 1]] if subwords else np.array([w])
                for w, _ in around
            ]
            if kind == "cbow":
                rows = [np.concatenate(rows)] if rows else []
            for number, some in enumerate(rows):
                scores = outputs.astype(np.float64) @ inputs[some].astype(np.float64).mean(0)
                if objective == "negative_sampling":
                    after = (
                        kind == "skipgram" and not subwords and around[number][1] > middle
                    )  # each side has noise of its own
                    drawn = noise[middle][plan.negatives :] if after else noise[middle][: plan.negatives]
                    wrong = [other for other in drawn if other != word]
                    losses.append(np.log1p(np.exp(-scores[word])) + np.log1p(np.exp(scores[wrong])).sum())
                elif objective == "softmax":
                    losses.append(np.log(np.exp(scores).sum()) - scores[word])
                else:
                    path = slice(plan.path_starts[word], plan.path_starts[word + 1])
                    losses.append(np.log1p(np.exp(-plan.path_signs[path] * scores[plan.path_nodes[path]])).sum())
    tokens = InMemory(SENTENCES[:9]).tokens.copy()
    for train_part in trainers():
        loss, predictions = train_part(plan, tokens, np.uint64(99), 0.0, 0.0, inputs.copy(), outputs.copy())
        assert predictions == len(losses)
        assert loss / predictions == pytest.approx(np.mean(losses), rel=1e-5)


def trainers() -> list[Callable[..., tuple[float, int]]]:
    if not can_compile():
        return [reference.train_part]
    from seqloom.kernels.word2vec import train_part

    return [reference.train_part, train_part]


# The training


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("objective", OBJECTIVE_NAMES)
@pytest.mark.parametrize("subwords", [False, True])
def test_it_learns_who_goes_with_whom(kind: str, objective: str, subwords: bool) -> None:
    trained = train(model_of(kind, objective, subwords), epochs=25, subsample=0.0)
    assert trained.losses[-1] < 0.9 * trained.losses[0]
    vectors = trained.input.copy()
    if subwords:
        assert trained.buckets is not None
        rows = [trained.buckets[buckets_of(word, SUBWORDS)] for word in COUNTED.words]
        vectors = np.stack([np.vstack([own, some]).mean(0) for own, some in zip(vectors, rows, strict=True)])
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    likeness = vectors @ vectors.T - 2 * np.eye(len(vectors))
    group = [next(number for number, words in enumerate(GROUPS) if word in words) for word in COUNTED.words]
    nearest = likeness.argmax(1)
    assert [group[other] for other in nearest] == group


@pytest.mark.skipif(not can_compile(), reason="needs Numba")
@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("subwords", [False, True])
def test_without_numba_the_same_vectors_come_out(kind: str, subwords: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    fast = train(model_of(kind, subwords=subwords))
    monkeypatch.setattr(word2vec, "can_compile", lambda: False)
    plain = train(model_of(kind, subwords=subwords))
    assert fast.losses == pytest.approx(plain.losses, rel=1e-4)
    np.testing.assert_allclose(fast.input, plain.input, rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(fast.output, plain.output, rtol=1e-3, atol=1e-4)


@pytest.mark.usefixtures("small_blocks", "heard_interrupts")
@pytest.mark.parametrize(
    ("kind", "objective", "subwords"),
    [("skipgram", "negative_sampling", True), ("cbow", "hierarchical_softmax", False)],
)
@pytest.mark.parametrize("at", [1, 3, 6, 8])
def test_a_stopped_training_goes_on_to_the_same_bits(
    kind: str, objective: str, subwords: bool, at: int, tmp_path: Path
) -> None:
    """Ctrl-C at some block: once the first, the last of an epoch, one of the second epoch."""

    def interrupt(number: int) -> None:
        if number == at:
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.3)  # the main thread hears it meanwhile

    model = model_of(kind, objective, subwords)
    whole = train(model)
    with pytest.raises(KeyboardInterrupt):
        train(model, InMemory(SENTENCES, interrupt), folder=tmp_path)
    assert (tmp_path / CHECKPOINT / "state.json").exists()
    resumed = train(model, folder=tmp_path, resume=True)
    assert same_bits(whole, resumed)
    assert resumed.words_seen == whole.words_seen == 2 * InMemory(SENTENCES).num_words


@pytest.mark.usefixtures("small_blocks")
def test_checkpoints_change_nothing(tmp_path: Path) -> None:
    slow = InMemory(SENTENCES, lambda _: time.sleep(0.15))
    assert same_bits(train(model_of()), train(model_of(), slow, folder=tmp_path, checkpoint_every=1e-6))
    assert (tmp_path / CHECKPOINT / "vectors.safetensors").exists()
    again = train(model_of(), folder=tmp_path, resume=True)  # from the last of them
    assert same_bits(train(model_of()), again)


@pytest.mark.usefixtures("small_blocks")
def test_a_checkpoint_of_something_else_is_refused_by_name(tmp_path: Path) -> None:
    slow = InMemory(SENTENCES, lambda _: time.sleep(0.15))
    train(model_of(), slow, folder=tmp_path, checkpoint_every=1e-6)
    with pytest.raises(UserError, match=r"model.kind skipgram, now cbow"):
        train(model_of("cbow"), folder=tmp_path, resume=True)
    with pytest.raises(UserError, match=r"seed 3, now 4"):
        train(model_of(), folder=tmp_path, resume=True, seed=4)
    (tmp_path / CHECKPOINT / "vectors.safetensors").write_bytes(b"nothing")
    with pytest.raises(UserError, match="damaged"):
        train(model_of(), folder=tmp_path, resume=True)
    train(model_of(), folder=tmp_path)  # a new start does not look at it, and removes it
    assert not (tmp_path / CHECKPOINT).exists()


@pytest.mark.usefixtures("small_blocks", "heard_interrupts")
def test_several_threads_do_every_word_once_an_epoch_and_go_on_after_a_stop(tmp_path: Path) -> None:
    def interrupt(number: int) -> None:
        if number == 3:
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.3)

    words = InMemory(SENTENCES).num_words
    with pytest.raises(KeyboardInterrupt):
        train(model_of(), InMemory(SENTENCES, interrupt), folder=tmp_path, deterministic=False, threads=3, epochs=8)
    reports: list[Progressed] = []
    resumed = train(
        model_of(), folder=tmp_path, resume=True, deterministic=False, threads=2, epochs=8, tell=reports.append
    )
    assert resumed.words_seen == 8 * words == reports[-1].words_done == reports[-1].words_in_all
    assert resumed.losses[-1] < 0.9 * resumed.losses[0]


def test_reports_say_how_far_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(word2vec, "TELL_EVERY", 0.0)
    reports: list[Progressed] = []
    trained = train(model_of(), tell=reports.append, epochs=1)
    last = reports[-1]
    assert (last.words_done, last.compiling) == (InMemory(SENTENCES).num_words, False)
    assert last.learning_rate == pytest.approx(0.2 * 1e-4)
    assert last.words_per_second > 0
    told = [report.loss for report in reports if not math.isnan(report.loss)]
    assert told == pytest.approx([trained.losses[0]])  # one part, so one report has a loss


def test_the_first_report_says_that_it_compiles(monkeypatch: pytest.MonkeyPatch) -> None:
    if not can_compile():
        pytest.skip("needs Numba")
    monkeypatch.setattr(word2vec, "QUICK", 0.0)
    reports: list[Progressed] = []
    train(model_of(), tell=reports.append, epochs=1)
    assert [report.compiling for report in reports][-1] is False
    assert {report.words_done for report in reports if report.compiling} <= {0}


def test_the_learning_rate_falls_straight_to_a_ten_thousandth() -> None:
    work = word2vec.Training(
        InMemory(SENTENCES), COUNTED, model_of("cbow"), VectorTrainingSettings(epochs=2), 0, None, None
    )
    words = 2 * InMemory(SENTENCES).num_words
    assert [work.rate_at(0), work.rate_at(words // 2), work.rate_at(words)] == pytest.approx(
        [0.05, 0.05 * (1 - 0.9999 / 2), 0.05e-4]
    )


def test_first_vectors() -> None:
    plain = word2vec.Training(InMemory(SENTENCES), COUNTED, model_of(), VectorTrainingSettings(), 0, None, None)
    assert plain.inputs.shape == (12, 16)
    assert 0.4 / 12 < np.abs(plain.inputs[:, :12]).max() <= 0.5 / 12
    assert not plain.inputs[:, 12:].any()
    assert not plain.outputs.any()
    pieces = word2vec.Training(
        InMemory(SENTENCES), COUNTED, model_of(subwords=True), VectorTrainingSettings(), 0, None, None
    )
    assert 0.8 / 12 < np.abs(pieces.inputs).max() <= 1 / 12


def test_pieces_share_rows_as_their_buckets_say() -> None:
    plan, used = make_plan(COUNTED, model_of(subwords=True), 0.0)
    for number, word in enumerate(COUNTED.words):
        rows = plan.piece_rows[plan.piece_starts[number] : plan.piece_starts[number + 1]]
        assert rows[0] == number
        assert used[rows[1:] - len(COUNTED.words)].tolist() == buckets_of(word, SUBWORDS).tolist()
    assert len(set(used.tolist())) == len(used)


def test_buckets_without_a_word_keep_their_first_values_and_others_are_trained() -> None:
    trained = train(model_of(subwords=True), epochs=1)
    assert trained.buckets is not None
    assert trained.buckets.shape == (211, 12)
    assert np.isfinite(trained.buckets).all()
    _, used = make_plan(COUNTED, model_of(subwords=True), 0.0)
    unused = sorted(set(range(211)) - set(used.tolist()))
    assert unused
    assert np.abs(trained.buckets[unused]).max() <= 1 / 12


def test_numbers_that_explode_are_an_error() -> None:
    with pytest.raises(RunError, match=r"lower training.learning_rate \(it was 1e\+30\)"):
        train(model_of(), learning_rate=1e30)


def test_no_words_is_an_error() -> None:
    with pytest.raises(UserError, match="no word"):
        train_word2vec(
            InMemory([]), COUNTED, model_of(), VectorTrainingSettings(), seed=0, folder=None, resume=False, tell=None
        )


def test_a_text_made_for_other_words_is_an_error() -> None:
    with pytest.raises(UserError, match="has word 12 at 0, but there are only 12 words"):
        train(model_of(), InMemory([[3, 12, 4]]))


@pytest.mark.skipif(not can_compile(), reason="needs Numba")
def test_every_setting_runs_the_same_compiled_code() -> None:
    """Whatever the model and however the text is held, nothing is compiled a second time."""
    from seqloom.kernels.word2vec import train_part

    train(model_of(), epochs=1)
    before = len(train_part.signatures)
    for kind in KINDS:
        train(model_of(kind, "hierarchical_softmax", True), epochs=1)
        train(model_of(kind, "softmax"), epochs=1)
    assert len(train_part.signatures) == before


@settings(max_examples=30)
@given(st.integers(0, 2**63), st.integers(0, 50), st.integers(0, 2**40))
def test_seeds_of_neighbouring_parts_have_nothing_in_common(seed: int, epoch: int, offset: int) -> None:
    seeds = {word2vec.part_seed(seed, e, o) for e in (epoch, epoch + 1) for o in (offset, offset + 1)}
    assert len(seeds) == 4
