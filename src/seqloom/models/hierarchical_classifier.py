"""The hierarchical attention network (Yang et al. 2016): words make sentences, sentences make a document."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from seqloom.batches.collate import Batch
from seqloom.models.recurrent_encoder import RecurrentEncoder, RecurrentEncoderSettings
from seqloom.models.settings import CellName, TextVectorsSettings
from seqloom.models.text_reader import TextReader
from seqloom.nn.embeddings import SymbolEmbedding
from seqloom.nn.masks import length_mask
from seqloom.nn.pooling import AttentionPooling
from seqloom.settings import ModelSettings
from seqloom.text.sentences import SentenceSettings


class HierarchicalClassifierSettings(ModelSettings):
    """Settings of the hierarchical attention network."""

    kind: Literal["hierarchical_classifier"] = "hierarchical_classifier"
    cell: CellName = "gru"
    embedding_size: int = Field(200, ge=1)
    word_size: int = Field(100, ge=2, description="hidden size over words, of both directions together")
    sentence_size: int = Field(100, ge=2, description="hidden size over sentences, of both directions together")
    num_layers: int = Field(1, ge=1, description="on each of the two levels")
    dropout: float = Field(0.2, ge=0.0, lt=1.0, description="on embeddings, between layers, on both levels' states")
    word_dropout: float = Field(0.0, ge=0.0, lt=1.0, description="share of words that are not seen in training")
    sentences: SentenceSettings = Field(SentenceSettings(), description="how documents are cut")
    pretrained: TextVectorsSettings | None = Field(None, description="vectors that the embedding starts from")

    @model_validator(mode="after")
    def _halves(self) -> HierarchicalClassifierSettings:
        for name in ("word_size", "sentence_size"):
            if getattr(self, name) % 2:
                raise ValueError(f"{name} must be even, a half for each direction; got {getattr(self, name)}")
        return self


class Levels(NamedTuple):
    """What a network saw: attention over words (sentences, words) and over sentences (documents, most of them).

    `documents` (documents, size) are the documents' vectors.
    """

    words: Tensor
    sentences: Tensor
    documents: Tensor


class _Vectors(NamedTuple):
    """Vectors in place of symbols: `values` (rows, time, size), `lengths` (rows,)."""

    values: Tensor
    lengths: Tensor


class _Given(nn.Module):
    """Reads vectors that are there already."""

    def forward(self, source: _Vectors) -> Tensor:
        return source.values


class HierarchicalClassifier(nn.Module):
    """A recurrent encoder and attention over the words of each sentence, and the same over sentences."""

    attends = False
    traces_gates = False  # they belong to sentences, not to one text

    def __init__(self, settings: HierarchicalClassifierSettings, *, num_symbols: int, num_labels: int) -> None:
        super().__init__()
        s = self.settings = settings
        common: dict[str, Any] = {"cell": s.cell, "num_layers": s.num_layers, "dropout": s.dropout}
        reader = TextReader(SymbolEmbedding(num_symbols, s.embedding_size), word_dropout=s.word_dropout)
        words = RecurrentEncoderSettings(embedding_size=s.embedding_size, hidden_size=s.word_size, **common)
        sentences = RecurrentEncoderSettings(embedding_size=s.word_size, hidden_size=s.sentence_size, **common)
        self.words, self.sentences = RecurrentEncoder(words, reader), RecurrentEncoder(sentences, _Given())
        self.word_attention = AttentionPooling(s.word_size)
        self.sentence_attention = AttentionPooling(s.sentence_size)
        for attention, size in ((self.word_attention, s.word_size), (self.sentence_attention, s.sentence_size)):
            nn.init.normal_(attention.v, std=size**-0.5)  # two levels of equal weights would learn slowly
        self.output = nn.Linear(s.sentence_size, num_labels)
        nn.init.zeros_(self.output.bias)

    @property
    def embeddings(self) -> dict[str, SymbolEmbedding]:
        """The tables of vectors by side."""
        reader = self.words.reader
        assert isinstance(reader, TextReader)
        return {"text": reader.embedding}

    def forward(self, batch: Batch, trace: Any = None) -> Tensor:
        """-> (documents, labels) logits; what the first document showed is put into a trace."""
        found = self.levels(batch.source)
        if trace is not None:
            _show(trace, batch.source, found)
        logits: Tensor = self.output(found.documents)
        return logits

    def levels(self, source: Any) -> Levels:
        """Equations 1 to 10 of the paper."""
        memory = self.words.encode(source)
        of_words = self.word_attention(memory.values, memory.mask)
        vectors = (of_words[:, None] @ memory.values)[:, 0]  # (sentences, word size)
        counts = source.counts
        most = int(counts.max())
        mask = length_mask(counts, most)  # (documents, most)
        rows = vectors.new_zeros(*mask.shape, vectors.shape[1]).masked_scatter(mask[..., None], vectors)
        above = self.sentences.encode(_Vectors(rows, counts))
        of_sentences = self.sentence_attention(above.values, above.mask)
        return Levels(of_words, of_sentences, (of_sentences[:, None] @ above.values)[:, 0])


def _show(trace: Any, source: Any, found: Levels) -> None:
    """The attention of the first document: over all its words, each sentence a row, and over its sentences."""
    count = int(source.counts[0])
    lengths = source.lengths[:count].tolist()
    over_words = torch.zeros(count, sum(lengths))
    for number, length in enumerate(lengths):
        start = sum(lengths[:number])
        over_words[number, start : start + length] = found.words[number, :length]
    trace.add("words.attention", over_words, rows="sentence", columns="source")
    trace.add("sentences.attention", found.sentences[:1, :count], rows="document", columns="sentence")
