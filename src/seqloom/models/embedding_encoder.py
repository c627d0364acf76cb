"""The simplest encoder: every symbol's own vector, and nothing that knows its neighbours."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field
from torch import nn

from seqloom.models.memory import Memory, MemoryShape
from seqloom.nn.dropout import Dropout
from seqloom.nn.masks import real_or_none
from seqloom.settings import ModelSettings


class EmbeddingEncoderSettings(ModelSettings):
    """Settings of the encoder that only looks symbols up."""

    kind: Literal["embeddings"] = "embeddings"
    size: int = Field(100, ge=1, description="of a symbol's vector")
    dropout: float = Field(0.0, ge=0.0, lt=1.0)

    @property
    def embedding_size(self) -> int:
        return self.size

    @property
    def memory(self) -> MemoryShape:
        return MemoryShape(self.size)


class EmbeddingEncoder(nn.Module):
    """Embeddings alone (a bag of words, in their order)."""

    def __init__(self, settings: EmbeddingEncoderSettings, reader: nn.Module) -> None:
        """`reader` turns a batch of sources into vectors of `size`."""
        super().__init__()
        self.reader, self.memory, self.dropout = reader, settings.memory, Dropout(settings.dropout)

    def encode(self, source: Any, trace: Any = None) -> Memory:
        """The vectors as they are."""
        values = self.dropout(self.reader(source))
        return Memory(values, real_or_none(source.lengths, values.shape[1]))
