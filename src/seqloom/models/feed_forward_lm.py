"""The neural language model of Bengio et al. 2003: the next symbol from a window of the last few.

P(next | window) = softmax(b + U tanh(d + H x) [+ W x]), where x is the embeddings of the window side by side.
"""

from __future__ import annotations

from typing import Any, Literal

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from seqloom.models.settings import TextVectorsSettings
from seqloom.nn.dropout import Dropout
from seqloom.nn.embeddings import SymbolEmbedding, start_within
from seqloom.settings import ModelSettings
from seqloom.text.special import PAD_ID


class FeedForwardLanguageModelSettings(ModelSettings):
    """Settings of the feed-forward language model."""

    kind: Literal["feed_forward_lm"] = "feed_forward_lm"
    size: int = Field(100, ge=1, description="of the embedding")
    hidden_size: int = Field(200, ge=1)
    window: int = Field(4, ge=1, le=1000, description="symbols it looks at: n - 1 of an n-gram")
    direct: bool = Field(False, description="the output layer also sees the embeddings themselves")
    tie: bool = Field(False, description="the output layer is the embedding")
    dropout: float = Field(0.0, ge=0.0, lt=1.0, description="on embeddings and on the hidden layer")
    init_range: float | None = Field(
        None, gt=0.0, le=10.0, description="weights start uniform within it, and embeddings are not scaled up"
    )

    pretrained: TextVectorsSettings | None = Field(None, description="vectors that the embedding starts from")

    @model_validator(mode="after")
    def _fits(self) -> FeedForwardLanguageModelSettings:
        if self.tie and self.direct:
            raise ValueError("tie needs direct: false: with direct connections the output layer is wider than a vector")
        if self.tie and self.size != self.hidden_size:
            raise ValueError(f"tie needs size and hidden_size to be equal; got {self.size} and {self.hidden_size}")
        return self


class FeedForwardLanguageModel(nn.Module):
    """Language model with a fixed window (Bengio et al. 2003).

    Before the beginning there is nothing: zeros. The state is the last window - 1 symbols.
    """

    attends = False

    def __init__(self, settings: FeedForwardLanguageModelSettings, *, num_symbols: int) -> None:
        super().__init__()
        s = self.settings = settings
        self.embedding = SymbolEmbedding(num_symbols, s.size)
        self.hidden = nn.Linear(s.window * s.size, s.hidden_size)
        nn.init.xavier_uniform_(self.hidden.weight)
        nn.init.zeros_(self.hidden.bias)
        self.output = nn.Linear(s.hidden_size + (s.window * s.size if s.direct else 0), num_symbols)
        nn.init.zeros_(self.output.bias)
        if s.tie:
            self.output.weight = self.embedding.weight
        self.dropout = Dropout(s.dropout)
        if s.init_range is not None:
            start_within(s.init_range, self.embedding, [self.output.weight, self.hidden.weight])

    def forward(
        self, inputs: Tensor, state: Tensor | None = None, lengths: Tensor | None = None, trace: Any = None
    ) -> tuple[Tensor, Tensor]:
        """(rows, time) symbols -> features (rows, time, size) for the output layer, the last symbols.

        With direct connections the features are the hidden layer and x side by side, so one output layer holds U and W.
        """
        (rows, time), window = inputs.shape, self.settings.window
        before = inputs.new_full((rows, window - 1), PAD_ID) if state is None else state
        symbols = torch.cat([before, inputs], 1)  # (rows, window - 1 + time)
        embedded = self.embedding(symbols).masked_fill((symbols == PAD_ID)[..., None], 0.0)  # also where it is tied
        embedded = self.dropout(embedded)
        seen = torch.cat([embedded[:, place : place + time] for place in range(window)], -1)  # the oldest first
        features = self.dropout(self.hidden(seen).tanh())  # (rows, time, hidden)
        if self.settings.direct:
            features = torch.cat([features, seen], -1)
        return features, self._last(symbols, lengths)

    def _last(self, symbols: Tensor, lengths: Tensor | None) -> Tensor:
        """(rows, window - 1): what the next window begins with."""
        places = torch.arange(self.settings.window - 1, device=symbols.device)
        ends = symbols.shape[1] - len(places) if lengths is None else lengths.to(symbols.device)[:, None]
        return symbols.gather(1, (places + ends).expand(symbols.shape[0], -1))

    def room(self, state: Any) -> None:
        """There is no end to what it can read."""
