"""Any encoder, pooled into one vector, and logistic regression over it (softmax for more than two labels)."""

from __future__ import annotations

from typing import Any, Literal

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from seqloom.batches.collate import Batch
from seqloom.models.encoders import EncoderSettings
from seqloom.models.memory import Memory
from seqloom.models.pooling import Pool, Pooling, last_needs_states
from seqloom.models.settings import TextVectorsSettings
from seqloom.models.source_encoder import source_encoder
from seqloom.nn.dropout import Dropout
from seqloom.nn.embeddings import SymbolEmbedding
from seqloom.settings import ModelSettings


class ClassifierSettings(ModelSettings):
    """Settings of the classifier."""

    kind: Literal["classifier"] = "classifier"
    encoder: EncoderSettings
    pooling: Pool = Field("mean", description="how a vector for each symbol becomes one: the mean of all, …")
    dropout: float = Field(0.0, ge=0.0, lt=1.0, description="on the pooled vector")
    word_dropout: float = Field(0.0, ge=0.0, lt=1.0, description="share of words that are not seen in training")
    noise: float = Field(
        0.0, ge=0.0, le=10.0, description="of series: the deviation of noise on scaled values in training"
    )
    pretrained: TextVectorsSettings | None = Field(None, description="vectors that the embedding starts from")

    @model_validator(mode="after")
    def _has_a_last(self) -> ClassifierSettings:
        last_needs_states(self.pooling, self.encoder.kind, self.encoder.memory)
        return self


class Classifier(nn.Module):
    """Encoder, pooling, and one product with a weight vector a label."""

    attends = False

    def __init__(
        self,
        settings: ClassifierSettings,
        *,
        num_labels: int,
        num_symbols: int | None = None,
        num_channels: int | None = None,
    ) -> None:
        super().__init__()
        s = self.settings = settings
        self.encoder: Any = source_encoder(
            s.encoder, num_symbols=num_symbols, num_channels=num_channels, word_dropout=s.word_dropout, noise=s.noise
        )
        self.pooling, self.dropout = Pooling(s.pooling, s.encoder.memory.size), Dropout(s.dropout)
        self.output = nn.Linear(s.encoder.memory.size, num_labels)
        nn.init.zeros_(self.output.bias)

    @property
    def embeddings(self) -> dict[str, SymbolEmbedding]:
        """The tables of vectors by side; a series has none."""
        reader = self.encoder.reader
        return {"text": reader.embedding} if hasattr(reader, "embedding") else {}

    def forward(self, batch: Batch, trace: Any = None) -> Tensor:
        """-> (rows, labels) logits; what the first row showed is put into a trace."""
        memory = self.encoder.encode(batch.source, trace)
        logits: Tensor = self.output(self.dropout(self.pooling(memory)))
        if trace is not None:
            trace.add("contributions", self.contributions(memory)[0], rows="label", columns="source")
        return logits

    @torch.no_grad()
    def contributions(self, memory: Memory) -> Tensor:
        """(rows, labels, time): what each vector adds to each label's logit; with the bias they sum up to it."""
        values, shares = self.pooling.shares(memory)
        return torch.einsum("rtd,ld->rlt", values * shares, self.output.weight)
