"""The task: what it does to text and batches, and that every kind of model really learns with it."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
import torch

from seqloom.batches.collate import collate_pairs
from seqloom.batches.samplers import Position
from seqloom.corpus.examples import Pair
from seqloom.corpus.readers import CorpusSettings
from seqloom.decoding.settings import DecodingSettings
from seqloom.experiment import train as train_recipe
from seqloom.models.recurrent_translator import RecurrentTranslatorSettings
from seqloom.nn.attention import SCORES
from seqloom.nn.cells import CELLS
from seqloom.tasks.translate import Translation, TranslationWork, sampled_features
from seqloom.text.settings import TextSettings
from seqloom.training.journal import read_journal
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


# -- few candidates ---------------------------------------------------------------------------------------------------


def recipe_with(**training: Any) -> dict[str, Any]:
    """Of a grammar whose symbols are many more than a batch says."""
    common = {"batch_tokens": 200, "validation_sentences": 0, "threads": 1, "candidates": 20}
    return {
        "task": "translate",
        "data": {
            "train": {"grammar": "en-es", "split": "train", "size": 400},
            "valid": {"grammar": "en-es", "split": "valid", "size": 40},
        },
        "text": {"tokenizer": "word", "vocabulary_size": None, "joint": False},
        "model": {"kind": "recurrent_translator", "embedding_size": 8, "hidden_size": 12, "dropout": 0.1},
        "training": {**common, **training},
    }


def test_candidates_are_counted_as_they_are_said(
    corpora: tuple[Translation, CorpusSettings, CorpusSettings],
) -> None:
    """The ends of sentences are said too, though they are not stored."""
    task, train, valid = corpora
    work = TranslationWork(task, train, valid, TrainingSettings(steps=1, candidates=4, batch_tokens=300), seed=1)
    counts, seen = torch.ones(len(task.target)), 0  # one more each
    for _, batch in work.batches(Position()):
        said = batch.target_out[batch.target_out != 0]
        counts += torch.bincount(said, minlength=len(counts))
        seen += len(batch)
        if seen == 3000:
            break
    assert work.sampled is not None
    torch.testing.assert_close(work.sampled.shares, (counts / counts.sum()).double(), rtol=1e-5, atol=0)


@pytest.mark.parametrize("candidates", [None, 12, 1000])
def test_as_many_candidates_as_symbols_are_all(
    candidates: int | None, corpora: tuple[Translation, CorpusSettings, CorpusSettings]
) -> None:
    task, train, valid = corpora
    assert len(task.target) == 12
    work = TranslationWork(task, train, valid, TrainingSettings(steps=1, candidates=candidates), seed=1)
    assert work.sampled is None


@pytest.mark.parametrize("plain", [True, False])
def test_candidates_are_for_training_only(
    plain: bool, corpora: tuple[Translation, CorpusSettings, CorpusSettings]
) -> None:
    task, train, valid = corpora
    few, all_symbols = (
        TranslationWork(task, train, valid, TrainingSettings(steps=1, candidates=n, plain=plain), seed=1)
        for n in (1, None)
    )
    torch.manual_seed(1)
    model = task.build(RecurrentTranslatorSettings(embedding_size=5, hidden_size=6, dropout=0.0))
    batch = collate_pairs([task.source.encode("a b")], [task.target.encode("b a")])  # says three symbols of twelve
    model.eval()
    assert few.validate(model).metrics["loss"] == all_symbols.validate(model).metrics["loss"]
    assert float(few.loss(model, batch).nll) == float(all_symbols.loss(model, batch).nll)
    model.train()
    found = {float(few.loss(model, batch).loss.detach()) for _ in range(10)}
    assert len(found) > 1, "other candidates, another estimate"


@pytest.mark.parametrize(
    "change",
    [{}, {"label_smoothing": 0.1}, {"label_smoothing": 0.1, "consistency": 1.0}, {"scheduled_sampling": 0.2}],
    ids=["alone", "smoothed", "consistent", "scheduled"],
)
@pytest.mark.parametrize("plain", [True, False])
def test_few_candidates_train_a_translator(plain: bool, change: dict[str, Any], tmp_path: Path) -> None:
    """The loss over all symbols, which is what validation tells, falls."""
    settings = {"steps": 60, "validate_every": 10, "learning_rate": 5e-3, "plain": plain, **change}
    train_recipe(recipe_with(**settings), tmp_path / "run")
    events = read_journal(tmp_path / "run" / "journal.jsonl")
    found = [event["loss"] for event in events if event["event"] == "validation"]
    assert found[-1] < found[0] - 0.5


@pytest.mark.parametrize("processes", [1, 2])
def test_a_crashed_run_with_candidates_resumes_to_the_same_bits(
    processes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The candidates of a step are drawn again as they were, also where two processes have half of a batch each."""
    settings = {"label_smoothing": 0.1, "consistency": 1.0, "processes": processes}
    recipe = recipe_with(steps=12, validate_every=6, checkpoint_every=1, **settings)
    train_recipe(recipe, tmp_path / "straight")
    original, calls = TranslationWork.loss, 0

    def crashing(self: TranslationWork, model: Any, batch: Any) -> Any:
        nonlocal calls
        calls += model.training
        if calls == 8:
            raise RuntimeError("as a machine might")
        return original(self, model, batch)

    monkeypatch.setattr(TranslationWork, "loss", crashing)
    with pytest.raises(RuntimeError, match="as a machine might"):
        train_recipe(recipe, tmp_path / "broken")
    monkeypatch.setattr(TranslationWork, "loss", original)
    train_recipe(tmp_path / "broken", resume=True)
    one, other = ((tmp_path / name / "model" / "model.safetensors").read_bytes() for name in ("straight", "broken"))
    assert one == other
