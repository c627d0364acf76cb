"""A language model beside a translator: what it adds, what stays, what a finished model needs."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from seqloom.batches.collate import Batch, collate_context, collate_sources
from seqloom.corpus.examples import Pair
from seqloom.errors import RecipeError, UserError
from seqloom.experiment import train
from seqloom.export.supported import problem_with
from seqloom.folders import FORMAT
from seqloom.model import Model
from seqloom.nn.counting import count_parameters
from seqloom.recipe import load_recipe
from seqloom.tasks.beside import open_beside
from seqloom.tasks.supervised import ExampleWork
from seqloom.tasks.translate import Translation
from seqloom.training.checkpoints import load_tensors

TASKS = {"bidirectional_lm": "model_bidirectional_language", "masked_lm": "model_masked_language"}
FREQUENT, RARE = ["and", "so", "then", "now"], ["north", "south", "east", "west"]
READERS: dict[str, dict[str, Any]] = {
    "bidirectional_lm": {"kind": "bidirectional_lm", "size": 8, "num_layers": 1, "dropout": 0.1},
    "masked_lm": {
        "kind": "masked_lm",
        "size": 12,
        "num_heads": 2,
        "num_layers": 1,
        "feed_forward_size": 16,
        "context": 12,
        "dropout": 0.1,
    },
}
INSIDE = "encoder.reader.contextual.language."
MODELS: dict[str, dict[str, Any]] = {
    "recurrent_translator": {"kind": "recurrent_translator", "cell": "gru", "embedding_size": 12, "hidden_size": 16},
    "transformer_translator": {
        "kind": "transformer_translator",
        "size": 16,
        "num_heads": 2,
        "feed_forward_size": 24,
        "encoder_layers": 1,
        "decoder_layers": 1,
    },
}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The answer is the rare word among frequent ones; the translator's own vocabulary has no room for rare words."""
    folder, draw = tmp_path_factory.mktemp("directions"), random.Random(1)
    for name, size in (("train", 400), ("valid", 24)):
        lines = []
        for _ in range(size):
            words = [draw.choice(FREQUENT) for _ in range(draw.randint(3, 6))]
            words[draw.randrange(len(words))] = rare = draw.choice(RARE)
            lines.append((" ".join(words), rare[0]))
        (folder / f"{name}.tsv").write_text("".join(f"{source}\t{target}\n" for source, target in lines))
        (folder / f"{name}.txt").write_text("".join(f"{source}\n" for source, _ in lines))
    return {
        "pairs": {name: {"file": str(folder / f"{name}.tsv")} for name in ("train", "valid")},
        "text": {name: {"text": str(folder / f"{name}.txt")} for name in ("train", "valid")},
    }


