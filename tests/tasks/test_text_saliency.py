"""Saliency finds a planted word, adds up, agrees with what is exact for a linear model, and is idle in a random one."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
import torch

import seqloom
from seqloom.errors import UserError
from seqloom.model import Model
from seqloom.tasks.saliency import METHODS, saliency

FILLERS = ["the", "a", "of", "that", "and", "it", "was", "very"]
LABELS = ["bad", "good", "none"]  # none has no clue, so that each clue must be seen
MODELS: dict[str, dict[str, Any]] = {
    "pooled": {"kind": "classifier", "encoder": {"kind": "embeddings", "size": 8}, "pooling": "sum"},
    "ngrams": {"kind": "classifier", "encoder": {"kind": "embeddings", "size": 8, "word_ngrams": 2, "buckets": 99}},
    "convolution": {
        "kind": "classifier",
        "encoder": {"kind": "text_convolution", "embedding_size": 8, "filters": 12, "widths": [1, 2], "dropout": 0.0},
        "pooling": "max",
    },
    "gru": {
        "kind": "classifier",
        "encoder": {"kind": "recurrent", "cell": "gru", "embedding_size": 8, "hidden_size": 12, "dropout": 0.0},
        "pooling": "attention",
    },
    "hierarchy": {
        "kind": "hierarchical_classifier",
        "embedding_size": 8,
        "word_size": 8,
        "sentence_size": 8,
        "dropout": 0.0,
    },
}
TEXT = "it was of that. the a awful and very! of the it was"


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder, draw = tmp_path_factory.mktemp("planted"), random.Random(3)
    for name, size in (("train", 250), ("valid", 30)):
        lines = []
        for _ in range(size):
            label = draw.choice(LABELS)
            words = draw.choices([*FILLERS, ".", "!"], k=draw.randint(2, 9))
            if label != "none":
                words.insert(draw.randint(0, len(words)), {"good": "great", "bad": "awful"}[label])
            lines.append(f"{label}\t{' '.join(words)}\n")
        (folder / f"{name}.tsv").write_text("".join(lines))
    return {name: {"file": str(folder / f"{name}.tsv"), "source": 1, "target": 0} for name in ("train", "valid")}


@pytest.fixture(scope="module", params=MODELS)
def model(request: pytest.FixtureRequest, data: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Model:
    training = {"steps": 60, "batch_tokens": 600, "learning_rate": 0.02, "validate_every": 30, "calibrate": False}
    recipe = {"task": "classify", "data": data, "model": MODELS[request.param], "training": training}
    return seqloom.train(recipe, tmp_path_factory.mktemp("runs") / str(request.param))


@pytest.mark.parametrize("method", METHODS)
def test_the_planted_word_is_found(model: Model, method: str) -> None:
    if method == "gradient" and model.network.settings.kind == "hierarchical_classifier":
        pytest.skip("where a gated network is sure, its gradient is nearly zero")
    found = model.look("saliency", TEXT, method=method).to_dict()
    assert found["label"] == "bad"
    words = [number for number, word in enumerate(found["steps"]) if word != "<eos>"]  # ends are no words
    assert found["steps"][max(words, key=lambda number: found["saliency"][number])] == "awful"


def test_integrated_gradients_add_up(model: Model) -> None:
    """Completeness (Sundararajan et al. 2017, proposition 1), within one percent."""
    for text in (TEXT, "great", "that was very great and awful of it"):
        found = model.look("saliency", text, method="integrated").to_dict()
        difference = found["score"] - found["score_of_an_empty_text"]
        assert sum(found["saliency"]) == pytest.approx(difference, rel=0.01)


def test_a_random_model_shows_no_such_thing(model: Model) -> None:
    """The planted word is not what stands out in networks that have learned nothing (Adebayo et al. 2018)."""
    torch.manual_seed(0)
    trained = saliency(model.network, model.task.source, TEXT, 0, "occlusion", apart=False)
    place = model.task.source.labels(TEXT).index("awful")
    hits = []
    for seed in range(12):
        torch.manual_seed(seed)
        fresh = model.task.build(model.network.settings).eval()
        found = saliency(fresh, model.task.source, TEXT, 0, "occlusion", apart=False)
        hits.append(int(found.values.argmax()) == place)
        assert not torch.allclose(found.values, trained.values, atol=0.05)
    assert sum(hits) < 6


def test_of_a_linear_model_all_methods_are_its_exact_numbers(model: Model) -> None:
    if not hasattr(model.network, "contributions") or model.network.settings.encoder.kind != "embeddings":
        pytest.skip("not linear")
    if model.network.settings.encoder.word_ngrams > 1:
        pytest.skip("without a word its pairs are gone, too")
    exact = model.look("words", TEXT).to_dict()["contributions"]
    for method in METHODS:
        assert model.look("saliency", TEXT, method=method).to_dict()["saliency"] == pytest.approx(exact, abs=1e-4)


def test_the_gradient_is_that_of_finite_differences(model: Model) -> None:
    """x · gradient is how fast the score changes where one vector is stretched."""
    from seqloom.batches.collate import Batch
    from seqloom.models.text_reader import TextReader

    network = model.network
    found = saliency(network, model.task.source, TEXT, 0, "gradient", apart=False)
    reader = next(part for part in network.modules() if isinstance(part, TextReader))
    one = model.task.source.batch([TEXT])
    real = (torch.arange(one.ids.shape[1]) < one.lengths[:, None]).nonzero().tolist()
    for number in (0, 3, 6):
        row, column = real[number]
        scores = []
        for share in (0.99, 1.01):

            def stretch(_: Any, __: Any, vectors: torch.Tensor, share: float = share) -> torch.Tensor:
                changed = vectors.clone()
                changed[row, column] *= share  # noqa: B023
                return changed

            handle = reader.register_forward_hook(stretch)
            with torch.no_grad():
                logits = network(Batch(one, None))
            handle.remove()
            scores.append(float(logits[0, 0] - logits.mean()))
        assert float(found.values[number]) == pytest.approx((scores[1] - scores[0]) / 0.02, abs=0.02, rel=0.05)


def test_the_view_says_what_is_wrong_and_draws(model: Model, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="label must be one of bad, good, none; got 'god'"):
        model.look("saliency", TEXT, label="god")
    with pytest.raises(UserError, match="there is nothing to look at: give a text"):
        model.look("saliency", " ")
    with pytest.raises(UserError, match="method must be one of"):
        model.look("saliency", TEXT, method="lime")
    picture = model.look("saliency", TEXT)
    assert "that of an empty text" in picture.to_text(colour=False)
    assert picture.save(tmp_path / "a.svg").stat().st_size > 1000
