"""One contract for every encoder under every pooling: contributions sum up, padding is nothing, all weights learn."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from encoder_decoders import EMBEDDING, ENCODER_PARTS, HIDDEN, assert_near, without_dropout

from seqloom.batches.collate import Batch, collate_sources
from seqloom.errors import RecipeError
from seqloom.inspection.trace import Trace
from seqloom.models import CLASSIFIERS
from seqloom.models.classifier import Classifier, ClassifierSettings
from seqloom.models.encoders import ENCODERS
from seqloom.models.memory import Memory
from seqloom.models.pooling import Pool, pool
from seqloom.nn.cells import CELLS
from seqloom.nn.hashing import HashedTable
from seqloom.nn.masks import length_mask
from seqloom.nn.plain import use_plain_paths
from seqloom.nn.pooling import AttentionPooling
from seqloom.nn.positions import POSITIONS
from seqloom.settings import validated
from seqloom.targets.label import Labels
from seqloom.training.checkpoints import check_fits, load_tensors, model_tensors, put_weights, save_tensors

SYMBOLS, LABELS = 17, 3
TEXTS = [[4, 5, 6, 7, 8], [9, 10], [11, 12, 13, 14], []]
POOLINGS = ("attention", "last", "max", "mean", "sum")
ENCODER_KINDS: dict[str, dict[str, Any]] = {
    **ENCODER_PARTS,
    "ngrams": dict(ENCODER_PARTS["embeddings"], word_ngrams=3, buckets=37),
    **{f"recurrent-{cell}": dict(ENCODER_PARTS["recurrent"], cell=cell, num_layers=2) for cell in CELLS},
    "one-direction": dict(kind="recurrent", embedding_size=EMBEDDING, hidden_size=11, bidirectional=False),
    "residual": dict(ENCODER_PARTS["recurrent"], num_layers=3, connections="residual"),
    **{f"transformer-{name}": dict(ENCODER_PARTS["transformer"], num_heads=1, positions=name) for name in POSITIONS},
}
KINDS = {
    f"{encoder}, {pooling}": dict(encoder=given, pooling=pooling)
    for encoder, given in ENCODER_KINDS.items()
    for pooling in POOLINGS
    if pooling != "last" or given["kind"] == "recurrent"
}
every_kind = pytest.mark.parametrize("kind", sorted(KINDS))


def build(kind: str, **more: Any) -> Classifier:
    torch.manual_seed(31)
    settings = validated(ClassifierSettings, KINDS[kind] | more)
    model = Classifier(settings, num_symbols=SYMBOLS, num_labels=LABELS)
    for weight in model.parameters():  # at their start, biases and peepholes are zero and would hide mistakes
        weight.data += 0.3 * torch.randn_like(weight)
    for part in model.modules():
        if isinstance(part, HashedTable):
            part.weight.data[0] = 0.0  # nobody's row
    return model.eval()


def batch_of(texts: list[list[int]]) -> Batch:
    return Batch(collate_sources(texts), Labels(torch.arange(len(texts)) % LABELS))


def stretched(batch: Batch, width: int, symbol: int = 0) -> Batch:
    return Batch(replace(batch.source, ids=F.pad(batch.source.ids, (0, width), value=symbol)), batch.target)


def test_the_kinds_hold_every_encoder_and_every_pooling() -> None:
    assert {given["encoder"]["kind"] for given in KINDS.values()} == ENCODERS.keys()
    assert set(Pool.__args__) == set(POOLINGS)
    assert CLASSIFIERS["classifier"] == (ClassifierSettings, Classifier)


@every_kind
def test_contributions_and_bias_sum_up_to_the_logits(kind: str) -> None:
    model, batch = build(kind), batch_of(TEXTS)
    with torch.no_grad():
        logits, found = model(batch), model.contributions(model.encoder.encode(batch.source))
    assert found.shape == (len(TEXTS), LABELS, batch.source.ids.shape[1])
    assert_near(found.sum(-1) + model.output.bias, logits)
    assert not found.transpose(1, 2)[~length_mask(batch.source.lengths, batch.source.ids.shape[1])].any()


@every_kind
def test_padding_changes_nothing(kind: str) -> None:
    model, batch = build(kind), batch_of(TEXTS)
    with torch.no_grad():
        expected = model(batch)
        assert_near(model(stretched(batch, 4)), expected)
        assert_near(model(stretched(batch, 4, symbol=5)), expected)  # even where padding holds a symbol


@every_kind
def test_batched_equals_single(kind: str) -> None:
    model, batch = build(kind), batch_of(TEXTS)
    with torch.no_grad():
        together = model(batch)
        for row, text in enumerate(TEXTS):
            assert_near(model(batch_of([text]))[0], together[row])
        for number in range(3):
            assert_near(model(batch.part(number, 3)), together[number::3])


@every_kind
def test_gradients_reach_every_weight(kind: str) -> None:
    model, batch = build(kind).train(), batch_of(TEXTS)
    F.cross_entropy(model(batch), batch.target.ids).backward()
    for name, weight in model.named_parameters():
        assert weight.grad is not None, name
        gradient = weight.grad.to_dense()  # that of hashed n-grams is sparse
        assert gradient.isfinite().all(), name
        assert gradient.any(), name


@every_kind
def test_the_plain_paths_agree_in_values_and_gradients(kind: str) -> None:
    model, batch, found = build(kind), batch_of(TEXTS), []
    for plain in (False, True):
        use_plain_paths(model, plain)
        model.zero_grad()
        logits = model(batch)
        F.cross_entropy(logits, batch.target.ids).backward()
        found.append((logits.detach(), {name: weight.grad.to_dense() for name, weight in model.named_parameters()}))
    torch.testing.assert_close(found[0], found[1], atol=3e-5, rtol=1e-4)


@every_kind
def test_a_trace_changes_nothing_and_shows_the_contributions(kind: str) -> None:
    model, batch, trace = build(kind), batch_of(TEXTS), Trace()
    with torch.no_grad():
        logits = model(batch, trace)
        assert_near(logits, model(batch))
    shown = trace["contributions"]
    assert shown.axes == ("label", "source")
    assert_near(torch.from_numpy(shown.values).sum(-1), logits[0] - model.output.bias.detach())
    for name in trace.names():
        if trace[name].axes[0] == "head":
            weights = torch.from_numpy(trace[name].values)
            assert_near(weights.sum(-1), torch.ones(weights.shape[:-1]))


@every_kind
def test_saving_and_loading_agree(kind: str, tmp_path: Path) -> None:
    model, batch = build(kind), batch_of(TEXTS)
    save_tensors(tmp_path / "model.safetensors", model_tensors(model))
    other, loaded = build(kind), load_tensors(tmp_path / "model.safetensors")
    for weight in other.parameters():
        weight.data.normal_()
    check_fits(lambda: build(kind), loaded, "model.safetensors")
    put_weights(other, loaded)
    with torch.no_grad():
        assert torch.equal(other(batch), model(batch))


@every_kind
def test_dropout_is_for_training_only(kind: str) -> None:
    model, batch = build(kind, word_dropout=0.5), batch_of(TEXTS)
    assert torch.equal(model(batch), model(batch))
    model.train()
    assert not torch.equal(model(batch), model(batch))
    without_dropout(model)
    model.encoder.reader.word_dropout.rate = 0.0
    assert_near(model(batch), model.eval()(batch))


def test_words_that_are_not_seen_are_drawn_in_training(monkeypatch: pytest.MonkeyPatch) -> None:
    model, batch = build("embeddings, mean", word_dropout=0.5), batch_of(TEXTS)
    without_dropout(model)
    assert not torch.equal(*(model.train()(batch) for _ in range(2)))
    monkeypatch.setattr(model.encoder.reader.word_dropout, "forward", torch.zeros_like)
    logits = model(batch)
    assert_near(logits, logits[:1].expand_as(logits))


# -- pooling by hand -------------------------------------------------------------------------------------------------

VALUES = torch.tensor([[[1.0, -4.0], [3.0, -2.0], [9.0, 9.0]], [[5.0, 6.0], [7.0, 2.0], [-6.0, 1.0]]])
MASK = torch.tensor([[True, True, False], [True, True, True]])
SUMMARY = torch.tensor([[0.5, 1.5], [2.5, 3.5]])


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        ("mean", [[2.0, -3.0], [2.0, 3.0]]),
        ("sum", [[4.0, -6.0], [6.0, 9.0]]),
        ("max", [[3.0, -2.0], [7.0, 6.0]]),
        ("last", [[0.5, 1.5], [2.5, 3.5]]),
    ],
)
def test_pooling_by_hand(how: Any, expected: list[list[float]]) -> None:
    assert pool(Memory(VALUES, MASK, SUMMARY), how).tolist() == expected
    assert pool(Memory(VALUES[1:], None, SUMMARY[1:]), how).tolist() == expected[1:]


def test_attention_pooling_by_hand() -> None:
    """Yang et al. 2016, equations 5 to 7, with u_t = tanh of the first unit: weights are powers of e^tanh."""
    pooling = AttentionPooling(2)
    pooling.inner.weight.data = torch.tensor([[1.0, 0.0], [0.0, 0.0]])
    pooling.inner.bias.data = torch.tensor([0.0, 5.0])
    pooling.v.data = torch.tensor([2.0, 0.0])
    values = torch.tensor([[[0.3, 1.0], [-0.4, 2.0], [9.0, 9.0]]])
    weights = pooling(values, torch.tensor([[True, True, False]]))
    powers = [math.exp(2 * math.tanh(0.3)), math.exp(2 * math.tanh(-0.4))]
    assert weights[0].tolist() == pytest.approx([power / sum(powers) for power in powers] + [0.0])


def test_contributions_by_hand() -> None:
    """Of the first row, the maximum 3 comes from place 1 in both units; of the second, from places 1 and 0."""
    model = Classifier(
        ClassifierSettings(encoder=dict(kind="embeddings", size=2), pooling="max"), num_symbols=7, num_labels=2
    )
    model.output.weight.data = torch.tensor([[1.0, 10.0], [2.0, 0.0]])
    found = model.contributions(Memory(VALUES, MASK))
    assert found.tolist() == [[[0, -17, 0], [0, 6, 0]], [[60, 7, 0], [0, 14, 0]]]


# -- settings --------------------------------------------------------------------------------------------------------


def test_the_last_state_is_of_recurrent_encoders() -> None:
    with pytest.raises(RecipeError, match=r"pooling: last is of recurrent encoders; got encoder\.kind: embeddings"):
        validated(ClassifierSettings, dict(encoder=dict(kind="embeddings"), pooling="last"))
    with pytest.raises(RecipeError, match=r"pooling must be one of attention, last, max, mean, sum; got 'means'"):
        validated(ClassifierSettings, dict(encoder=dict(kind="embeddings"), pooling="means"))


def test_the_one_table_is_named() -> None:
    model = build("recurrent, last")
    assert model.embeddings == {"text": model.encoder.reader.embedding}
    assert model.output.in_features == HIDDEN
