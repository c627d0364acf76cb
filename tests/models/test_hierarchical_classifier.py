"""The hierarchical attention network: both softmaxes, padding on both levels, every cell, and what it must learn."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st

import seqloom
from seqloom.batches.collate import Batch
from seqloom.errors import RecipeError, UserError
from seqloom.models.hierarchical_classifier import HierarchicalClassifier, HierarchicalClassifierSettings
from seqloom.nn.cells import CELLS
from seqloom.settings import validated
from seqloom.sources.document import Sentences
from seqloom.targets.label import Labels

SYMBOLS, LABELS = 13, 3
document = st.lists(st.lists(st.integers(4, 12), max_size=4).map(lambda words: [*words, 3]), min_size=1, max_size=4)


def build(cell: str = "gru", num_layers: int = 1) -> HierarchicalClassifier:
    torch.manual_seed(5)
    settings = HierarchicalClassifierSettings(
        cell=cell, embedding_size=5, word_size=4, sentence_size=6, num_layers=num_layers
    )
    model = HierarchicalClassifier(settings, num_symbols=SYMBOLS, num_labels=LABELS)
    for weight in model.parameters():
        weight.data += 0.3 * torch.randn_like(weight)
    return model.eval()


def sentences(documents: list[list[list[int]]]) -> Sentences:
    flat = [row for one in documents for row in one]
    width = max(map(len, flat))
    ids = torch.tensor([row + [0] * (width - len(row)) for row in flat])
    return Sentences(ids, torch.tensor([len(row) for row in flat]), torch.tensor([len(one) for one in documents]))


@pytest.mark.parametrize("cell", CELLS)
@given(found=st.lists(document, min_size=1, max_size=4))
@examples(max_examples=8)
def test_batched_equals_single_and_padding_changes_nothing(cell: str, found: list[list[list[int]]]) -> None:
    model, batch = build(cell, 2), sentences(found)
    with torch.no_grad():
        together = model(Batch(batch, None))
        padded = replace(batch, ids=F.pad(batch.ids, (0, 3), value=7))  # even where padding holds a symbol
        torch.testing.assert_close(model(Batch(padded, None)), together, atol=1e-5, rtol=1e-5)
        for row, one in enumerate(found):
            torch.testing.assert_close(model(Batch(sentences([one]), None))[0], together[row], atol=1e-5, rtol=1e-5)


@given(st.lists(document, min_size=1, max_size=4))
@examples(max_examples=20)
def test_both_softmaxes_sum_to_one_over_what_is_real(found: list[list[list[int]]]) -> None:
    batch = sentences(found)
    with torch.no_grad():
        levels = build().levels(batch)
    for row, length in zip(levels.words, batch.lengths.tolist(), strict=True):
        assert float(row.sum()) == pytest.approx(1.0, abs=1e-5)
        assert not row[length:].any()
    for row, count in zip(levels.sentences, batch.counts.tolist(), strict=True):
        assert float(row.sum()) == pytest.approx(1.0, abs=1e-5)
        assert not row[count:].any()


def test_the_levels_by_the_formulas_of_the_paper() -> None:
    """One document of two sentences, computed step by step without batches or masks."""
    model, rows = build(), [[4, 5, 3], [6, 3]]
    with torch.no_grad():
        vectors = []
        for row in rows:
            states = model.words.encode(
                Sentences(torch.tensor([row]), torch.tensor([len(row)]), torch.tensor([1]))
            ).values
            hidden = torch.tanh(states[0] @ model.word_attention.inner.weight.T + model.word_attention.inner.bias)
            weights = (hidden @ model.word_attention.v).softmax(0)
            vectors.append((weights[:, None] * states[0]).sum(0))
        states, _ = model.sentences.stack(torch.stack(vectors)[None], lengths=torch.tensor([2]))
        hidden = torch.tanh(states[0] @ model.sentence_attention.inner.weight.T + model.sentence_attention.inner.bias)
        weights = (hidden @ model.sentence_attention.v).softmax(0)
        expected = (weights[:, None] * states[0]).sum(0) @ model.output.weight.T + model.output.bias
        torch.testing.assert_close(model(Batch(sentences([rows]), None))[0], expected, atol=1e-5, rtol=1e-5)


def test_gradients_reach_every_weight() -> None:
    model = build().train()
    batch = sentences([[[4, 5, 6, 3], [7, 8, 3]], [[9, 3]], [[10, 11, 12, 3], [4, 3], [3]]])
    F.cross_entropy(model(Batch(batch, None)), Labels(torch.tensor([0, 1, 2])).ids).backward()
    for name, weight in model.named_parameters():
        assert weight.grad is not None, name
        assert weight.grad.any(), name


def test_sizes_are_even() -> None:
    with pytest.raises(RecipeError, match="word_size must be even, a half for each direction; got 5"):
        validated(HierarchicalClassifierSettings, {"word_size": 5})


# -- from a recipe to pictures ----------------------------------------------------------------------------------------

FILLERS = ["the", "a", "of", "that", "and", "it", "was"]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The one sentence with `great` or `awful` decides."""
    folder, draw = tmp_path_factory.mktemp("documents"), random.Random(3)
    for name, size in (("train", 250), ("valid", 40), ("test", 40)):
        lines = []
        for _ in range(size):
            text = [draw.choices(FILLERS, k=draw.randint(2, 4)) for _ in range(draw.randint(1, 4))]
            label = draw.choice(["good", "bad"])
            text[draw.randrange(len(text))][0] = {"good": "great", "bad": "awful"}[label]
            lines.append(f"{label}\t{' '.join(' '.join(words) + draw.choice('.!?') for words in text)}\n")
        (folder / f"{name}.tsv").write_text("".join(lines))
    data = {
        name: {"file": str(folder / f"{name}.tsv"), "source": 1, "target": 0} for name in ("train", "valid", "test")
    }
    model = {"kind": "hierarchical_classifier", "embedding_size": 8, "word_size": 8, "sentence_size": 8, "dropout": 0.0}
    training = {"steps": 40, "batch_tokens": 600, "learning_rate": 0.02, "validate_every": 20}
    recipe = {"task": "classify", "data": data, "model": model, "training": training}
    seqloom.train(recipe, folder / "run")
    return folder / "run"


