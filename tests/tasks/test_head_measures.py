"""Heads measured on a real model: what silence does is what it says, and the model is left as it was."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from seqloom.corpus.examples import Pair
from seqloom.errors import UserError
from seqloom.models.encoder_decoder import RecurrentTranslatorSettings, TransformerTranslatorSettings
from seqloom.recipe import load_recipe
from seqloom.tasks.supervised import sample_pairs
from seqloom.tasks.translate import Translation

PAIRS = [Pair("a b c d e", "e d c b a"), Pair("a", "a"), Pair("c b", "b c"), Pair("d d a e", "e a")]


@pytest.fixture(scope="module")
def task(tmp_path_factory: pytest.TempPathFactory) -> Translation:
    path = tmp_path_factory.mktemp("heads") / "pairs.tsv"
    path.write_text("".join(f"{pair.source}\t{pair.target}\n" for pair in PAIRS))
    recipe = load_recipe(
        {
            "data": {"train": {"file": str(path)}, "valid": {"file": str(path)}},
            "text": {"tokenizer": "word", "vocabulary_size": None, "joint": False},
            "model": {"kind": "recurrent_translator"},
            "training": {"steps": 1},
        }
    )
    return Translation.learn(recipe, lambda text: None)


@pytest.fixture
def model(task: Translation) -> Any:
    torch.manual_seed(3)
    settings = TransformerTranslatorSettings(
        size=12, num_heads=3, encoder_layers=1, decoder_layers=2, feed_forward_size=10, dropout=0.1
    )
    return task.build(settings).eval()


def log_probabilities(task: Translation, model: Any, pair: Pair) -> torch.Tensor:
    batch = task.pair(pair.source, task.target.tokenizer.encode(pair.target))
    with torch.no_grad():
        return torch.log_softmax(model.output(model(batch))[0], -1).double()


def test_measures_of_one_sentence_equal_the_direct_computation(task: Translation, model: Any) -> None:
    pair = PAIRS[0]
    found = {m.name: m for m in task.head_measures(model, [pair])}
    assert set(found) == set(model.heads())
    trace = task.trace(model, pair.source, task.target.tokenizer.encode(pair.target))
    gold = [*task.target.tokenizer.encode(pair.target), 3]
    whole = log_probabilities(task, model, pair)
    for name, m in found.items():
        with model.without_head(*name):
            left = log_probabilities(task, model, pair)
        change = bits = loss = 0.0
        for place, symbol in enumerate(gold):
            p, q = whole[place], left[place]
            bits += sum(math.exp(p[i]) * (p[i] - q[i]) for i in range(len(p))).item() / math.log(2)
            loss += (p[symbol] - q[symbol]).item() / math.log(2)
            change = max(change, (p - q).abs().max().item())
        assert change > 1e-4, "a head of a fresh model says something"
        assert m.divergence == pytest.approx(bits / len(gold), rel=1e-3, abs=1e-6)
        assert m.loss_change == pytest.approx(loss / len(gold), rel=1e-3, abs=1e-6)
        view = f"decoder.{name.layer}.cross" if name.site == "cross" else f"{name.site}.{name.layer}.self"
        weights = trace[view].values[name.head].astype(float)
        spread = [-sum(w * math.log2(w) for w in row if w > 0) for row in weights]
        assert m.entropy == pytest.approx(np.mean(spread), rel=1e-5)
        edge = weights[:, 0] if name.site == "decoder" else weights[:, -1]
        assert m.edge == pytest.approx(edge.mean(), rel=1e-5)
        if name.site != "cross":
            assert m.itself == pytest.approx(np.diag(weights).mean(), rel=1e-5)
            assert m.previous == pytest.approx(np.diag(weights, -1).mean(), rel=1e-5)


def test_batches_change_nothing(task: Translation, model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    together = task.head_measures(model, PAIRS)
    lengths = [len(task.target.tokenizer.encode(pair.target)) + 1 for pair in PAIRS]
    alone = [task.head_measures(model, [pair]) for pair in PAIRS]
    shares: list[float] = []
    monkeypatch.setattr("seqloom.tasks.translate.HEAD_TOKENS", 12)
    in_parts = task.head_measures(model, PAIRS, shares.append)
    assert shares == sorted(shares)
    assert shares[-1] == 1.0
    for index, m in enumerate(together):
        for name in ("divergence", "loss_change"):
            mean = np.average([getattr(one[index], name) for one in alone], weights=lengths)
            assert getattr(m, name) == pytest.approx(mean, rel=1e-3, abs=1e-6)
            assert getattr(in_parts[index], name) == pytest.approx(mean, rel=1e-3, abs=1e-6)
        assert m.entropy == in_parts[index].entropy


def test_a_head_that_nobody_reads_has_no_effect(task: Translation, model: Any) -> None:
    with torch.no_grad():
        model.decoder.stack.layers[1].cross.output.weight[:, 4:8] = 0.0
        model.encoder.stack.layers[0].attention.output.weight[:, 0:4] = 0.0
    silent = {("cross", 1, 1), ("encoder", 0, 0)}
    for m in task.head_measures(model, PAIRS):
        assert (m.divergence == 0 and m.loss_change == 0) == (m.name in silent)


def test_the_model_is_left_as_it_was(task: Translation, model: Any) -> None:
    before = {name: weight.clone() for name, weight in model.state_dict().items()}
    task.head_measures(model, PAIRS)
    for name, weight in model.state_dict().items():
        assert torch.equal(weight, before[name]), name
        assert not weight.is_inference()


def test_a_model_without_heads(task: Translation) -> None:
    model = task.build(RecurrentTranslatorSettings(cell="gru", embedding_size=4, hidden_size=6)).eval()
    with pytest.raises(UserError, match="no attention heads to show; a Transformer has"):
        task.head_measures(model, PAIRS)


def test_samples_are_spread_and_repeatable() -> None:
    pairs = [Pair(str(i), str(i)) for i in range(50)]
    some = sample_pairs(pairs, 7)
    assert some == sample_pairs(pairs, 7)
    assert len(some) == 7
    assert some == sorted(some, key=lambda pair: int(pair.source))
    assert sample_pairs(pairs, 50) == sample_pairs(pairs, 99) == pairs


def test_an_empty_source_still_has_its_end_symbol(task: Translation, model: Any) -> None:
    for m in task.head_measures(model, [Pair("", "a")]):
        if m.name.site == "cross":
            assert (m.entropy, m.edge) == (0.0, 1.0)
            assert m.divergence > 0
