"""What a decoder must offer to be searched, and the choices a user has about the search."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from seqloom.batches.collate import SourceBatch
from seqloom.settings import Settings
from seqloom.text.special import BOS_ID, PAD_ID, UNK_ID


class DecodingSettings(Settings):
    """How answers are searched for."""

    method: Literal["greedy", "beam", "sample"] = "beam"
    beam_size: int = Field(5, ge=1, le=1000)
    n_best: int = Field(1, ge=1, le=1000)
    length_penalty: float = Field(1.0, ge=0.0, description="0: none; larger favours longer answers (Wu et al. 2016)")
    coverage_penalty: float = Field(0.0, ge=0.0, description="punish leaving source words unattended (Wu et al. 2016)")
    early_stop: bool = Field(True, description="stop once beam_size answers ended; false: until none could still win")
    temperature: float = Field(1.0, gt=0.0)
    top_k: int = Field(0, ge=0, description="sample among the k likeliest symbols; 0: all")
    top_p: float = Field(1.0, gt=0.0, le=1.0, description="sample among the likeliest symbols that sum to p")
    seed: int = 0
    max_length: int = Field(200, ge=1)
    max_ratio: float = Field(
        3.0, gt=0.0, description="an answer has at most this many symbols a source symbol, plus 10"
    )
    unknown: Literal["replace", "forbid", "keep"] = Field(
        "replace", description="where the model would say UNK: show the most attended source word, or never say it"
    )
    batch_tokens: int = Field(2048, ge=1)

    @model_validator(mode="after")
    def _fits(self) -> DecodingSettings:
        if self.method == "greedy" and self.n_best > 1:
            raise ValueError("method: greedy finds one answer; n_best needs beam or sample")
        return self

    def limit(self, source_length: int) -> int:
        """The most symbols an answer to a source of this length may have, end symbol included."""
        return min(self.max_length, int(self.max_ratio * source_length) + 10)


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
