"""`seqloom compare`: the figures are those of `evaluate`, and what cannot be compared is refused with a reason."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from conftest import tiny_recipe
from seqloom.cli.main import run
from seqloom.recipe import load_recipe


def said(capsys: pytest.CaptureFixture[str], verb: str, *arguments: Any, code: int = 0) -> tuple[str, str]:
    capsys.readouterr()
    assert run([verb, *(str(a) for a in arguments)]) == code
    found = capsys.readouterr()
    assert "Traceback" not in found.err
    return found.out, found.err


def refused(capsys: pytest.CaptureFixture[str], *arguments: Any) -> str:
    out, err = said(capsys, "compare", *arguments, code=2)
    assert out == ""
    return err


@pytest.fixture(scope="module")
def weaker_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of the tiny recipe that was over after two steps."""
    from seqloom.experiment import train

    folder = tmp_path_factory.mktemp("runs") / "weaker"
    train(tiny_recipe(steps=2, validate_every=1, checkpoint_every=2, average=1), folder)
    return folder


def unfinished(finished: Path, folder: Path) -> Path:
    shutil.copytree(finished, folder)
    shutil.rmtree(folder / "model")
    return folder


def test_figures_are_those_of_evaluate(tiny_run: Path, weaker_run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, _ = said(capsys, "compare", tiny_run, weaker_run, "--test", "test", "--format", "json")
    found = json.loads(out)
    assert found["task"] == "translate"
    assert "test data 'test'" in found["data"]
    for one, folder in zip(found["runs"], (tiny_run, weaker_run), strict=True):
        expected = json.loads(said(capsys, "evaluate", folder, "--test", "test", "--format", "json")[0])
        assert one["name"] == folder.name
        assert {name: one[name] for name in ("bleu", "chrf", "exact_match", "aer")} == {
            name: expected[name] for name in ("bleu", "chrf", "exact_match", "aer")
        }
    chrf = {one["name"]: one["chrf"] for one in found["runs"]}
    assert [one["name"] for one in found["runs"] if "chrf" in one["best"]] == [max(chrf, key=lambda name: chrf[name])]


def test_a_journal_s_figures_and_an_unfinished_run(
    tiny_run: Path, weaker_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from seqloom.predictor import Predictor

    begun = unfinished(weaker_run, tmp_path / "begun")
    out, err = said(capsys, "compare", tiny_run, begun, "--format", "json", "--save", tmp_path / "a.svg")
    assert f"drawn into {tmp_path / 'a.svg'}" in err
    assert all(name in (tmp_path / "a.svg").read_text() for name in ("tiny", "begun (unfinished)"))
    found = json.loads(out)
    assert "validation data" in found["data"]
    tiny, other = found["runs"]
    report, _ = Predictor.load(tiny_run).evaluate(load_recipe(tiny_run / "recipe.yaml").data.valid)
    assert (tiny["bleu"], tiny["finished"], tiny["steps"]) == (report.scores["bleu"], True, 24)
    lines = [json.loads(line) for line in (begun / "journal.jsonl").read_text().splitlines()]
    best = min((line for line in lines if line["event"] == "validation"), key=lambda line: line["loss"])
    assert (other["bleu"], other["chrf"], other["best"], other["steps"]) == (best["bleu"], None, [], 2)
    assert tiny["parameters"] == other["parameters"] == lines[0]["parameters"]
    assert len(other["validations"]) == 2
    out, _ = said(capsys, "compare", begun, weaker_run, "--test", "test", "--format", "json")
    assert json.loads(out)["runs"][0]["bleu"] is None  # its journal knows nothing of a test


def test_the_terminal_and_markdown(tiny_run: Path, weaker_run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, _ = said(capsys, "compare", tiny_run, weaker_run)
    assert out.startswith("measured on the validation data: grammar en-es/valid\n\nname ")
    assert "BLEU over " in out
    assert "▁" in out
    out, _ = said(capsys, "compare", tiny_run, weaker_run, "--format", "markdown")
    assert "|---|---|---:|" in out
    assert "▁" not in out


def test_a_model_folder_alone_needs_data(tiny_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copytree(tiny_run / "model", tmp_path / "alone")
    assert "give --data FILE" in refused(capsys, tmp_path / "alone")
    (tmp_path / "pairs.tsv").write_text("the cat slept\tel gato durmió\nthe dog slept\tel perro durmió\n")
    arguments = [tmp_path / "alone", tiny_run, "--data", tmp_path / "pairs.tsv", "--format", "json"]
    alone, whole = json.loads(said(capsys, "compare", *arguments)[0])["runs"]
    assert (alone["bleu"], alone["chrf"]) == (whole["bleu"], whole["chrf"])
    assert alone["parameters"] == whole["parameters"]  # counted in the file; told by the journal
    assert (alone["seconds"], alone["validations"]) == (None, [])


def test_other_data_is_refused(tiny_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = tmp_path / "other"
    shutil.copytree(tiny_run, other)
    recipe = yaml.safe_load((other / "recipe.yaml").read_text())
    recipe["data"]["valid"]["size"] = 20
    (other / "recipe.yaml").write_text(yaml.safe_dump(recipe))
    message = refused(capsys, tiny_run, other)
    assert "not measured on the same data" in message
    assert "tiny: grammar en-es, split valid, size 40" in message
    assert "other: grammar en-es, split valid, size 20" in message
    assert "--test must be test; got 'nope'" in refused(capsys, tiny_run, other, "--test", "nope")


def test_what_is_no_contest(tiny_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "nothing to compare" in refused(capsys)
    assert "takes part already" in refused(capsys, tiny_run, tiny_run / "model")
    assert "did you mean 'tiny'" in refused(capsys, tiny_run.parent / "tinny")
    assert "did you mean 'demo'" in refused(capsys, "demmo")
    assert "not a model folder" in refused(capsys, tmp_path)
    assert "does not go together" in refused(capsys, tiny_run, "--test", "test", "--data", "x.tsv")
    assert "a picture must end in" in refused(capsys, tiny_run, "--save", tmp_path / "a.txt")


def test_recipes_are_trained_when_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    recipe = tiny_recipe(steps=2, validate_every=2, checkpoint_every=2, average=1, validation_sentences=2)
    Path("one.yaml").write_text(yaml.safe_dump(recipe))
    Path("two.yaml").write_text(yaml.safe_dump({"extends": "one.yaml", "seed": 2}))
    message = refused(capsys, "one.yaml", "two.yaml")
    assert "  seqloom train one.yaml\n  seqloom train two.yaml" in message
    assert not Path("runs").exists()
    out, _ = said(capsys, "compare", "one.yaml", "two.yaml", "--train", "--format", "json")
    assert [one["name"] for one in json.loads(out)["runs"]] == ["one", "two"]
    written = Path("runs/one/journal.jsonl").stat().st_mtime_ns
    said(capsys, "compare", "one.yaml", "runs/two", "--train")  # there are runs now: nothing is trained again
    assert Path("runs/one/journal.jsonl").stat().st_mtime_ns == written
    Path("one.yaml").write_text(yaml.safe_dump({**recipe, "seed": 5}))
    assert "holds a run of another recipe than one.yaml (seed: 1 in the run, 5" in refused(capsys, "one.yaml")
    shutil.rmtree("runs/two/model")
    assert "seqloom train runs/two --resume" in refused(capsys, "two.yaml", "--train")


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Lines over a dozen words, the next word mostly told by the last."""
    draw, words = random.Random(1), list("abcdefghijkl")
    lines = []
    for _ in range(300):
        at = draw.randrange(len(words))
        lines.append(" ".join(words[at := (at + draw.choice((1, 1, 1, 2))) % len(words)] for _ in range(8)))
    path = tmp_path_factory.mktemp("text") / "text.txt"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def language_recipe(text: Path, model: dict[str, Any], **training: Any) -> dict[str, Any]:
    return {
        "task": "model_language",
        "data": {"train": {"text": str(text)}, "valid": {"text": str(text), "limit": 40}},
        "text": {"tokenizer": "spaces", "vocabulary_size": None},
        "model": model,
        "training": {
            "rows": 4,
            "length": 10,
            "steps": 6,
            "validate_every": 3,
            "threads": 1,
            "processes": 1,
            **training,
        },
    }


def test_language_models(text: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from seqloom.experiment import train
    from seqloom.language import LanguageModel

    train(language_recipe(text, {"kind": "recurrent_lm", "hidden_size": 6}), tmp_path / "gru")
    window = {
        "kind": "transformer_lm",
        "size": 8,
        "num_heads": 2,
        "num_layers": 1,
        "feed_forward_size": 8,
        "context": 10,
    }
    train(language_recipe(text, window, batching="windows"), tmp_path / "transformer")
    arguments = [tmp_path / "gru", tmp_path / "transformer", "--save", tmp_path / "curves.svg", "--format", "json"]
    found = json.loads(said(capsys, "compare", *arguments)[0])
    assert found["data"] == "measured on the validation data: text.txt"
    for one in found["runs"]:
        run_folder = tmp_path / one["name"]
        report = LanguageModel.load(run_folder).evaluate(load_recipe(run_folder / "recipe.yaml").data.valid)
        assert one["perplexity"] == pytest.approx(report.perplexity)
        assert one["bits_per_character"] == pytest.approx(report.bits_per_character)
        assert one["steps"] == 6
    assert "perplexity (logarithmic)" in (tmp_path / "curves.svg").read_text()
    out, _ = said(capsys, "compare", *arguments[:2], "--data", text, "--format", "json")
    assert json.loads(out)["data"] == "measured on text.txt"


def test_models_that_know_other_words_are_compared_with_care(
    text: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from seqloom.experiment import train

    few = language_recipe(text, {"kind": "recurrent_lm", "hidden_size": 6})
    train(few, tmp_path / "all")
    train({**few, "text": {"tokenizer": "spaces", "vocabulary_size": 8}}, tmp_path / "few")
    notes = json.loads(said(capsys, "compare", tmp_path / "all", tmp_path / "few", "--format", "json")[0])["notes"]
    assert len(notes) == 1
    assert "do not know the same words: unknown words: all 0, few " in notes[0]


def vectors_run(folder: Path, kind: str, seed: int, text: Path, pairs: Path) -> Path:
    """A finished run of word vectors that were drawn, not learned."""
    from seqloom.recipe import recipe_text
    from seqloom.vectors.table import WordVectors

    recipe = {
        "task": "embed",
        "data": {"train": {"text": str(text)}, "test": {"people": str(pairs)}},
        "model": {"kind": kind, "size": 6},
    }
    (folder / "model").mkdir(parents=True)
    matrix = np.random.default_rng(seed).normal(size=(12, 6)).astype(np.float32)
    WordVectors(list("abcdefghijkl"), matrix).save(folder / "model")
    (folder / "model" / "config.json").write_text(
        json.dumps({"format": 1, "task": "embed", "model": recipe["model"]}), encoding="utf-8"
    )
    (folder / "recipe.yaml").write_text(recipe_text(load_recipe(recipe)), encoding="utf-8")
    end = {"event": "end", "seconds": 2.5, "words_per_second": 1000}
    (folder / "journal.jsonl").write_text(json.dumps({"event": "start", "words": 9}) + "\n" + json.dumps(end) + "\n")
    return folder


def test_word_vectors(text: Path, tmp_path: Path, tiny_run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pairs = tmp_path / "pairs.tsv"
    pairs.write_text("a\tb\t9\nc\td\t8\na\tg\t1\nb\th\t2\n")
    runs = [vectors_run(tmp_path / kind, kind, seed, text, pairs) for seed, kind in enumerate(("skipgram", "ppmi"))]
    found = json.loads(said(capsys, "compare", *runs, "--format", "json")[0])
    for one in found["runs"]:
        expected = json.loads(said(capsys, "evaluate", tmp_path / one["name"], "--format", "json")[0])
        assert one["people.spearman"] == expected["spearman"]
        assert (one["model"], one["parameters"], one["seconds"]) == (one["name"], 12 * 6, 2.5)
    out, _ = said(capsys, "compare", *runs, "--test", "people")
    assert out.startswith("measured on people\n")
    assert "word vectors have none" in refused(capsys, *runs, "--save", tmp_path / "a.svg")
    message = refused(capsys, runs[0], tiny_run)
    assert "only models of one task can be compared:\n  skipgram: embed\n  tiny: translate" in message
