"""Every Python snippet of the documentation runs, page by page, with small models in the places of those it names."""

from __future__ import annotations

import ast
import json
import random
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from conftest import tiny_recipe
from seqloom.experiment import train
from seqloom.vectors.formats import write_vectors
from seqloom.vectors.table import WordVectors

ROOT = Path(__file__).parents[1]
PAIRS = "the dog slept\tel perro durmió\na cat\tun gato\n"
FEW = {"steps": 2, "validate_every": 2, "rows": 2, "length": 5, "samples": 0}
WORDS = {"tokenizer": "word", "vocabulary_size": None}


# -- what stands in the places that the pages name; each is made where it is named -------------------------------------


def labelled(folder: Path) -> dict[str, Any]:
    """Questions with a label each."""
    draw = random.Random(1)
    for name, count in (("train", 40), ("valid", 6), ("test", 6)):
        lines = (f"{draw.choice(['HUM', 'LOC'])} Who invented the {draw.choice('abc')} ?\n" for _ in range(count))
        (folder / f"{name}.txt").write_text("".join(lines))
    return {name: {"file": str(folder / f"{name}.txt"), "format": "labelled"} for name in ("train", "valid", "test")}


def classifier(place: Path) -> None:
    encoder = {"kind": "embeddings", "size": 6}
    recipe = {"task": "classify", "data": labelled(place.parent), "model": {"kind": "classifier", "encoder": encoder}}
    train({**recipe, "training": {"steps": 2, "validate_every": 2, "batch_tokens": 60}}, place)


def language_model(place: Path) -> None:
    data = {name: {"text": f"grammar:en/{name}", "limit": 40} for name in ("train", "valid", "test")}
    model = {"kind": "recurrent_lm", "size": 6, "hidden_size": 7}
    recipe = {"task": "model_language", "data": data, "text": WORDS, "model": model, "training": FEW}
    train({**recipe, "decoding": {"method": "sample", "max_length": 5}}, place)


def bidirectional(place: Path) -> None:
    text = place.parent / "sticks.txt"
    text.write_text("he broke the stick\nthey stick to the plan\n" * 10)
    data = {name: {"text": str(text)} for name in ("train", "valid")}
    model = {"kind": "bidirectional_lm", "size": 6}
    recipe = {"task": "model_bidirectional_language", "data": data, "text": WORDS, "model": model}
    train({**recipe, "training": {**FEW, "batch_tokens": 60}}, place)


def motions(place: Path) -> None:
    """Series of six channels with a label each."""
    generator, path = np.random.default_rng(0), place.parent / "motions.jsonl"
    rows = [{"series": generator.normal(size=(8, 6)).round(2).tolist(), "label": "ab"[i % 2]} for i in range(12)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    data = {name: {"series": str(path), "target": "label"} for name in ("train", "valid")}
    model = {"kind": "classifier", "encoder": {"kind": "recurrent", "cell": "gru", "hidden_size": 4}}
    training = {"steps": 2, "validate_every": 2, "batch_tokens": 60}
    train({"task": "classify", "data": data, "model": model, "training": training}, place)


def tagger(place: Path) -> None:
    text = place.parent / "chunks.conll"
    text.write_text("The B-NP\nnew I-NP\nchairman I-NP\nsaid B-VP\n. O\n\n" * 20)
    data = {name: {"file": str(text)} for name in ("train", "valid")}
    model = {"kind": "tagger", "encoder": {"kind": "embeddings", "size": 8}}
    train(
        {
            "task": "tag",
            "data": data,
            "model": model,
            "training": {"steps": 40, "validate_every": 20, "batch_tokens": 100, "learning_rate": 0.05},
        },
        place,
    )


def turn_tagger(place: Path) -> None:
    """Talks with an act for each turn."""
    path, talk = place.parent / "talks.jsonl", {"turns": ["do you sing ?", "I do"], "acts": ["question", "answer"]}
    path.write_text(json.dumps(talk) + "\n" + json.dumps({name: values * 2 for name, values in talk.items()}) + "\n")
    data = {name: {"file": str(path), "source": "turns", "target": "acts"} for name in ("train", "valid")}
    encoder = {"kind": "recurrent", "cell": "gru", "embedding_size": 4, "hidden_size": 4}
    model = {"kind": "tagger", "encoder": encoder, "turns": encoder}
    training = {"steps": 2, "validate_every": 2, "batch_tokens": 60, "metric": "accuracy"}
    train({"task": "tag", "data": data, "model": model, "training": training}, place)


def vectors(place: Path) -> None:
    words = ["king", "queen", "man", "woman", "paris", "london"]
    matrix = np.random.default_rng(0).normal(size=(len(words), 4)).astype(np.float32)
    write_vectors(WordVectors(words, matrix), place, "glove")


def lines(text: str) -> Callable[[Path], None]:
    return lambda place: place.write_text(text, encoding="utf-8") and None


STANDING_IN: dict[str, Callable[[Path], None]] = {
    "runs/trec": classifier,
    "runs/conll2000": tagger,
    "runs/switchboard-acts": turn_tagger,
    "runs/basic-motions": motions,
    "runs/ptb-lstm": language_model,
    "runs/wikipedia-elmo": bidirectional,
    "glove.6B.100d.txt": vectors,
    "questions-words.txt": lines(": capital\nking man queen woman\n"),
    "my/test.txt": lines("the cat slept\nthe witch arrived\n"),
    "pairs.tsv": lines(PAIRS * 10),
    "valid.tsv": lines(PAIRS),
    "some.en": lines("the dog slept\na cat\n"),
    "some.es": lines("el perro durmió\nun gato\n"),
    "recipes/demo.yaml": lines(yaml.safe_dump(tiny_recipe(steps=2, validate_every=2, checkpoint_every=2, average=1))),
}


def pages() -> dict[str, list[str]]:
    """Page -> its snippets in order."""
    found = {}
    for path in (*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").glob("*.md"))):
        code = re.findall(r"^```python\n(.*?)^```$", path.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
        if code:
            found[str(path.relative_to(ROOT))] = code
    return found


PAGES = pages()


def test_there_are_pages_with_snippets() -> None:
    assert {"README.md", "docs/python.md", "docs/language-models.md", "docs/word-vectors.md"} <= PAGES.keys()


@pytest.mark.parametrize("page", PAGES)
def test_snippets_run_in_order(page: str, tiny_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    code = PAGES[page]
    shutil.copytree(tiny_run, tmp_path / "runs" / "demo")
    for name, make in STANDING_IN.items():
        if any(f'"{name}"' in snippet for snippet in code):
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            make(tmp_path / name)
    known: dict[str, Any] = {}
    for number, snippet in enumerate(code, 1):
        tree = ast.parse(snippet)
        assert tree.body, f"{page}: snippet {number} does nothing"
        exec(compile(tree, f"{page}, snippet {number}", "exec"), known)
