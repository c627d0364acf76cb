"""What a decoder must offer to be searched, and one step of the search."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from seqloom.batches.collate import SourceBatch
from seqloom.decoding.settings import DecodingSettings
from seqloom.text.special import BOS_ID, PAD_ID, UNK_ID


class Steppable(Protocol):
    """A model that answers one symbol at a time. `output` maps features to one logit a symbol."""

    output: nn.Linear
    attends: bool

    def start(self, batch: SourceBatch) -> Any: ...

    def advance(self, tokens: Tensor, state: Any) -> tuple[Tensor, Any, Tensor | None]: ...


@dataclass(frozen=True)
class Hypothesis:
    """One answer: symbols without EOS, its summed log probability (EOS included), and the score it is ranked by."""

    tokens: list[int]
    log_probability: float
    score: float
    token_log_probabilities: list[float] = field(default_factory=list)
    attention: Tensor | None = None  # (symbols + EOS, source)
    finished: bool = True


def next_log_probabilities(
    model: Steppable, tokens: Tensor, state: Any, settings: DecodingSettings
) -> tuple[Tensor, Any, Tensor | None]:
    """One step for all rows: (rows, symbols) log probabilities; PAD and BOS are never said.

    UNK is said only where it may be shown, or where attention can tell which source word to put in its place.
    """
    may_be_unknown = settings.unknown == "keep" or (settings.unknown == "replace" and model.attends)
    features, state, weights = model.advance(tokens, state)
    logits = model.output(features)
    forbidden = [PAD_ID, BOS_ID] if may_be_unknown else [PAD_ID, BOS_ID, UNK_ID]
    logits[:, forbidden] = float("-inf")
    return logits.log_softmax(-1), state, weights


def limits(batch: SourceBatch, settings: DecodingSettings) -> Tensor:
    return torch.tensor([settings.limit(int(length)) for length in batch.source_lengths])
