"""An encoder with the reader that its kind of source needs: what models without a decoder begin with."""

from __future__ import annotations

from typing import Any

from torch import nn

from seqloom.models.encoders import ENCODERS
from seqloom.models.series_reader import SeriesReader
from seqloom.models.text_reader import TextReader
from seqloom.nn.embeddings import SymbolEmbedding


def source_encoder(
    settings: Any,
    *,
    num_symbols: int | None = None,
    num_channels: int | None = None,
    word_dropout: float = 0.0,
    noise: float = 0.0,
) -> Any:
    """An encoder of texts, which have `num_symbols`, or of series, which have `num_channels`."""
    reader: nn.Module
    if num_channels is not None:
        reader = SeriesReader(num_channels, settings.embedding_size, noise=noise)
    else:
        assert num_symbols is not None, "a source has symbols or channels"
        reader = TextReader(SymbolEmbedding(num_symbols, settings.embedding_size), word_dropout=word_dropout)
    return ENCODERS[settings.kind][1](settings, reader)