def test_it_learns_and_looks_where_the_clue_is(run: Path) -> None:
    model = seqloom.load(run)
    assert model.evaluate(model.corpora()["test"]).figures["accuracy"] > 90
    picture = model.look("hierarchy", "it was of that. the a awful and! of the it was?")
    found = picture.to_dict()
    assert found["label"] == "bad"
    weights = [sentence["weight"] for sentence in found["sentences"]]
    assert sum(weights) == pytest.approx(1.0, abs=1e-5)
    second = found["sentences"][1]
    assert second["words"] == ["the", "a", "awful", "and", "!", "<eos>"]
    assert int(np.argmax(second["weights"])) == 2
    assert sum(second["weights"]) == pytest.approx(1.0, abs=1e-5)
    assert "[awful]" in picture.to_text(colour=False)
    assert "awful" in picture.to_text(width=40, colour=True)
    with pytest.raises(UserError, match="there is nothing to look at"):
        model.look("hierarchy", " ")


def test_its_pictures_are_written(run: Path, tmp_path: Path) -> None:
    model = seqloom.load(run)
    for view, inputs in (
        ("hierarchy", ["it was of that. the a awful and!" * 12]),
        ("reliability", []),
        ("confusion", []),
    ):
        picture = model.look(view, *inputs)
        assert picture.to_text(colour=False)
        for ending in ("svg", "html"):
            assert picture.save(tmp_path / f"{view}.{ending}").stat().st_size > 1000
    found = model.look("reliability").to_dict()
    assert sum(one["size"] for one in found["bins"]) == 40
    assert found["calibration_error"] == pytest.approx(
        100 * sum(one["size"] * abs(one["accuracy"] - one["confidence"]) for one in found["bins"]) / 40
    )
    matrix = model.look("confusion").to_dict()
    report = model.evaluate(model.corpora()["test"])
    counts = np.array(matrix["counts"])
    assert matrix["labels"] == ["bad", "good"]
    assert counts.sum(1).tolist() == [matrix["examples"][label] for label in matrix["labels"]]
    assert 100 * np.trace(counts) / 40 == pytest.approx(report.figures["accuracy"])
