"""Text as a target: what is read and predicted of it, and over which symbols its loss is taken."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from seqloom.batches.collate import Batch
from seqloom.batches.shards import write_shard
from seqloom.models.encoder_decoder import EncoderDecoder, RecurrentTranslatorSettings
from seqloom.sources.text import TextSource
from seqloom.targets.text import TextTarget, sampled_features, text_loss
from seqloom.text.settings import TextSettings
from seqloom.text.special import BOS_ID, EOS_ID
from seqloom.text.tokenizers import Tokenizer
from seqloom.training.settings import TrainingSettings

TEXTS = ["a b c", "d", "", "c a"]


@pytest.fixture(scope="module")
def target() -> TextTarget:
    return TextTarget(Tokenizer.train(TEXTS, TextSettings(tokenizer="word", vocabulary_size=None)))


@pytest.fixture
def model(target: TextTarget) -> Any:
    torch.manual_seed(2)
    settings = RecurrentTranslatorSettings(cell="gru", embedding_size=5, hidden_size=6, dropout=0.0)
    size = len(target.tokenizer)
    return EncoderDecoder(settings, source_symbols=size, target_symbols=size)


def batch_of(target: TextTarget, texts: list[str]) -> Batch:
    ids = target.tokenizer.encode_many(texts)
    return Batch(TextSource(target.tokenizer).batch(texts), target.collate({"ids": ids}))


def test_each_symbol_is_predicted_from_those_before_it(target: TextTarget) -> None:
    made = target.collate({"ids": target.tokenizer.encode_many(["a b", "c"])})
    a, b, c = target.tokenizer.encode("a b c")
    assert made.inputs.tolist() == [[BOS_ID, a, b], [BOS_ID, c, 0]]
    assert made.outputs.tolist() == [[a, b, EOS_ID], [c, EOS_ID, 0]]
    assert made.lengths.tolist() == [3, 2]
    assert made.count == 5
    assert target.labels([a, b]) == {"target": ["a", "b", "<eos>"], "target_in": ["<bos>", "a", "b"]}


@pytest.mark.parametrize("plain", [True, False])
def test_the_loss_is_a_sum_over_real_symbols(plain: bool, target: TextTarget, model: Any) -> None:
    """By hand, from the log probabilities of each text alone."""
    expected = 0.0
    for text in TEXTS:
        batch = batch_of(target, [text])
        log_probs = model.output(model(batch)).log_softmax(-1)[0]
        expected -= float(sum(log_probs[i, gold] for i, gold in enumerate(batch.target.outputs[0])))
    found = text_loss(model.eval(), batch_of(target, TEXTS), TrainingSettings(steps=1, plain=plain))
    assert float(found.nll) == pytest.approx(expected, rel=1e-5)
    assert float(found.loss) == pytest.approx(expected, rel=1e-5)


def test_smoothing_and_sampling_are_for_training_only(target: TextTarget, model: Any) -> None:
    batch = batch_of(target, TEXTS)
    plain = TrainingSettings(steps=1)
    for name, value in (("label_smoothing", 0.3), ("scheduled_sampling", 1.0), ("consistency", 1.0)):
        s = TrainingSettings(steps=1, **{name: value})
        assert float(text_loss(model.eval(), batch, s).loss) == float(text_loss(model.eval(), batch, plain).loss)
    smoothed = text_loss(model.train(), batch, TrainingSettings(steps=1, label_smoothing=0.3))
    assert float(smoothed.loss.detach()) != pytest.approx(float(smoothed.nll), rel=1e-3)


def test_sampling_reads_the_models_own_guesses(target: TextTarget, model: Any) -> None:
    model.eval()
    batch = batch_of(target, ["a b c"])
    own = sampled_features(model, batch, 1.0)
    tokens = model.output(own)[0, :-1].argmax(-1).tolist()
    forced = Batch(batch.source, target.collate({"ids": [tokens]}))
    torch.testing.assert_close(own, model(forced))


def test_few_candidates_only_where_they_are_fewer(target: TextTarget, tmp_path: Any) -> None:
    shard = write_shard(([text] for text in TEXTS), target.fields(), target.key(), folder=tmp_path)["ids"]
    size = len(target.tokenizer)
    assert target.sampled(shard, TrainingSettings(steps=1)) is None
    assert target.sampled(shard, TrainingSettings(steps=1, candidates=size)) is None
    sampled = target.sampled(shard, TrainingSettings(steps=1, candidates=size - 1))
    assert sampled is not None
    counts = torch.ones(size)
    for text in TEXTS:
        for symbol in [*target.tokenizer.encode(text), EOS_ID]:
            counts[symbol] += 1
    torch.testing.assert_close(sampled.shares, (counts / counts.sum()).double(), rtol=1e-5, atol=0)
