"""How text enters an encoder: a vector for every symbol, and beside it what a language model makes of its word."""

from __future__ import annotations

from torch import Tensor, nn

from seqloom.batches.collate import Tokens
from seqloom.models.settings import ContextualSettings
from seqloom.nn.contextual import ContextualVectors
from seqloom.nn.dropout import WordDropout
from seqloom.nn.embeddings import SymbolEmbedding


class TextReader(nn.Module):
    """Symbols -> vectors; where a language model reads the text too, what it makes of each word is added."""

    def __init__(self, embedding: SymbolEmbedding, *, word_dropout: float = 0.0) -> None:
        super().__init__()
        self.embedding = embedding
        self.word_dropout = WordDropout(word_dropout)
        self.contextual: ContextualVectors | None = None

    def read_beside(self, settings: ContextualSettings, reader: nn.Module) -> None:
        """Let a language model read every text too."""
        self.contextual = ContextualVectors(reader, size=self.embedding.weight.shape[1], freeze=settings.freeze)

    def forward(self, tokens: Tokens) -> Tensor:
        """-> (batch, time, size)"""
        embedded: Tensor = self.embedding(self.word_dropout(tokens.ids))
        if self.contextual is None:
            return embedded
        read = tokens.context
        assert read is not None, "the task reads every source twice"
        return embedded + self.contextual(read.symbols, read.lengths, read.first, read.last)