@pytest.fixture(scope="module")
def readers(data: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Language models that cut the text into pieces of their own."""
    folder = tmp_path_factory.mktemp("readers")
    for kind, model in READERS.items():
        recipe = {
            "task": TASKS[kind],
            "data": data["text"],
            "text": {"tokenizer": "bpe", "vocabulary_size": 30},
            "model": model,
            "training": {
                "batching": "sentences",
                "metric": "loss",
                "steps": 20,
                "learning_rate": 1e-2,
                "validate_every": 20,
            },
        }
        train(recipe, folder / kind)
    return {kind: folder / kind for kind in READERS}


def recipe(data: dict[str, Any], kind: str, contextual: dict[str, Any] | None, **training: Any) -> dict[str, Any]:
    return {
        "data": data["pairs"],
        "text": {"tokenizer": "word", "vocabulary_size": 8, "joint": False},
        "model": {**MODELS[kind], "dropout": 0.0, **({"contextual": contextual} if contextual else {})},
        "training": {
            "steps": 100,
            "batch_tokens": 240,
            "learning_rate": 1e-2,
            "validate_every": 100,
            "validation_sentences": 2,
            **training,
        },
        "decoding": {"method": "greedy", "unknown": "keep"},
    }


def pairs_of(data: dict[str, Any]) -> list[Pair]:
    lines = Path(data["pairs"]["valid"]["file"]).read_text().splitlines()
    return [Pair(*line.split("\t")) for line in lines]


def right(model: Model, pairs: list[Pair]) -> float:
    answers = model.predict([pair.source for pair in pairs])
    return sum(answer.text == pair.target for answer, pair in zip(answers, pairs, strict=True)) / len(pairs)


@pytest.mark.parametrize(
    ("kind", "reader", "freeze"),
    [
        ("recurrent_translator", "bidirectional_lm", True),
        ("transformer_translator", "masked_lm", False),
    ],
)
def test_what_only_the_language_model_knows_is_learned(
    kind: str, reader: str, freeze: bool, data: dict[str, Any], readers: dict[str, Path], tmp_path: Path
) -> None:
    own = tmp_path / "reader"
    shutil.copytree(readers[reader], own)
    settings = recipe(data, kind, {"source": str(own), "freeze": freeze}, steps=320, validate_every=320)
    model = train(settings, tmp_path / "run")
    pairs = pairs_of(data)
    assert model.task.source.tokenizer.unknown_rate([pair.source for pair in pairs])[0] == len(pairs), (
        "each has one unknown word"
    )
    assert right(model, pairs) > 0.9, "one in four could be guessed"

    before = load_tensors(own / "model" / "model.safetensors")
    inside = {
        name.removeprefix(INSIDE): weight
        for name, weight in load_tensors(tmp_path / "run" / "model" / "model.safetensors").items()
        if name.startswith(INSIDE)
    }
    assert before.keys() - inside.keys() <= {"output.weight", "output.bias"}
    assert inside.keys() <= before.keys()
    kept = [torch.equal(before[name], weight) for name, weight in inside.items()]
    assert all(kept) if freeze else not all(kept)

    shutil.rmtree(own)  # a finished model needs it no longer
    shutil.copytree(tmp_path / "run" / "model", tmp_path / "elsewhere")
    again = Model.load(tmp_path / "elsewhere")
    asked = [pair.source for pair in pairs] + ["", "  north  and so"]
    for beam in (1, 3):
        first, second = (m.predict(asked, beam_size=beam, method="beam") for m in (model, again))
        assert [a.text for a in first] == [a.text for a in second]
        assert [a.score for a in first] == pytest.approx([a.score for a in second])
    alone = [again(text).score for text in asked]
    assert [a.score for a in again.predict(asked)] == pytest.approx(alone, abs=1e-4), "batched as one by one"
    weights = again.trace("so north and")["decoder.attention"].values
    np.testing.assert_allclose(weights.sum(1), 1.0, rtol=1e-5)
    assert "has no counterpart in CTranslate2" in str(problem_with(again.network.settings))
    assert again.task.engines(again.network) == []
    if kind == "transformer_translator":
        assert again.task.head_measures(again.network, pairs[:3])


def test_the_same_pieces_in_another_context_are_other_vectors(data: dict[str, Any], readers: dict[str, Path]) -> None:
    """To the translator both texts are one; what the language model reads makes the difference."""
    parsed = load_recipe(recipe(data, "recurrent_translator", {"source": str(readers["bidirectional_lm"])}))
    task = Translation.learn(parsed, lambda text: None)
    torch.manual_seed(1)
    model: Any = task.build(parsed.model).eval()
    task.start(model, parsed.model, lambda text: None)
    assert sum(part.count for part in count_parameters(model)) == sum(w.numel() for w in model.parameters())
    texts = ["so north now", "so south now"]
    ids = task.source.tokenizer.encode_many(texts)
    assert ids[0] == ids[1]
    target = task.target.collate({"ids": [[4], [4]]})
    batch = Batch(task.source.batch(texts), target)
    features = model(batch)
    assert not torch.allclose(features[0], features[1])
    torch.testing.assert_close(model(batch.doubled()), torch.cat([features, features]))
    part = batch.part(1, 2)
    torch.testing.assert_close(model(part)[0], features[1])
    with pytest.raises(AssertionError, match="reads every source twice"):
        model(Batch(collate_sources(ids), target))


def test_places_of_pieces(data: dict[str, Any], readers: dict[str, Path]) -> None:
    """Every piece of the translator looks at all pieces of its word, the end at the end."""
    beside = open_beside(str(readers["masked_lm"]))
    own_cut = recipe(data, "recurrent_translator", None) | {"text": {"tokenizer": "bpe", "vocabulary_size": 24}}
    tokenizer = Translation.learn(load_recipe(own_cut), lambda text: None).source.tokenizer
    text = "so northern now"
    read = beside.read(text, tokenizer)
    pieces = beside.text.tokenizer.encode_detailed(text)
    assert read.symbols == [3, *pieces.ids, 3]
    own = tokenizer.encode_detailed(text)
    places = np.array(read.places).reshape(-1, 2)
    assert len(places) == len(own.ids) + 1
    for word, (first, last) in zip(own.words, places, strict=False):
        assert [pieces.words[i - 1] for i in range(first, last)] == [word] * (last - first)
        assert last - first == pieces.words.count(word)
    assert places[-1].tolist() == [len(pieces.ids) + 1, len(pieces.ids) + 2]


def test_a_shard_holds_what_reading_gives(data: dict[str, Any], readers: dict[str, Path]) -> None:
    parsed = load_recipe(recipe(data, "recurrent_translator", {"source": str(readers["bidirectional_lm"])}))
    task = Translation.learn(parsed, lambda text: None)
    encoded, texts = task.encode(parsed.data.valid), [pair.source for pair in pairs_of(data)]
    found = encoded.batch(np.array([5, 0, 7])).source
    expected = task.source.batch([texts[i] for i in (5, 0, 7)])
    assert torch.equal(found.ids, expected.ids)
    assert expected.context is not None
    for name in ("symbols", "lengths", "first", "last"):
        assert torch.equal(getattr(found.context, name), getattr(expected.context, name)), name


def test_context_batches_by_hand() -> None:
    batch = collate_context([[3, 7, 3], [3, 3]], [[1, 2, 2, 3], [1, 2]])
    assert batch.symbols.tolist() == [[3, 7, 3], [3, 3, 0]]
    assert batch.first.tolist() == [[1, 2], [1, 0]]
    assert batch.last.tolist() == [[2, 3], [2, 0]]
    part = batch.part(slice(1, None, 2), 1)
    assert (part.symbols.tolist(), part.lengths.tolist()) == ([[3, 3]], [2])
    assert (part.first.tolist(), part.last.tolist()) == ([[1]], [[2]])
    assert batch.part(slice(2, None, 3), 0).symbols.shape == (0, 0)


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2])
def test_a_crashed_translator_with_context_resumes_to_the_same_bits(
    workers: int, data: dict[str, Any], readers: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The language model learns along, with its dropout."""
    contextual = {"source": str(readers["bidirectional_lm"]), "freeze": False}
    settings = recipe(
        data, "recurrent_translator", contextual, steps=8, validate_every=4, checkpoint_every=2, workers=workers
    )  # fmt: skip
    settings["model"]["dropout"] = 0.2
    train(settings, tmp_path / "whole")
    original, count = ExampleWork.loss, 0

    def loss(self: ExampleWork, *arguments: Any) -> Any:
        nonlocal count
        count += arguments[0].training
        if count > 5:
            raise MemoryError
        return original(self, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(ExampleWork, "loss", loss)
        with pytest.raises(MemoryError):
            train(settings, tmp_path / "run")
    train(tmp_path / "run", resume=True)
    whole, resumed = (load_tensors(tmp_path / name / "model" / "model.safetensors") for name in ("whole", "run"))
    assert whole.keys() == resumed.keys()
    assert all(torch.equal(whole[name], resumed[name]) for name in whole)


def test_mistakes_are_named_before_training(data: dict[str, Any], readers: dict[str, Path], tmp_path: Path) -> None:
    def asked(source: Path, **text: Any) -> dict[str, Any]:
        values = recipe(data, "recurrent_translator", {"source": str(source)}, steps=1, validate_every=1)
        values["text"] |= text
        return values

    with pytest.raises(UserError, match=r"model\.contextual\.source: .*nowhere: there is no such"):
        train(asked(tmp_path / "nowhere"), tmp_path / "a")
    folder = tmp_path / "other"
    shutil.copytree(readers["masked_lm"] / "model", folder)
    config = json.loads((folder / "config.json").read_text())
    for changed, message in (
        ({"model": {"kind": "recurrent_lm"}}, "is a recurrent_lm; .* from a bidirectional_lm or masked_lm"),
        ({"model": {"kind": []}}, r"is a \[\]; .* from a bidirectional_lm or masked_lm"),
        ({"format": 99}, f"reads model format {FORMAT}; the folder has 99"),
    ):
        (folder / "config.json").write_text(json.dumps(config | changed))
        with pytest.raises(UserError, match=message):
            train(asked(folder), tmp_path / "b")
    with pytest.raises(RecipeError, match=r"model\.contextual needs to know where they are"):
        load_recipe(asked(folder, tokenizer="bpe", vocabulary_size=40, dropout=0.1))
    with pytest.raises(RecipeError, match=r"contextual\.source is missing"):
        load_recipe(recipe(data, "transformer_translator", {"freeze": True}))


def test_a_damaged_model_folder_is_refused(data: dict[str, Any], readers: dict[str, Path], tmp_path: Path) -> None:
    contextual = {"source": str(readers["masked_lm"])}
    train(recipe(data, "transformer_translator", contextual, steps=1, validate_every=1), tmp_path / "run")
    model = tmp_path / "run" / "model"
    description = json.loads((model / "contextual.json").read_text())
    for changed, message in (
        ({"model": description["model"] | {"size": 10**9}}, "does not fit its settings"),
        ({"model": {"kind": "transformer_lm"}}, "is a transformer_lm"),
        ({"format": 1}, f"not the description of a language model of format {FORMAT}"),
    ):
        (model / "contextual.json").write_text(json.dumps(description | changed))
        with pytest.raises(UserError, match=message):
            Model.load(model)
    (model / "contextual.json").unlink()
    with pytest.raises(UserError, match="belong together"):
        Model.load(model)


def test_a_translator_without_context_has_no_file_of_it(data: dict[str, Any], tmp_path: Path) -> None:
    model = train(recipe(data, "recurrent_translator", None, steps=1, validate_every=1), tmp_path / "run")
    folder = tmp_path / "run" / "model"
    assert not list(folder.glob("*contextual*"))
    assert model.task.source.beside is None
    config = json.loads((folder / "config.json").read_text())
    config["model"]["contextual"] = {"source": "somewhere"}
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(UserError, match="belong together"):
        Model.load(folder)
