"""Bidirectional and masked language models from recipe to report: they learn, resume, and say what they are."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch

from seqloom.corpus.plain import PlainTextSettings
from seqloom.errors import RecipeError, UserError
from seqloom.experiment import train
from seqloom.model import Model
from seqloom.nn.counting import count_parameters
from seqloom.recipe import load_recipe
from seqloom.tasks.running_text import RunningTextWork
from seqloom.training.checkpoints import load_tensors
from seqloom.training.journal import read_journal

LETTERS = "abcdef"
MODELS: dict[str, dict[str, Any]] = {
    "bidirectional_lm": {
        "kind": "bidirectional_lm",
        "size": 16,
        "num_layers": 2,
        "characters": {"size": 6, "filters": [[1, 8], [2, 8]], "most": 4},
    },
    "masked_lm": {
        "kind": "masked_lm",
        "size": 16,
        "num_heads": 2,
        "num_layers": 2,
        "feed_forward_size": 24,
        "context": 12,
        "positions": "learned",
    },
}
TASKS = {"bidirectional_lm": "model_bidirectional_language", "masked_lm": "model_masked_language"}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Lines of seven letters, each the alphabet in a circle from some letter on: after the first, nothing is unsure."""
    folder = tmp_path_factory.mktemp("circles")
    circle = LETTERS * 3
    lines = [" ".join(circle[start : start + 7]) for start in range(len(LETTERS))]
    (folder / "train.txt").write_text("\n".join(lines * 20) + "\n")
    (folder / "valid.txt").write_text("\n".join(lines * 8) + "\n")  # so that enough is hidden
    return {"train": {"text": str(folder / "train.txt")}, "valid": {"text": str(folder / "valid.txt")}}


def recipe(data: dict[str, Any], kind: str, dropout: float = 0.1, **training: Any) -> dict[str, Any]:
    return {
        "task": TASKS[kind],
        "data": data,
        "text": {"tokenizer": "spaces", "vocabulary_size": None},
        "model": {**MODELS[kind], "dropout": dropout},
        "training": {
            "batching": "sentences",
            "batch_tokens": 96,
            "metric": "loss",
            "steps": 12,
            "learning_rate": 1e-2,
            "validate_every": 6,
            "checkpoint_every": 3,
            **training,
        },
    }


