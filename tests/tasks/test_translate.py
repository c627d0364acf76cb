"""The task: what it does to text and batches, and that every kind of model really learns with it."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
import torch

from seqloom.batches.collate import Batch
from seqloom.batches.samplers import Position
from seqloom.corpus.examples import Pair
from seqloom.decoding.settings import DecodingSettings
from seqloom.experiment import train as train_recipe
from seqloom.nn.attention import SCORES
from seqloom.nn.cells import CELLS
from seqloom.recipe import load_recipe
from seqloom.targets.text import sampled_features, text_loss
from seqloom.tasks.supervised import ExampleWork
from seqloom.tasks.translate import Translation
from seqloom.training.journal import read_journal
from seqloom.training.loop import fit
from seqloom.training.settings import TrainingSettings

LETTERS = "abcdefgh"
SMALL = {"embedding_size": 5, "hidden_size": 6}


def reversals(path: Path, seed: int, size: int) -> dict[str, str]:
    """A corpus of letters and the same letters backwards."""
    draw = random.Random(seed)
    with path.open("w") as file:
        for _ in range(size):
            letters = [draw.choice(LETTERS) for _ in range(draw.randint(2, 5))]
            file.write(f"{' '.join(letters)}\t{' '.join(reversed(letters))}\n")
    return {"file": str(path)}


def recipe_of(data: dict[str, Any], model: dict[str, Any], text: dict[str, Any] | None = None, **training: Any) -> Any:
    words = {"tokenizer": "word", "vocabulary_size": None, "joint": False}
    values = {
        "data": data,
        "text": words if text is None else text,
        "model": {"kind": "recurrent_translator", **model},
        "training": {"steps": 1, **training},
    }
    return load_recipe(values)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("reverse")
    return {"train": reversals(folder / "train.tsv", 1, 3000), "valid": reversals(folder / "valid.tsv", 2, 60)}


@pytest.fixture(scope="module")
def task(data: dict[str, Any]) -> Translation:
    return Translation.learn(recipe_of(data, SMALL), lambda text: None)


def built(task: Translation, data: dict[str, Any], **model: Any) -> Any:
    return task.build(recipe_of(data, {**SMALL, **model}).model).eval()


def batch_of(task: Translation, *pairs: tuple[str, str]) -> Batch:
    """A batch of texts."""
    targets = task.target.tokenizer.encode_many([target for _, target in pairs])
    return Batch(task.source.batch([source for source, _ in pairs]), task.target.collate({"ids": targets}))


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
    "transformer-encoder": {
        "kind": "encoder_decoder",
        "encoder": {"kind": "transformer", "size": 32, "num_heads": 2, "feed_forward_size": 48, "num_layers": 1},
        "decoder": {"kind": "recurrent", "cell": "gru", "embedding_size": 16, "hidden_size": 48, "dropout": 0.0},
    },
    "deep-tied": {"cell": "gru", "encoder_layers": 2, "decoder_layers": 2, "tie_output": True, "dropout": 0.05},
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", sorted(KINDS))
def test_reversal_is_learned(kind: str, task: Translation, data: dict[str, Any], tmp_path: Path) -> None:
    """Unseen strings come out backwards: at least 9 in 10 exactly, from each cell, score, order and decoder."""
    steps = 480 if kind == "cell-elman_sigmoid" else 240  # its gradients fade soonest
    sizes = {"embedding_size": 16, "hidden_size": 48, "dropout": 0.0}
    recipe = recipe_of(
        data, KINDS[kind] if "kind" in KINDS[kind] else {**sizes, **KINDS[kind]},
        steps=steps, batch_tokens=420, learning_rate=1e-2, schedule="cosine", warmup_steps=10, validate_every=steps,
        validation_sentences=60, samples=0, log_every=1000,
    )  # fmt: skip
    torch.manual_seed(3)
    model = task.build(recipe.model)
    work = task.work(recipe)
    fit(model, work, recipe.training, tmp_path)
    greedy = DecodingSettings(method="greedy")
    answers = dict(task.predict(model, [pair.source for pair in work.pairs], greedy))
    right = sum(answers[index].text == pair.target for index, pair in enumerate(work.pairs))
    assert right >= 0.9 * len(work.pairs)


def test_padding_is_left_out_of_the_loss(task: Translation, data: dict[str, Any]) -> None:
    """The loss of a batch is the sum of its sentences' losses, plain or projected."""
    torch.manual_seed(1)
    model = built(task, data)
    pairs = [(text, text) for text in ("a b c d", "e", "f g")]
    for plain in (True, False):
        s = TrainingSettings(steps=1, plain=plain)
        together = float(text_loss(model, batch_of(task, *pairs), s).nll)
        apart = sum(float(text_loss(model, batch_of(task, pair), s).nll) for pair in pairs)
        assert together == pytest.approx(apart, rel=1e-5)


def test_scheduled_sampling_without_chance_is_teacher_forcing(task: Translation, data: dict[str, Any]) -> None:
    model = built(task, data)
    batch = batch_of(task, ("a b c", "c b a"))
    assert torch.allclose(sampled_features(model, batch, 0.0), model(batch), atol=1e-6)
    own = sampled_features(model, batch, 1.0)  # reads what it predicts itself
    first = int(model.output(own[0, 0]).argmax())
    forced = task.pair("a b c", [first, *task.target.tokenizer.encode("b a")])
    assert torch.allclose(own[:, 1], model(forced)[:, 1], atol=1e-6)


