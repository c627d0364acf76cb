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
from seqloom.model import load
from seqloom.recipe import load_recipe


def called(capsys: pytest.CaptureFixture[str], verb: str, *arguments: Any, code: int = 0) -> tuple[str, str]:
    capsys.readouterr()
    assert run([verb, *(str(a) for a in arguments)]) == code
    found = capsys.readouterr()
    assert "Traceback" not in found.err
    return found.out, found.err


def refused(capsys: pytest.CaptureFixture[str], *arguments: Any) -> str:
    out, err = called(capsys, "compare", *arguments, code=2)
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
    out, _ = called(capsys, "compare", tiny_run, weaker_run, "--test", "test", "--format", "json")
    found = json.loads(out)
    assert found["task"] == "translate"
    assert "test data 'test'" in found["data"]
    for one, folder in zip(found["runs"], (tiny_run, weaker_run), strict=True):
        expected = json.loads(called(capsys, "evaluate", folder, "--test", "test", "--format", "json")[0])
        assert one["name"] == folder.name
        assert {name: one[name] for name in ("bleu", "chrf", "exact_match", "aer")} == {
            name: expected[name] for name in ("bleu", "chrf", "exact_match", "aer")
        }
    chrf = {one["name"]: one["chrf"] for one in found["runs"]}
    assert [one["name"] for one in found["runs"] if "chrf" in one["best"]] == [max(chrf, key=lambda name: chrf[name])]


