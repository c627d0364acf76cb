"""Text as a target: what is minimised over its symbols, and how answers are searched for and shown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from seqloom.batches.collate import Batch, Target, collate_targets
from seqloom.batches.running import count_symbols
from seqloom.batches.shards import Field, Sequences
from seqloom.losses import (
    SampledCrossEntropy,
    SymbolLoss,
    consistent_cross_entropy,
    plain_consistent_cross_entropy,
    plain_cross_entropy,
    projected_cross_entropy,
)
from seqloom.nn.drawing import own_generator
from seqloom.text.recutting import Recutter
from seqloom.text.special import BOS, EOS, EOS_ID
from seqloom.text.tokenizers import Tokenizer
from seqloom.training.settings import TrainingSettings


@dataclass(frozen=True)
class TextTarget:
    """Texts as symbols, each with a beginning to start from and an end to be said."""

    tokenizer: Tokenizer
    ends = 1
    is_text = True  # its length can be compared with that of a source

    def key(self) -> str:
        return self.tokenizer.to_json()

    def fields(self, recut: int | None = None) -> dict[str, Field]:
        """`recut`: a seed, to cut words of training texts into other pieces each time (BPE dropout)."""
        encode = self.tokenizer.encode_many
        if recut is not None:
            encode = Recutter(self.tokenizer, self.tokenizer.settings.dropout, recut).encode_many
        return {"ids": Field(encode, size=len(self.tokenizer))}

    def unknown_rate(self, raw: Sequence[str]) -> tuple[int, int]:
        """How many symbols of texts are unknown, and how many there are."""
        return self.tokenizer.unknown_rate(raw)

    def collate(self, rows: Mapping[str, Sequence[Any]]) -> Target:
        return collate_targets(rows["ids"])

    def labels(self, tokens: Sequence[int]) -> dict[str, list[str]]:
        """What stands along the target's axes in pictures: what is said, and what is read while it is."""
        shown = self.tokenizer.labels(tokens)
        return {"target": [*shown, EOS], "target_in": [BOS, *shown]}

    def sampled(self, sequences: Sequences, s: TrainingSettings) -> SampledCrossEntropy | None:
        """The loss over few candidates, where it is wanted and they are fewer than all."""
        symbols = len(self.tokenizer)
        if s.candidates is None or s.candidates >= symbols:
            return None
        counts = count_symbols(sequences.tokens, symbols)
        counts[EOS_ID] += len(sequences)  # said after every text, but not stored
        return SampledCrossEntropy(torch.from_numpy(counts), s.candidates, s.plain)


def text_loss(model: Any, batch: Batch, s: TrainingSettings, sampled: SampledCrossEntropy | None = None) -> SymbolLoss:
    """Cross-entropy of the real target symbols, summed; padding is left out before the output layer.

    A model in training is asked to choose among few candidates where `sampled` is given, else among all symbols.
    """
    chance, smoothing = (s.scheduled_sampling, s.label_smoothing) if model.training else (0.0, 0.0)
    twice = model.training and s.consistency > 0
    if twice:
        batch = batch.doubled()
    features = sampled_features(model, batch, chance) if chance else model(batch)
    real = batch.target.outputs.flatten().nonzero()[:, 0]  # PAD is 0
    rows, gold = features.flatten(0, 1)[real], batch.target.outputs.flatten()[real]
    weight, bias = model.output.weight, model.output.bias
    if twice:
        gold = gold[: len(gold) // 2]
    if sampled is not None and model.training:
        return sampled(rows, weight, bias, gold, smoothing, s.consistency)
    if twice:
        agreeing = plain_consistent_cross_entropy if s.plain else consistent_cross_entropy
        return agreeing(rows, weight, bias, gold, smoothing, s.consistency)
    entropy = plain_cross_entropy if s.plain else projected_cross_entropy
    return entropy(rows, weight, bias, gold, smoothing)


def sampled_features(model: Any, batch: Batch, chance: float) -> Tensor:
    """Scheduled sampling (Bengio et al. 2015): each symbol read is, with this chance, the model's own best guess."""
    state, read = model.start(batch.source), batch.target.inputs
    tokens, steps = read[:, 0], []
    for time in range(read.shape[1]):
        features, state, _ = model.advance(tokens, state)
        steps.append(features)
        if time + 1 < read.shape[1]:
            with torch.no_grad():
                own = model.output(features).argmax(-1)
            drawn = torch.rand(len(batch), generator=own_generator()) < chance
            tokens = torch.where(drawn, own, read[:, time + 1])
    return torch.stack(steps, 1)