def test_alignment_weights_are_word_by_word(task: Translation, data: dict[str, Any]) -> None:
    model = built(task, data)
    pairs = [Pair("a b c", "c b", ((0, 0),)), Pair("d", "d d d d", ((0, 0), (0, 1)))]
    first, second = task.alignment_weights(model, pairs)
    assert first.shape == (2, 3)
    assert second.shape == (4, 1)
    error = task.alignment_error(model, pairs)
    assert error is not None
    assert 0 <= error <= 1
    assert task.alignment_error(built(task, data, decoder="state"), pairs) is None, "it does not attend"


def test_joint_and_separate_vocabularies(tmp_path: Path) -> None:
    data = {name: reversals(tmp_path / "x.tsv", 1, 50) for name in ("train", "valid")}
    recipe = recipe_of(data, SMALL, {"tokenizer": "character", "vocabulary_size": None})
    joint = Translation.learn(recipe, lambda text: None)
    assert joint.source.tokenizer is joint.target.tokenizer
    loaded = Translation.load(tmp_path, joint.save(tmp_path))
    assert loaded.source.tokenizer is loaded.target.tokenizer
    assert loaded.source.encode(["a b"]) == joint.source.encode(["a b"])


def test_text_dropout_trains_on_several_cuts_and_validates_on_the_usual_one() -> None:
    corpus = {"grammar": "en-es", "split": "train", "size": 200}
    text = {"vocabulary_size": 300, "dropout": 0.2, "segmentations": 3}
    recipe = recipe_of({"train": corpus, "valid": corpus}, SMALL, text)
    task = Translation.learn(recipe, lambda text: None)
    usual, cut = task.encode(recipe.data.train), task.encode_for_training(recipe)
    assert len(cut) == 3 * len(usual)
    for row in range(0, 200, 20):
        copies = [cut.rows["target"]["ids"][row + 200 * copy].tolist() for copy in range(3)]
        decoded = {task.target.tokenizer.decode(ids) for ids in copies}
        assert decoded == {task.target.tokenizer.decode(usual.rows["target"]["ids"][row].tolist())}
    assert cut.lengths[:].sum() > 3 * usual.lengths[:].sum()
    work = task.work(recipe)
    assert len(work.train) == 600
    assert len(work.valid) == 200


# -- few candidates ---------------------------------------------------------------------------------------------------


def recipe_with(**training: Any) -> dict[str, Any]:
    """Of a grammar whose symbols are many more than a batch predicts."""
    common = {"batch_tokens": 200, "validation_sentences": 0, "candidates": 20}
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


def test_candidates_are_counted_as_they_are_predicted(task: Translation, data: dict[str, Any]) -> None:
    """The ends of sentences are predicted too, though they are not stored."""
    recipe = recipe_of(data, SMALL, candidates=4, batch_tokens=300)
    work = task.work(recipe)
    counts, seen = torch.ones(len(task.target.tokenizer)), 0  # one more each
    for _, batch in work.batches(Position()):
        outputs = batch.target.outputs[batch.target.outputs != 0]
        counts += torch.bincount(outputs, minlength=len(counts))
        seen += len(batch)
        if seen == 3000:
            break
    sampled = task.target.sampled(work.train.rows["target"]["ids"], recipe.training)
    assert sampled is not None
    torch.testing.assert_close(sampled.shares, (counts / counts.sum()).double(), rtol=1e-5, atol=0)


@pytest.mark.parametrize("candidates", [None, 12, 1000])
def test_as_many_candidates_as_symbols_are_all(candidates: int | None, task: Translation, data: dict[str, Any]) -> None:
    assert len(task.target.tokenizer) == 12
    recipe = recipe_of(data, SMALL, candidates=candidates)
    assert task.target.sampled(task.encode(recipe.data.train).rows["target"]["ids"], recipe.training) is None


@pytest.mark.parametrize("plain", [True, False])
def test_candidates_are_for_training_only(plain: bool, task: Translation, data: dict[str, Any]) -> None:
    few, all_symbols = (task.work(recipe_of(data, SMALL, candidates=n, plain=plain)) for n in (1, None))
    torch.manual_seed(1)
    model = built(task, data, dropout=0.0)
    batch = batch_of(task, ("a b", "b a"))  # three symbols of twelve
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
    """The loss over all symbols, which is what validation reports, falls."""
    settings = {"steps": 60, "validate_every": 10, "learning_rate": 5e-3, "plain": plain, **change}
    train_recipe(recipe_with(**settings), tmp_path / "run")
    events = read_journal(tmp_path / "run" / "journal.jsonl")
    found = [event["loss"] for event in events if event["event"] == "validation"]
    assert found[-1] < found[0] - 0.5


@pytest.mark.parametrize("workers", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_a_crashed_run_with_candidates_resumes_to_the_same_bits(
    workers: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The candidates of a step are drawn again as they were, also where two threads have half of a batch each."""
    settings = {"label_smoothing": 0.1, "consistency": 1.0, "workers": workers}
    recipe = recipe_with(steps=12, validate_every=6, checkpoint_every=1, **settings)
    train_recipe(recipe, tmp_path / "straight")
    original, calls = ExampleWork.loss, 0

    def crashing(self: ExampleWork, model: Any, batch: Any, carried: Any = None) -> Any:
        nonlocal calls
        calls += model.training
        if calls == 8:
            raise RuntimeError("as a machine might")
        return original(self, model, batch, carried)

    monkeypatch.setattr(ExampleWork, "loss", crashing)
    with pytest.raises(RuntimeError, match="as a machine might"):
        train_recipe(recipe, tmp_path / "broken")
    monkeypatch.setattr(ExampleWork, "loss", original)
    train_recipe(tmp_path / "broken", resume=True)
    one, other = ((tmp_path / name / "model" / "model.safetensors").read_bytes() for name in ("straight", "broken"))
    assert one == other
