"""Any encoder, pooled into one vector, and logistic regression over it (softmax for more than two labels)."""

from __future__ import annotations

from typing import Any, Literal

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from seqloom.batches.collate import Batch
from seqloom.models.encoders import ENCODERS, EncoderSettings
from seqloom.models.memory import Memory, mean_of_real
from seqloom.models.settings import TextVectorsSettings
from seqloom.models.text_reader import TextReader
from seqloom.nn.embeddings import SymbolEmbedding
from seqloom.settings import ModelSettings

Pool = Literal["last", "max", "mean", "sum"]


class ClassifierSettings(ModelSettings):
    """Settings of the classifier."""

    kind: Literal["classifier"] = "classifier"
    encoder: EncoderSettings
    pooling: Pool = Field("mean", description="how a vector for each symbol becomes one: the mean of all, …")
    word_dropout: float = Field(0.0, ge=0.0, lt=1.0, description="share of words that are not seen in training")
    pretrained: TextVectorsSettings | None = Field(None, description="vectors that the embedding starts from")

    @model_validator(mode="after")
    def _has_a_last(self) -> ClassifierSettings:
        if self.pooling == "last" and self.encoder.memory.cell is None:
            raise ValueError(f"pooling: last is of recurrent encoders; got encoder.kind: {self.encoder.kind}")
        return self


class Classifier(nn.Module):
    """Encoder, pooling, and one product with a weight vector a label."""

    attends = False

    def __init__(self, settings: ClassifierSettings, *, num_symbols: int, num_labels: int) -> None:
        super().__init__()
        s = self.settings = settings
        reader = TextReader(SymbolEmbedding(num_symbols, s.encoder.embedding_size), word_dropout=s.word_dropout)
        self.encoder: Any = ENCODERS[s.encoder.kind][1](s.encoder, reader)
        self.output = nn.Linear(s.encoder.memory.size, num_labels)
        nn.init.zeros_(self.output.bias)

    @property
    def embeddings(self) -> dict[str, SymbolEmbedding]:
        """The tables of vectors by side."""
        return {"text": self.encoder.reader.embedding}

    def forward(self, batch: Batch, trace: Any = None) -> Tensor:
        """-> (rows, labels) logits; what the first row showed is put into a trace."""
        memory = self.encoder.encode(batch.source, trace)
        logits: Tensor = self.output(pool(memory, self.settings.pooling))
        if trace is not None:
            trace.add("contributions", self.contributions(memory)[0], rows="label", columns="source")
        return logits

    @torch.no_grad()
    def contributions(self, memory: Memory) -> Tensor:
        """(rows, labels, time): what each vector adds to each label's logit, so that these and the bias sum up to it.

        Of sum and mean that is its share of the sum; of max, each unit counts where it is largest; of last, the last
        vector has all.
        """
        weight, values = self.output.weight, memory.values
        mask = values.new_ones(values.shape[:2], dtype=torch.bool) if memory.mask is None else memory.mask
        if self.settings.pooling == "last":
            last = mask.sum(1) - 1
            shares = torch.zeros_like(values).scatter(1, last[:, None, None].expand(-1, 1, values.shape[2]), 1.0)
            values = pool(memory, "last")[:, None].expand_as(values)
        elif self.settings.pooling == "max":
            hidden = values.masked_fill(~mask[..., None], float("-inf"))
            shares = torch.zeros_like(values).scatter(1, hidden.argmax(1, keepdim=True), 1.0)
        else:
            shares = mask[..., None].to(values.dtype).expand_as(values)
            if self.settings.pooling == "mean":
                shares = shares / mask.sum(1).clamp(min=1)[:, None, None]
        return torch.einsum("rtd,ld->rlt", values * shares, weight)


def pool(memory: Memory, how: Pool) -> Tensor:
    """(batch, time, size) -> (batch, size), padding left out."""
    values, mask = memory.values, memory.mask
    if how == "last":
        return memory.summarise()
    if how == "mean":
        return mean_of_real(values, mask)
    if how == "max":
        return (values if mask is None else values.masked_fill(~mask[..., None], float("-inf"))).amax(1)
    return (values if mask is None else values * mask[..., None]).sum(1)