@pytest.fixture(scope="module")
def runs(data: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Both models, trained until they know the circle."""
    folder = tmp_path_factory.mktemp("guessing")
    for kind, steps, rate in (("bidirectional_lm", 120, 1e-2), ("masked_lm", 250, 5e-3)):
        settings = recipe(data, kind, 0.0, steps=steps, validate_every=steps, checkpoint_every=steps)
        settings["training"] |= {"learning_rate": rate, "batch_tokens": 96 if kind == "bidirectional_lm" else 480}
        train(settings, folder / kind)
    return {kind: folder / kind for kind in MODELS}


def weights_of(run: Path) -> dict[str, torch.Tensor]:
    return load_tensors(run / "model" / "model.safetensors")


def same(one: Path, other: Path) -> bool:
    first, second = weights_of(one), weights_of(other)
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


class Crash(Exception):
    pass


def crash_after(patch: pytest.MonkeyPatch, calls: int) -> None:
    original, count = RunningTextWork.loss, 0

    def loss(self: RunningTextWork, *arguments: Any) -> Any:
        nonlocal count
        count += 1
        if count > calls:
            raise Crash
        return original(self, *arguments)

    patch.setattr(RunningTextWork, "loss", loss)


def test_both_learn_a_language_without_surprises(runs: dict[str, Path], data: dict[str, Any]) -> None:
    """Each direction is left with the first letter of a line, one of six; a hidden letter follows from the others."""
    corpus = PlainTextSettings(**data["valid"])
    both = Model.load(runs["bidirectional_lm"]).evaluate(corpus)
    unsure = math.log(6) / 8  # one of eight symbols, the end included
    assert unsure - 0.01 < both.loss < unsure + 0.12
    hidden = Model.load(runs["masked_lm"]).evaluate(corpus)
    assert hidden.loss < 0.6 < math.log(6), "one of six, for one who has seen nothing"


@pytest.mark.parametrize("kind", MODELS)
def test_their_parameters_are_counted(kind: str, runs: dict[str, Path]) -> None:
    model = Model.load(runs[kind]).network
    assert sum(part.count for part in count_parameters(model)) == sum(w.numel() for w in model.parameters())


def test_reports_say_what_they_are(runs: dict[str, Path], data: dict[str, Any]) -> None:
    corpus = PlainTextSettings(**data["valid"])
    both = Model.load(runs["bidirectional_lm"]).evaluate(corpus, name="valid")
    assert both.perplexity == pytest.approx(math.exp(both.loss), rel=1e-6), "words are symbols here"  # type: ignore[union-attr]
    assert "mean of both directions" in both.render()
    assert "mean of both directions" in both.to_dict()["reading"]
    model = Model.load(runs["masked_lm"])
    hidden = model.evaluate(corpus, name="valid")
    assert "not the perplexity" in hidden.render()
    assert "not the perplexity" in hidden.to_dict()["note"]
    assert "perplexity" not in hidden.to_dict()
    assert hidden.to_dict()["pseudo_perplexity"] == pytest.approx(math.exp(hidden.loss))
    again = model.evaluate(corpus, name="valid")
    assert again == hidden, "the same symbols are hidden every time"
    journal = [e for e in read_journal(runs["masked_lm"] / "journal.jsonl") if e["event"] == "validation"]
    assert journal[-1]["loss"] == pytest.approx(hidden.loss, abs=1e-4)
    assert "perplexity" not in journal[-1]
    assert 0.0 < journal[-1]["loss"] < 1.0


def test_the_mean_of_both_directions_by_hand(runs: dict[str, Path], data: dict[str, Any]) -> None:
    """Line by line and direction by direction, from logits."""
    loaded = Model.load(runs["bidirectional_lm"])
    lines = Path(data["valid"]["text"]).read_text().splitlines()
    total = 0.0
    for ids in loaded.task.text.encode_lines(lines):
        whole = torch.tensor([[loaded.task.text.first, *ids]])
        size = loaded.network.settings.size
        with torch.inference_mode():
            top = loaded.network.vectors(whole, torch.tensor([whole.shape[1]]))[-1][0]
            for half, gold in ((top[:-1, :size], whole[0, 1:]), (top[1:, size:], whole[0, :-1])):
                log_probs = torch.log_softmax(loaded.network.output(half), -1)
                total -= float(log_probs.gather(1, gold[:, None]).sum()) / 2
    report = loaded.evaluate(PlainTextSettings(**data["valid"]))
    assert report.nll == pytest.approx(total, rel=1e-4)


@pytest.mark.parametrize("kind", MODELS)
def test_what_they_cannot_do_is_refused(kind: str, runs: dict[str, Path]) -> None:
    model = Model.load(runs[kind])
    asked: dict[str, Any] = {
        "generate": lambda: model.generate("a b"),
        "score": lambda: model.score(["a b c"]),
        "trace": lambda: model.trace("a b"),
        "predict": lambda: model("a b"),
    }
    for verb, ask in asked.items():
        assert not model.can(verb)
        with pytest.raises(
            UserError, match=rf"{model.task.kind}, which cannot {verb}; ask 'seqloom look .* contexts WORD"
        ):
            ask()
    assert "seqloom look . contexts" in (runs[kind] / "model" / "README.md").read_text()


@pytest.mark.parametrize("kind", MODELS)
def test_a_crashed_run_of_theirs_resumes_to_the_same_bits(
    kind: str, data: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With dropout and with symbols hidden at random: both go on with the generator they had."""
    settings = recipe(data, kind, 0.2)
    train(settings, tmp_path / "whole")
    with monkeypatch.context() as patch:
        crash_after(patch, 8)
        with pytest.raises(Crash):
            train(settings, tmp_path / "run")
    train(tmp_path / "run", resume=True)
    assert same(tmp_path / "run", tmp_path / "whole")


@pytest.mark.slow
def test_two_threads_of_a_masked_model_resume_to_the_same_bits(
    data: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = recipe(data, "masked_lm", 0.2, workers=2)
    train(settings, tmp_path / "whole")
    with monkeypatch.context() as patch:
        crash_after(patch, 8)
        with pytest.raises(Crash):
            train(settings, tmp_path / "run")
    train(tmp_path / "run", resume=True)
    assert same(tmp_path / "run", tmp_path / "whole")


@pytest.mark.slow
def test_two_shards_learn_what_one_learns_in_both_directions(data: dict[str, Any], tmp_path: Path) -> None:
    for shards in (1, 2):
        settings = recipe(data, "bidirectional_lm", 0.0, shards=shards, steps=6)
        train(settings, tmp_path / str(shards))
    two = weights_of(tmp_path / "2")
    for name, weight in weights_of(tmp_path / "1").items():
        torch.testing.assert_close(two[name], weight, rtol=2e-3, atol=2e-4, msg=name)


def test_masked_models_read_windows_too(data: dict[str, Any], tmp_path: Path) -> None:
    settings = recipe(data, "masked_lm", batching="windows", rows=4, length=12, steps=3, validate_every=3)
    model = train(settings, tmp_path / "run")
    report = model.evaluate(PlainTextSettings(**data["valid"]))
    assert report.to_dict()["symbols"] == 384, "32 pieces of twelve"
    longer = tmp_path / "longer.txt"
    longer.write_text("a b c d e f\n" * 8 + "a b\n")  # 59 symbols: the last piece has eleven
    assert model.evaluate(PlainTextSettings(text=str(longer))).to_dict()["symbols"] == 59


def test_a_word_in_two_contexts(runs: dict[str, Path], tmp_path: Path) -> None:
    """Without context a word is a word; above, equal texts give equal vectors and others do not."""
    texts = ["c d e", "c d e", "d c d", "b d"]
    for run in runs.values():
        model = Model.load(run)
        layers = model.task.contexts(model.network, "d", texts)
        assert len(layers) == 3
        for number, vectors in enumerate(layers):
            assert (abs(vectors[0] - vectors[1]) < 1e-6).all()
            assert ((abs(vectors[0] - vectors[2]) < 1e-6).all()) == (number == 0)
            assert ((abs(vectors[0] - vectors[3]) < 1e-6).all()) == (number == 0)
        notes: list[str] = []
        model.task.contexts(model.network, "z", ["a z", "z"], notes.append)
        assert [line.split(":")[0] for line in notes] == ["text 1", "text 2"]
        model.task.contexts(model.network, "d", texts, notes.append)
        assert len(notes) == 2
        with pytest.raises(UserError, match="text 2 does not hold the word 'f': 'a b'"):
            model.task.contexts(model.network, "f", ["F", "a b"])


@pytest.mark.parametrize(
    ("kind", "changes", "message"),
    [
        ("bidirectional_lm", {"batching": "stream"}, "training.batching must be sentences; got 'stream'"),
        ("bidirectional_lm", {"batching": "windows"}, "training.batching must be sentences; got 'windows'"),
        ("masked_lm", {"batching": "stream"}, "training.batching must be one of sentences, windows; got 'stream'"),
        ("masked_lm", {"batching": "windows", "length": 30}, "training.length 30 is longer than model.context 12"),
        ("bidirectional_lm", {"predict": "last"}, "training.predict is not a setting"),
        ("masked_lm", {"metric": "perplexity"}, "training.metric must be one of loss, pseudo_perplexity"),
    ],
)
def test_contradictions_are_named(data: dict[str, Any], kind: str, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(RecipeError, match=message.replace(".", r"\.")):
        load_recipe(recipe(data, kind, **changes))


def test_a_stranger_cannot_ask_for_all_memory(runs: dict[str, Path], tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    for path in (runs["bidirectional_lm"] / "model").iterdir():
        (folder / path.name).write_bytes(path.read_bytes())
    config = json.loads((folder / "config.json").read_text())
    config["model"]["size"] = 10**9
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(UserError, match="does not fit its settings"):
        Model.load(folder)
    config["model"] |= {"size": 16, "characters": {"filters": [[1, 10**9]]}}
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(RecipeError, match="filters"):
        Model.load(folder)
