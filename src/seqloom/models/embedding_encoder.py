"""The simplest encoder: every symbol's own vector, and nothing that knows its neighbours."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field
from torch import nn

from seqloom.models.memory import Memory, MemoryShape
from seqloom.models.text_reader import TextReader
from seqloom.nn.dropout import Dropout
from seqloom.nn.masks import real_or_none
from seqloom.settings import ModelSettings
from seqloom.vectors.settings import SubwordSettings


class EmbeddingEncoderSettings(ModelSettings):
    """Settings of the encoder that only looks symbols up."""

    kind: Literal["embeddings"] = "embeddings"
    size: int = Field(100, ge=1, description="of a symbol's vector")
    dropout: float = Field(0.0, ge=0.0, lt=1.0)
    word_ngrams: int = Field(
        1, ge=1, le=10, description="runs of up to so many symbols have vectors too, added to that of their last symbol"
    )
    buckets: int = Field(
        2**20, ge=1, le=100_000_000, description="word_ngrams: rows of the table that runs are hashed into"
    )
    subwords: SubwordSettings | None = Field(
        None, description="pieces of a word have vectors too, added to that of the word (fastText)"
    )

    @property
    def embedding_size(self) -> int:
        return self.size

    @property
    def memory(self) -> MemoryShape:
        return MemoryShape(self.size)


class EmbeddingEncoder(nn.Module):
    """Embeddings alone (a bag of words, in their order), and where wanted those of n-grams (Joulin et al. 2017)."""

    def __init__(self, settings: EmbeddingEncoderSettings, reader: nn.Module) -> None:
        """`reader` turns a batch of sources into vectors of `size`."""
        super().__init__()
        s = settings
        self.reader, self.memory, self.dropout = reader, s.memory, Dropout(s.dropout)
        if s.word_ngrams > 1 or s.subwords is not None:
            assert isinstance(reader, TextReader), "n-grams are of symbols"
            reader.read_ngrams(s.word_ngrams, s.buckets, 0 if s.subwords is None else s.subwords.buckets)

    def encode(self, source: Any, trace: Any = None) -> Memory:
        """The vectors as they are."""
        values = self.dropout(self.reader(source))
        return Memory(values, real_or_none(source.lengths, values.shape[1]))
