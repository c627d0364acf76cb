"""How text enters an encoder: a vector for every symbol, those of n-grams, and what a language model makes."""

from __future__ import annotations

from torch import Tensor, nn

from seqloom.batches.collate import Subwords, Tokens
from seqloom.models.settings import ContextualSettings
from seqloom.nn.contextual import ContextualVectors
from seqloom.nn.dropout import WordDropout
from seqloom.nn.embeddings import SymbolEmbedding
from seqloom.nn.hashing import HashedTable, ngram_rows


class TextReader(nn.Module):
    """Symbols -> vectors.

    Added to them, where they are wanted: those of the n-grams that end at a symbol, those of the pieces of a word, and
    what a language model makes of it.
    """

    def __init__(self, embedding: SymbolEmbedding, *, word_dropout: float = 0.0) -> None:
        super().__init__()
        self.embedding = embedding
        self.word_dropout = WordDropout(word_dropout)
        self.contextual: ContextualVectors | None = None
        self.word_ngrams: HashedTable | None = None
        self.subwords: HashedTable | None = None
        self.longest = 1

    def read_ngrams(self, longest: int, buckets: int, subword_buckets: int) -> None:
        """Have vectors for runs of up to `longest` symbols, and for pieces of words; a table without rows is none."""
        size = self.embedding.weight.shape[1]
        if longest > 1:
            self.longest, self.word_ngrams = longest, HashedTable(buckets, size)
        if subword_buckets:
            self.subwords = HashedTable(subword_buckets, size)

    def read_beside(self, settings: ContextualSettings, reader: nn.Module) -> None:
        """Let a language model read every text too."""
        self.contextual = ContextualVectors(reader, size=self.embedding.weight.shape[1], freeze=settings.freeze)

    def forward(self, tokens: Tokens) -> Tensor:
        """-> (batch, time, size)"""
        ids = self.word_dropout(tokens.ids)
        embedded: Tensor = self.embedding(ids)
        if self.word_ngrams is not None:
            rows = ngram_rows(ids, self.longest, self.word_ngrams.weight.shape[0] - 1)
            for length in range(self.longest - 1):
                embedded = embedded + self.word_ngrams(rows[..., length])
        if self.subwords is not None:
            assert tokens.subwords is not None, "the source cuts words into pieces"
            embedded = embedded + self._of_subwords(tokens.subwords, ids)
        if self.contextual is None:
            return embedded
        read = tokens.context
        assert read is not None, "the task reads every source twice"
        return embedded + self.contextual(read.symbols, read.lengths, read.first, read.last)

    def _of_subwords(self, found: Subwords, ids: Tensor) -> Tensor:
        """(batch, time, size): the sum over the pieces of each word; nothing of a word that is missed."""
        assert self.subwords is not None
        places = found.places(ids.shape[1])
        rows = found.rows.where(ids.flatten()[places] != self.embedding.padding_id, 0)
        vectors: Tensor = self.subwords(rows)
        summed = vectors.new_zeros(ids.numel(), vectors.shape[1]).index_add(0, places, vectors)
        return summed.view(*ids.shape, vectors.shape[1])
