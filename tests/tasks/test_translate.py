"""The task: what it does to text and batches, and that every kind of model really learns with it."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
import torch

from seqloom.batches.collate import collate_pairs
from seqloom.corpus.examples import Pair
from seqloom.corpus.readers import CorpusSettings
from seqloom.decoding.settings import DecodingSettings
from seqloom.models.recurrent_translator import RecurrentTranslatorSettings
from seqloom.nn.attention import SCORES
from seqloom.nn.cells import CELLS
from seqloom.tasks.translate import Translation, TranslationWork, sampled_features
from seqloom.text.tokenizers import TextSettings
from seqloom.training.loop import fit
from seqloom.training.settings import TrainingSettings

LETTERS = "abcdefgh"


def reversals(path: Path, seed: int, size: int) -> CorpusSettings:
    """A corpus of letters and the same letters backwards."""
    draw = random.Random(seed)
    with path.open("w") as file:
        for _ in range(size):
            letters = [draw.choice(LETTERS) for _ in range(draw.randint(2, 5))]
            file.write(f"{' '.join(letters)}\t{' '.join(reversed(letters))}\n")
    return CorpusSettings(file=str(path))


@pytest.fixture(scope="module")
def corpora(tmp_path_factory: pytest.TempPathFactory) -> tuple[Translation, CorpusSettings, CorpusSettings]:
    folder = tmp_path_factory.mktemp("reverse")
    train, valid = reversals(folder / "train.tsv", 1, 3000), reversals(folder / "valid.tsv", 2, 60)
    text = TextSettings(tokenizer="word", vocabulary_size=None, joint=False)
    return Translation.learn(train, text), train, valid


KINDS: dict[str, dict[str, Any]] = {
    **{f"cell-{cell}": {"cell": cell} for cell in CELLS},
    **{
        f"{order}-{s}": {"cell": "gru", "attention": s, "order": order}
        for s in SCORES
        for order in ("luong", "bahdanau")
    },
    "input-feeding": {"cell": "gru", "input_feeding": True},
    "state": {"cell": "gru", "decoder": "state"},
    "context": {"cell": "gru", "decoder": "context"},
    "deep-tied": {"cell": "gru", "encoder_layers": 2, "decoder_layers": 2, "tie_output": True, "dropout": 0.05},
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", sorted(KINDS))
def test_reversal_is_learned(
    kind: str, corpora: tuple[Translation, CorpusSettings, CorpusSettings], tmp_path: Path
) -> None:
    """Unseen strings come out backwards: at least 9 in 10 exactly, from each cell, score, order and decoder."""
    task, train, valid = corpora
    steps = 480 if kind == "cell-elman_sigmoid" else 240  # its gradients fade soonest
    settings = TrainingSettings(
        steps=steps, batch_tokens=420, learning_rate=1e-2, schedule="cosine", warmup_steps=10, validate_every=steps,
        validation_sentences=60, samples=0, log_every=1000,
    )  # fmt: skip
    torch.manual_seed(3)
    model = task.build(
        RecurrentTranslatorSettings(**{"embedding_size": 16, "hidden_size": 48, "dropout": 0.0, **KINDS[kind]})
    )
    work = TranslationWork(task, train, valid, settings, seed=1)
    fit(model, work, settings, tmp_path)
    answers = task.translate(model, [pair.source for pair in work.pairs], DecodingSettings(method="greedy"))
    right = sum(answer.texts[0] == pair.target for answer, pair in zip(answers, work.pairs, strict=True))
    assert right >= 0.9 * len(work.pairs)


def test_padding_is_left_out_of_the_loss(corpora: tuple[Translation, CorpusSettings, CorpusSettings]) -> None:
    """The loss of a batch is the sum of its sentences' losses, plain or projected."""
    task, *_ = corpora
    torch.manual_seed(1)
    model = task.build(RecurrentTranslatorSettings(embedding_size=5, hidden_size=6)).eval()
    rows = [(task.source.encode(s), task.target.encode(s)) for s in ("a b c d", "e", "f g")]
    for plain in (True, False):
        s = TrainingSettings(steps=1, plain=plain)
        together = float(task.loss(model, collate_pairs(*zip(*rows, strict=True)), s).nll)
        apart = sum(float(task.loss(model, collate_pairs([a], [b]), s).nll) for a, b in rows)
        assert together == pytest.approx(apart, rel=1e-5)


def test_scheduled_sampling_without_chance_is_teacher_forcing(
    corpora: tuple[Translation, CorpusSettings, CorpusSettings],
) -> None:
    task, *_ = corpora
    model = task.build(RecurrentTranslatorSettings(embedding_size=5, hidden_size=6)).eval()
    batch = collate_pairs([task.source.encode("a b c")], [task.target.encode("c b a")])
    assert torch.allclose(sampled_features(model, batch, 0.0), model(batch), atol=1e-6)
    own = sampled_features(model, batch, 1.0)  # reads what it says itself
    first = int(model.output(own[0, 0]).argmax())
    forced = collate_pairs([task.source.encode("a b c")], [[first, *task.target.encode("b a")]])
    assert torch.allclose(own[:, 1], model(forced)[:, 1], atol=1e-6)


def test_alignment_weights_are_word_by_word(corpora: tuple[Translation, CorpusSettings, CorpusSettings]) -> None:
    task, *_ = corpora
    model = task.build(RecurrentTranslatorSettings(embedding_size=5, hidden_size=6)).eval()
    pairs = [Pair("a b c", "c b", ((0, 0),)), Pair("d", "d d d d", ((0, 0), (0, 1)))]
    first, second = task.alignment_weights(model, pairs)
    assert first.shape == (2, 3)
    assert second.shape == (4, 1)
    error = task.alignment_error(model, pairs)
    assert error is not None
    assert 0 <= error <= 1


def test_joint_and_separate_vocabularies(tmp_path: Path) -> None:
    corpus = reversals(tmp_path / "x.tsv", 1, 50)
    joint = Translation.learn(corpus, TextSettings(tokenizer="character", vocabulary_size=None))
    assert joint.source is joint.target
    joint.save(tmp_path)
    loaded = Translation.load(tmp_path)
    assert loaded.source is loaded.target
    assert loaded.source.encode("a b") == joint.source.encode("a b")


def test_text_dropout_trains_on_several_cuts_and_validates_on_the_usual_one() -> None:
    text = TextSettings(vocabulary_size=300, dropout=0.2, segmentations=3)
    train = CorpusSettings(grammar="en-es", split="train", size=200)
    task = Translation.learn(train, text)
    usual, cut = task.encode(train), task.encode_for_training(train, seed=1)
    assert len(cut.lengths) == 3 * len(usual.lengths)
    for row in range(0, 200, 20):
        copies = [cut.target[row + 200 * copy].tolist() for copy in range(3)]
        assert {task.target.decode(ids) for ids in copies} == {task.target.decode(usual.target[row].tolist())}
    assert cut.lengths[:].sum() > 3 * usual.lengths[:].sum()
    work = TranslationWork(task, train, train, TrainingSettings(steps=1), seed=1)
    assert len(work.train.lengths) == 600
    assert len(work.valid.lengths) == 200