def test_a_journal_s_figures_and_an_unfinished_run(
    tiny_run: Path, weaker_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    begun = unfinished(weaker_run, tmp_path / "begun")
    out, err = called(capsys, "compare", tiny_run, begun, "--format", "json", "--save", tmp_path / "a.svg")
    assert f"drawn into {tmp_path / 'a.svg'}" in err
    assert all(name in (tmp_path / "a.svg").read_text() for name in ("tiny", "begun (unfinished)"))
    found = json.loads(out)
    assert "validation data" in found["data"]
    tiny, other = found["runs"]
    report = load(tiny_run).evaluate(load_recipe(tiny_run / "recipe.yaml").data.valid)
    assert (tiny["bleu"], tiny["finished"], tiny["steps"]) == (report.figures["bleu"], True, 24)
    lines = [json.loads(line) for line in (begun / "journal.jsonl").read_text().splitlines()]
    best = min((line for line in lines if line["event"] == "validation"), key=lambda line: line["loss"])
    assert (other["bleu"], other["chrf"], other["best"], other["steps"]) == (best["bleu"], None, [], 2)
    assert tiny["parameters"] == other["parameters"] == lines[0]["parameters"]
    assert len(other["validations"]) == 2
    out, _ = called(capsys, "compare", begun, weaker_run, "--test", "test", "--format", "json")
    assert json.loads(out)["runs"][0]["bleu"] is None  # its journal knows nothing of a test


def test_the_terminal_and_markdown(tiny_run: Path, weaker_run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, _ = called(capsys, "compare", tiny_run, weaker_run)
    assert out.startswith("measured on the validation data: grammar en-es/valid\n\nname ")
    assert "BLEU over " in out
    assert "▁" in out
    out, _ = called(capsys, "compare", tiny_run, weaker_run, "--format", "markdown")
    assert "|---|---|---:|" in out
    assert "▁" not in out


def test_a_model_folder_alone_needs_data(tiny_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copytree(tiny_run / "model", tmp_path / "alone")
    assert "give --data FILE" in refused(capsys, tmp_path / "alone")
    (tmp_path / "pairs.tsv").write_text("the cat slept\tel gato durmió\nthe dog slept\tel perro durmió\n")
    arguments = [tmp_path / "alone", tiny_run, "--data", tmp_path / "pairs.tsv", "--format", "json"]
    alone, whole = json.loads(called(capsys, "compare", *arguments)[0])["runs"]
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
    out, _ = called(capsys, "compare", "one.yaml", "two.yaml", "--train", "--format", "json")
    assert [one["name"] for one in json.loads(out)["runs"]] == ["one", "two"]
    written = Path("runs/one/journal.jsonl").stat().st_mtime_ns
    called(capsys, "compare", "one.yaml", "runs/two", "--train")  # there are runs now: nothing is trained again
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


def language_recipe(text: Path, model: dict[str, Any], task: str = "model_language", **training: Any) -> dict[str, Any]:
    return {
        "task": task,
        "data": {"train": {"text": str(text)}, "valid": {"text": str(text), "limit": 40}},
        "text": {"tokenizer": "spaces", "vocabulary_size": None},
        "model": model,
        "training": {
            "rows": 4,
            "length": 10,
            "steps": 6,
            "validate_every": 3,
            "workers": 1,
            **training,
        },
    }


def test_language_models(text: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from seqloom.experiment import train

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
    found = json.loads(called(capsys, "compare", *arguments)[0])
    assert found["data"] == "measured on the validation data: text.txt"
    for one in found["runs"]:
        run_folder = tmp_path / one["name"]
        report = load(run_folder).evaluate(load_recipe(run_folder / "recipe.yaml").data.valid)
        assert one["perplexity"] == pytest.approx(report.figures["perplexity"])
        assert one["bits_per_character"] == pytest.approx(report.figures["bits_per_character"])
        assert one["steps"] == 6
    assert "perplexity (logarithmic)" in (tmp_path / "curves.svg").read_text()
    out, _ = called(capsys, "compare", *arguments[:2], "--data", text, "--format", "json")
    assert json.loads(out)["data"] == "measured on text.txt"


def test_several_texts_and_figures_named_after_them(
    text: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from seqloom.experiment import train

    train(language_recipe(text, {"kind": "recurrent_lm", "hidden_size": 6}), tmp_path / "gru")
    (tmp_path / "short.txt").write_text("a b c d\n")
    arguments = [tmp_path / "gru", "--data", text, "--data", tmp_path / "short.txt", "--format", "json"]
    (one,) = json.loads(called(capsys, "compare", *arguments)[0])["runs"]
    for file in (text, tmp_path / "short.txt"):
        alone = json.loads(called(capsys, "evaluate", tmp_path / "gru", "--data", file, "--format", "json")[0])
        assert one[f"{file.name}.perplexity"] == pytest.approx(alone["perplexity"])


ONE_LAYER = {"size": 8, "num_heads": 2, "num_layers": 1, "feed_forward_size": 8, "context": 10}


def test_masked_language_models(text: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """They have no perplexity, only what hidden symbols cost."""
    from seqloom.experiment import train

    how: dict[str, Any] = {"task": "model_masked_language", "batching": "windows", "metric": "loss"}
    for name, size in (("narrow", 8), ("wide", 12)):
        model = {"kind": "masked_lm", **ONE_LAYER, "size": size}
        train(language_recipe(text, model, **how), tmp_path / name)
    arguments = [tmp_path / "narrow", tmp_path / "wide", "--format", "json", "--save", tmp_path / "curves.svg"]
    found = json.loads(called(capsys, "compare", *arguments)[0])
    assert found["metrics"] == {"loss": "lower is better", "pseudo_perplexity": "lower is better"}
    (note,) = found["notes"]
    assert note.startswith("Compare loss and pseudo-perplexity only between models")
    for one in found["runs"]:
        data = load_recipe(tmp_path / one["name"] / "recipe.yaml").data.valid
        report = load(tmp_path / one["name"]).evaluate(data)
        assert {name: one[name] for name in report.figures} == pytest.approx(report.figures)
    assert "loss of 2 models" in (tmp_path / "curves.svg").read_text()
    out, _ = called(capsys, "compare", *arguments[:2])
    assert "pseudo-perplexity" in out


def test_what_is_measured_alike_can_be_compared(text: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A model that reads both ways has a perplexity like one that reads forward; a masked one has none."""
    from seqloom.experiment import train

    train(language_recipe(text, {"kind": "recurrent_lm", "hidden_size": 6}), tmp_path / "forward")
    both = {"kind": "bidirectional_lm", "size": 6, "num_layers": 1}
    how: dict[str, Any] = {"task": "model_bidirectional_language", "batching": "sentences"}
    train(language_recipe(text, both, **how), tmp_path / "both")
    found = json.loads(called(capsys, "compare", tmp_path / "forward", tmp_path / "both", "--format", "json")[0])
    assert all(one["perplexity"] > 1 for one in found["runs"])
    how = {"task": "model_masked_language", "batching": "windows", "metric": "loss"}
    train(language_recipe(text, {"kind": "masked_lm", **ONE_LAYER}, **how), tmp_path / "masked")
    message = refused(capsys, tmp_path / "forward", tmp_path / "masked")
    assert "forward: model_language\n  masked: model_masked_language" in message


def test_counted_and_unfinished(text: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """N-grams show how many there are; a run that has not finished shows its journal's figures."""
    from seqloom.experiment import train

    train(language_recipe(text, {"kind": "recurrent_lm", "hidden_size": 6}), tmp_path / "gru")
    begun = unfinished(tmp_path / "gru", tmp_path / "begun")
    counted = language_recipe(text, {"kind": "ngram_lm", "order": 2})
    del counted["training"]
    train(counted, tmp_path / "counted")
    found = json.loads(called(capsys, "compare", tmp_path / "counted", begun, "--format", "json")[0])
    ngrams, other = found["runs"]
    shown = json.loads(called(capsys, "list", "parameters", tmp_path / "counted", "--format", "json")[0])
    assert (ngrams["ngrams"], ngrams["parameters"]) == (sum(shown["ngrams"]), None)
    assert other["perplexity"] is not None
    assert any(note.startswith("Unfinished: the best validation so far") for note in found["notes"])


def test_models_that_know_other_words_are_compared_with_care(
    text: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from seqloom.experiment import train

    few = language_recipe(text, {"kind": "recurrent_lm", "hidden_size": 6})
    train(few, tmp_path / "all")
    train({**few, "text": {"tokenizer": "spaces", "vocabulary_size": 8}}, tmp_path / "few")
    notes = json.loads(called(capsys, "compare", tmp_path / "all", tmp_path / "few", "--format", "json")[0])["notes"]
    assert len(notes) == 1
    assert "do not know the same words: unknown words: all 0, few " in notes[0]


def vectors_run(folder: Path, kind: str, seed: int, text: Path, **files: Path) -> Path:
    """A finished run of word vectors that were drawn, not learned."""
    from seqloom.folders import FORMAT
    from seqloom.recipe import recipe_text
    from seqloom.vectors.table import WordVectors

    recipe = {
        "task": "embed",
        "data": {"train": {"text": str(text)}, "test": {name: str(file) for name, file in files.items()}},
        "model": {"kind": kind, "size": 6},
    }
    (folder / "model").mkdir(parents=True)
    matrix = np.random.default_rng(seed).normal(size=(12, 6)).astype(np.float32)
    WordVectors(list("abcdefghijkl"), matrix).save(folder / "model")
    config = {"format": FORMAT, "task": "embed", "model": recipe["model"], "text": {}, "options": {}}
    (folder / "model" / "config.json").write_text(json.dumps(config), encoding="utf-8")
    (folder / "recipe.yaml").write_text(recipe_text(load_recipe(recipe)), encoding="utf-8")
    end = {"event": "end", "seconds": 2.5, "words_per_second": 1000}
    (folder / "journal.jsonl").write_text(json.dumps({"event": "start", "words": 9}) + "\n" + json.dumps(end) + "\n")
    return folder


def test_word_vectors(text: Path, tmp_path: Path, tiny_run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pairs = tmp_path / "pairs.tsv"
    pairs.write_text("a\tb\t9\nc\td\t8\na\tg\t1\nb\th\t2\n")
    runs = [
        vectors_run(tmp_path / kind, kind, seed, text, people=pairs) for seed, kind in enumerate(("skipgram", "ppmi"))
    ]
    found = json.loads(called(capsys, "compare", *runs, "--format", "json")[0])
    for one in found["runs"]:
        expected = json.loads(called(capsys, "evaluate", tmp_path / one["name"], "--format", "json")[0])
        assert expected["data"] == "pairs.tsv"
        assert one["spearman"] == expected["spearman"]
        assert (one["model"], one["parameters"], one["seconds"]) == (one["name"], 12 * 6, 2.5)
    assert found["notes"] == ["ρ: Spearman's rank correlation with what people say."]
    out, _ = called(capsys, "compare", *runs, "--test", "people")
    assert out.startswith("measured on the test data 'people': pairs.tsv\n")
    assert "task embed has none" in refused(capsys, *runs, "--save", tmp_path / "a.svg")
    message = refused(capsys, runs[0], tiny_run)
    assert "only models that are measured in the same way can be compared:\n  skipgram: embed\n  tiny: trans" in message


def test_word_vectors_on_several_files(text: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Figures are named after the files; models that were not asked the same are marked."""
    pairs, questions = tmp_path / "pairs.tsv", tmp_path / "questions.txt"
    pairs.write_text("a\tb\t9\nc\td\t8\na\tg\t1\nb\th\t2\n")
    questions.write_text(": letters\na b c d\na b c l\n")
    ours = vectors_run(tmp_path / "ours", "skipgram", 1, text, people=pairs, letters=questions)
    less = vectors_run(tmp_path / "less", "skipgram", 2, text, people=pairs, letters=questions)
    from seqloom.vectors.table import WordVectors

    WordVectors(list("abcdefgh"), np.eye(8, dtype=np.float32)).save(less / "model")
    found = json.loads(called(capsys, "compare", ours, less, "--format", "json")[0])
    assert list(found["metrics"]) == ["people.spearman", "letters.add", "letters.multiply"]
    by_file = [json.loads(line) for line in called(capsys, "evaluate", ours, "--format", "json")[0].splitlines()]
    assert [one["data"] for one in by_file] == ["pairs.tsv", "questions.txt"]
    assert found["runs"][0]["people.spearman"] == by_file[0]["spearman"]
    assert found["runs"][0]["letters.add"] == by_file[1]["add"]
    assert any("questions of letters: ours 2, less 1." in note for note in found["notes"])
    assert not any("pairs of people" in note for note in found["notes"])
    assert "people ρ" in called(capsys, "compare", ours, less)[0]
